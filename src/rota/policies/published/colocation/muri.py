"""Muri: jobs that use different resources in their stages are interleaved (Zhao et al., SIGCOMM 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.core.model.job import DeviceType
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.declare import colocation
from rota.mechanisms.colocation.regroup import Group, SameDevices, form
from rota.mechanisms.colocation.rule import DefaultColocationRule
from rota.mechanisms.declare import MOVES, SHARES, Knowledge, Traits
from rota.perf.speed.interleaving import stages_of, throughput


@dataclass(frozen=True, slots=True, kw_only=True)
class MuriParams:
    """At most `most` jobs are interleaved, one for each type of resource; each must add at least `gain`.

    A gain of 0.1 is a tenth of the throughput of a job alone. Groups are matched from scratch every `regroup_s` while
    jobs wait.
    """

    most: int = 4
    gain: float = 0.1
    regroup_s: float = 1800.0

    def __post_init__(self) -> None:
        if not 1 <= self.most <= 4:
            raise RotaError(f"most is {self.most}; it must be from 1 to 4, the number of resource types")
        if not self.gain >= 0:
            raise RotaError(f"gain is {self.gain:g}; it must be 0 or more")
        if not self.regroup_s > 0:
            raise RotaError(f"regroup_s is {self.regroup_s:g}; it must be a number of seconds above 0, or inf")


class Muri(DefaultColocationRule):
    """Least remaining service first, in groups that are matched from scratch at intervals.

    In between, a job that finds no free devices joins the group to which it adds most throughput. When devices are free
    and no job waits, the last job of the largest group moves there.
    """

    migrates = True

    def __init__(self, params: MuriParams, knowledge: Knowledge) -> None:
        self._params = params
        self._speed = knowledge.speed
        self.regroup_s = params.regroup_s

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """Return the remaining service in GPU-seconds."""
        return (live.left_s(now_s) * live.job.gpus,)

    def admit(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """Return the negated throughput that the job adds to the group."""
        jobs = [*hosts, live]
        if len(jobs) > self._params.most or not self.can_run_with(live, hosts, kind):
            return None
        gain = _throughput(jobs) - _throughput(hosts)
        return (-gain,) if gain >= self._params.gain else None

    def can_run_with(self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType) -> bool:
        """Return whether every pair can run together by the speed model."""
        return all(self._speed.beside(live.job, host.job, kind) > 0 for host in hosts)

    def form_groups(self, jobs: Sequence[LiveJob], devices: int, together: SameDevices) -> list[Group]:
        """Match jobs by the throughput of their interleaved stages, in pairs, then pairs of pairs."""
        return form(jobs, devices, self._params.most, self._weight, together, stages_of)

    def _weight(self, one: Sequence[LiveJob], other: Sequence[LiveJob]) -> float:
        together = _throughput([*one, *other])
        return together if together - max(_throughput(one), _throughput(other)) >= self._params.gain else 0.0


def _throughput(jobs: Sequence[LiveJob]) -> float:
    return throughput(tuple(sorted(stages_of(each.job) for each in jobs)))


muri = colocation(
    "muri",
    Muri,
    cites="Zhao et al., SIGCOMM 2022",
    summary="Least remaining service first; jobs without free devices are interleaved by resource.",
    params=MuriParams,
    differs=(
        "iterations are assumed to have equal length; stages come from the job's label `stages` or from its "
        "model family, not profiled; and the jobs of a group have equal size, as in the published code."
    ),
    traits=Traits(
        prior_knowledge="duration, stages of an iteration",
        scheduling_input="remaining service, stages",
        dimensions="time and space",
        priority="least remaining service",
        preemption="at regrouping",
        placement="consolidated, packed",
        intrusiveness="barriers between stages",
    ),
    emits=SHARES | MOVES,
    packs=True,
)
