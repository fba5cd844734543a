"""Muri: jobs that use different resources in turn are interleaved (Zhao et al., SIGCOMM 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.core.live import LiveJob
from rota.core.model import DeviceType
from rota.mechanisms.declare import Knowledge, Traits
from rota.mechanisms.declare_sharing import sharing
from rota.mechanisms.joining import PlainRule
from rota.perf.stages import stages_of, throughput


@dataclass(frozen=True, slots=True, kw_only=True)
class MuriParams:
    """At most `most` jobs are interleaved, one for each kind of resource; `gain` is the least that another must add.

    A gain of 0.1 is a tenth of the throughput of a job alone.
    """

    most: int = 4
    gain: float = 0.1

    def __post_init__(self) -> None:
        if not 1 <= self.most <= 4:
            raise RotaError(f"most is {self.most}; there are 4 kinds of resource, so that it must be from 1 to 4")


class Muri(PlainRule):
    """The shortest first, by devices times time left; who finds no devices joins the group that it fits best.

    Groups are not for life: when devices are free and nobody waits, the last to come to the largest group moves there.
    """

    def __init__(self, params: MuriParams, knowledge: Knowledge) -> None:
        self._params = params
        self._speed = knowledge.speed

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """The service that is left."""
        return (live.left_s(now_s) * live.job.gpus,)

    def mover(self, jobs: Sequence[LiveJob], *, somebody_waits: bool) -> LiveJob | None:
        """Who came last, to devices for which nobody waits."""
        return None if somebody_waits else jobs[-1]

    def joins(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """By the throughput that it adds to the group's, most first."""
        jobs = [*hosts, live]
        if len(jobs) > self._params.most:
            return None
        if any(not self._speed.beside(live.job, host.job, kind) > 0 for host in hosts):
            return None
        gain = throughput(tuple(stages_of(each.job) for each in jobs)) - throughput(
            tuple(stages_of(each.job) for each in hosts)
        )
        return (-gain,) if gain >= self._params.gain else None


muri = sharing(
    "muri",
    Muri,
    cites="Zhao et al., SIGCOMM 2022",
    summary="The shortest first; who finds no devices is interleaved with jobs that use other resources meanwhile.",
    params=MuriParams,
    traits=Traits(
        prior_knowledge="duration, stages of an iteration",
        scheduling_input="service left, stages",
        dimensions="time and space",
        priority="least service left",
        placement="consolidated, packed",
        intrusiveness="barriers between stages",
    ),
)
