"""Muri: jobs that use different resources in turn are interleaved (Zhao et al., SIGCOMM 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations

from rota.core.errors import RotaError
from rota.core.live import LiveJob
from rota.core.model import DeviceType, Job
from rota.mechanisms.declare import Knowledge, Traits
from rota.mechanisms.declare_sharing import label, sharing
from rota.mechanisms.joining import PlainRule

Stages = tuple[float, ...]
"""The parts of an iteration spent on storage, CPU, GPU and network, one after the other."""

STAGES: dict[str, Stages] = {
    "ResNet-18": (0.45, 0.20, 0.25, 0.10),
    "ResNet-50": (0.20, 0.10, 0.60, 0.10),
    "Transformer": (0.05, 0.05, 0.80, 0.10),
    "LM": (0.02, 0.03, 0.85, 0.10),
    "Recommendation": (0.10, 0.50, 0.30, 0.10),
    "A3C": (0.00, 0.85, 0.10, 0.05),
    "CycleGAN": (0.10, 0.05, 0.80, 0.05),
}
"""By family, for jobs that do not say: assumed from what such models are known to wait for, not measured."""
UNKNOWN: Stages = (0.0, 0.0, 1.0, 0.0)


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

    spreads = True

    def __init__(self, params: MuriParams, knowledge: Knowledge) -> None:
        self._params = params
        self._speed = knowledge.speed

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """The service that is left."""
        return (live.left_s(now_s) * live.job.gpus,)

    def joins(self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType) -> tuple[float, ...] | None:
        """By the throughput that it adds to the group's, most first."""
        jobs = [*hosts, live]
        if len(jobs) > self._params.most:
            return None
        if any(not self._speed.beside(live.job, host.job, kind) > 0 for host in hosts):
            return None
        gain = throughput(tuple(map(stages_of, jobs))) - throughput(tuple(map(stages_of, hosts)))
        return (-gain,) if gain >= self._params.gain else None


def stages_of(live: LiveJob) -> Stages:
    """A job's stages: as its label `stages` says, as its family's, or all GPU."""
    return _stages(live.job)


@cache
def _stages(job: Job) -> Stages:
    said = label(job, "stages")
    if said is not None:
        try:
            parts = tuple(float(part) for part in said.split("/"))
        except ValueError:
            return UNKNOWN
        total = sum(parts)
        if len(parts) == len(UNKNOWN) and total > 0 and min(parts) >= 0:
            return tuple(part / total for part in parts)
        return UNKNOWN
    family = (job.model or "").partition(" (")[0]
    return STAGES.get(family, UNKNOWN)


@cache
def throughput(group: tuple[Stages, ...]) -> float:
    """Iterations of a group in the time that a job alone needs for one, at the best order of its members.

    In each of four slots every member is on another resource; a slot lasts as long as the longest stage in it.
    """
    return len(group) / min(_period(group, offsets) for offsets in permutations(range(len(UNKNOWN)), len(group)))


def _period(group: tuple[Stages, ...], offsets: tuple[int, ...]) -> float:
    kinds = len(UNKNOWN)
    return sum(
        max(stages[(slot + offset) % kinds] for stages, offset in zip(group, offsets, strict=True))
        for slot in range(kinds)
    )


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
