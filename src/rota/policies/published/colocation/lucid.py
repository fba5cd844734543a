"""Lucid: jobs packed by scores from profiles that need no change of the job (Hu et al., ASPLOS 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.job import DeviceType
from rota.core.state.job_record import LiveJob
from rota.estimate.durations import Durations
from rota.mechanisms.colocation.declare import sharing
from rota.mechanisms.colocation.rule import DefaultColocationRule
from rota.mechanisms.declare import SHARES, Knowledge, Traits

TINY, MEDIUM, JUMBO = 0, 1, 2


class Knows(Enum):
    """Where durations come from."""

    LEARNED = "learned"
    KNOWN = "known"


@dataclass(frozen=True, slots=True, kw_only=True)
class LucidParams:
    """Two jobs are packed if their scores add up to at most `most`: 0 below `tiny`, 1 below `medium`, else 2.

    `tiny` and `medium` are parts of the time in which a job keeps its devices busy. How long jobs run is `learned` from
    those that have ended, or `known`.
    """

    durations: Knows = Knows.LEARNED
    most: int = 2
    tiny: float = 0.6
    medium: float = 0.85

    def __post_init__(self) -> None:
        if self.most < 0:
            raise RotaError(f"most is {self.most}; it must not be negative")
        if not 0 <= self.tiny <= self.medium <= 1:
            raise RotaError(f"tiny is {self.tiny:g} and medium {self.medium:g}; they must be parts of 1, in that order")


class Lucid(DefaultColocationRule):
    """The shortest first, by devices times time left; packed in pairs, never stopped."""

    def __init__(self, params: LucidParams, knowledge: Knowledge) -> None:
        self._params = params
        self._speed = knowledge.speed
        self._durations = Durations()

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """The service that is left, as estimated."""
        if self._params.durations is Knows.KNOWN:
            return (live.left_s(now_s) * live.job.gpus,)
        estimate_s = self._durations.estimate_s(live.job, live.submitted_s)
        return (max(estimate_s - _did_s(live, now_s), 0.0) * live.job.gpus,)

    def left(self, live: LiveJob) -> None:
        """Learn from a job that has ended."""
        took_s = _did_s(live, live.ended_s or 0.0)
        if took_s > 0:
            self._durations.ended(live.job, live.submitted_s, took_s)

    @property
    def memory(self) -> Any:
        """What was seen of durations."""
        return self._durations.memory

    def recall(self, memory: Any, jobs: dict[int, LiveJob]) -> None:
        """Take it up."""
        self._durations.recall(memory or ())

    def joins(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """Beside one other, the idler the better, if the scores allow it and both can run there."""
        (host, *others) = hosts
        if others or self.score(live, kind) + self.score(host, kind) > self._params.most:
            return None
        if not self._speed.beside(live.job, host.job, kind) > 0 or not self._speed.beside(host.job, live.job, kind) > 0:
            return None
        return (self._speed.use(host.job, kind),)

    def score(self, live: LiveJob, kind: DeviceType) -> int:
        """How much of a device a job leaves to others, in three classes."""
        busy = self._speed.use(live.job, kind)
        return TINY if busy < self._params.tiny else MEDIUM if busy < self._params.medium else JUMBO


def _did_s(live: LiveJob, now_s: float) -> float:
    """The work that a job has done, in seconds at its best speed."""
    return live.work_done(now_s) / (live.nominal_rate or 1.0)


lucid = sharing(
    "lucid",
    Lucid,
    cites="Hu et al., ASPLOS 2023",
    summary="The shortest first; who finds no devices is packed with a job whose profile leaves room.",
    params=LucidParams,
    differs=(
        "jobs are not profiled on devices of their own first, and whether to pack does not hang on how many jobs are "
        "foreseen; the effects of the duration model are means held to 0, not boosted trees."
    ),
    traits=Traits(
        prior_knowledge="utilisation from profiles; durations of jobs that have ended",
        scheduling_input="service left, packing score",
        priority="least service left",
        starvation="possible",
        placement="consolidated, packed",
    ),
    emits=SHARES,
    packs=True,
)
