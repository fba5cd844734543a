"""Muri: jobs that use different resources in turn are interleaved (Zhao et al., SIGCOMM 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.core.model.job import DeviceType
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.declare import sharing
from rota.mechanisms.colocation.regroup import Crew, Near, form
from rota.mechanisms.colocation.rule import DefaultColocationRule
from rota.mechanisms.declare import MOVES, SHARES, Knowledge, Traits
from rota.perf.speed.interleaving import stages_of, throughput


@dataclass(frozen=True, slots=True, kw_only=True)
class MuriParams:
    """At most `most` jobs are interleaved, one for each kind of resource; `gain` is the least that another must add.

    A gain of 0.1 is a tenth of the throughput of a job alone. Groups are matched anew every `regroup_s` while jobs
    wait.
    """

    most: int = 4
    gain: float = 0.1
    regroup_s: float = 1800.0

    def __post_init__(self) -> None:
        if not 1 <= self.most <= 4:
            raise RotaError(f"most is {self.most}; there are 4 kinds of resource, so that it must be from 1 to 4")
        if not self.gain >= 0:
            raise RotaError(f"gain is {self.gain:g}; it must be 0 or more")
        if not self.regroup_s > 0:
            raise RotaError(f"regroup_s is {self.regroup_s:g}; it must be a number of seconds above 0, or inf")


class Muri(DefaultColocationRule):
    """The shortest first, by devices times time left, in groups that are matched anew now and then.

    In between, who finds no devices joins the group that it fits best, and when devices are free and nobody waits, the
    last to come to the largest group moves there.
    """

    migrates = True

    def __init__(self, params: MuriParams, knowledge: Knowledge) -> None:
        self._params = params
        self._speed = knowledge.speed
        self.regroup_s = params.regroup_s

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """The service that is left."""
        return (live.left_s(now_s) * live.job.gpus,)

    def joins(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """By the throughput that it adds to the group's, most first."""
        jobs = [*hosts, live]
        if len(jobs) > self._params.most or not self.bears(live, hosts, kind):
            return None
        gain = _throughput(jobs) - _throughput(hosts)
        return (-gain,) if gain >= self._params.gain else None

    def bears(self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType) -> bool:
        """Beside each of them, by what is known of pairs."""
        return all(self._speed.beside(live.job, host.job, kind) > 0 for host in hosts)

    def crews(self, jobs: Sequence[LiveJob], devices: int, near: Near) -> list[Crew]:
        """Matched by how busy they keep all resources together, two by two and pairs again."""
        return form(jobs, devices, self._params.most, self._weight, near, stages_of)

    def _weight(self, one: Sequence[LiveJob], other: Sequence[LiveJob]) -> float:
        together = _throughput([*one, *other])
        return together if together - max(_throughput(one), _throughput(other)) >= self._params.gain else 0.0


def _throughput(jobs: Sequence[LiveJob]) -> float:
    return throughput(tuple(sorted(stages_of(each.job) for each in jobs)))


muri = sharing(
    "muri",
    Muri,
    cites="Zhao et al., SIGCOMM 2022",
    summary="The shortest first; who finds no devices is interleaved with jobs that use other resources meanwhile.",
    params=MuriParams,
    differs=(
        "iterations are taken to be of one length; stages are those of the job's label `stages` or assumed from its "
        "model family, not profiled; and a group is of jobs of one size, as in the published code."
    ),
    traits=Traits(
        prior_knowledge="duration, stages of an iteration",
        scheduling_input="service left, stages",
        dimensions="time and space",
        priority="least service left",
        preemption="when groups are matched anew",
        placement="consolidated, packed",
        intrusiveness="barriers between stages",
    ),
    emits=SHARES | MOVES,
    packs=True,
)
