"""Lucid: jobs are packed by scores from non-intrusive profiles (Hu et al., ASPLOS 2023)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.errors import RotaError
from rota.core.messages.reasons import Reason
from rota.core.model.job import DeviceType
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.estimate.durations import Durations
from rota.mechanisms.colocation.declare import colocation
from rota.mechanisms.colocation.groups import DeviceGroups
from rota.mechanisms.colocation.rule import DefaultColocationRule
from rota.mechanisms.declare import SHARES, Knowledge, Traits
from rota.policies.published.colocation.arrivals import HOUR_S, HourlyDemand

TINY, MEDIUM, JUMBO = 0, 1, 2


class Knows(Enum):
    """Where durations come from."""

    LEARNED = "learned"
    KNOWN = "known"


@dataclass(frozen=True, slots=True, kw_only=True)
class LucidParams:
    """Two jobs are packed if their sharing scores add up to at most `most`: 0 below `tiny`, 1 below `medium`, else 2.

    `tiny` and `medium` are utilisations. Durations are `learned` from jobs that have ended, or `known`. Jobs are
    packed only in hours for which at least `quiet` of the cluster's device time is predicted to be requested.
    """

    durations: Knows = Knows.LEARNED
    most: int = 2
    tiny: float = 0.6
    medium: float = 0.85
    quiet: float = 0.0

    def __post_init__(self) -> None:
        if self.most < 0:
            raise RotaError(f"most is {self.most}; it must not be negative")
        if not 0 <= self.tiny <= self.medium <= 1:
            raise RotaError(f"tiny is {self.tiny:g} and medium {self.medium:g}; use 0 <= tiny <= medium <= 1")
        if not 0 <= self.quiet < math.inf:
            raise RotaError(f"quiet is {self.quiet:g}; it must be a number of 0 or more")


class Lucid(DefaultColocationRule):
    """Least remaining service first; jobs are packed in pairs and never preempted."""

    def __init__(self, params: LucidParams, knowledge: Knowledge) -> None:
        self._params = params
        self._speed = knowledge.speed
        self._durations = Durations()
        self._arrivals = HourlyDemand()
        self._devices = 0
        self.refusals_stand = not params.quiet

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """Return the remaining service, as estimated."""
        if self._params.quiet:
            self._arrivals.arrived(live.seq, live.submitted_s, self._length_s(live) * live.job.gpus)
        if self._params.durations is Knows.KNOWN:
            return (live.left_s(now_s) * live.job.gpus,)
        estimate_s = self._durations.estimate_s(live.job, live.submitted_s)
        return (max(estimate_s - _did_s(live, now_s), 0.0) * live.job.gpus,)

    def _length_s(self, live: LiveJob) -> float:
        if self._params.durations is Knows.KNOWN:
            return live.left_s(live.submitted_s)
        return self._durations.estimate_s(live.job, live.submitted_s)

    def find_free(self, live: LiveJob, draft: Draft, groups: DeviceGroups) -> Placement | Reason:
        """Take the allocator's offer; count the devices on the way."""
        self._devices = sum(pool.usable for pool in draft.inventory.pools)
        return super().find_free(live, draft, groups)

    def is_quiet(self, now_s: float) -> bool:
        """Return whether so little is predicted to be requested that jobs are better off alone."""
        if not self._params.quiet:
            return False
        predicted = self._arrivals.predicted_gpu_s(now_s)
        return predicted is not None and predicted < self._params.quiet * self._devices * HOUR_S

    def next_admission_s(self, waiting: LiveJob, now_s: float) -> float:
        """Return when the next hour begins, if jobs are not packed in this one."""
        return (now_s // HOUR_S + 1) * HOUR_S if self.is_quiet(now_s) else math.inf

    def forget(self, live: LiveJob) -> None:
        """Learn the duration of a job that has ended."""
        took_s = _did_s(live, live.ended_s or 0.0)
        if took_s > 0:
            self._durations.ended(live.job, live.submitted_s, took_s)

    @property
    def memory(self) -> Any:
        """The observed durations, and where they matter the arrivals."""
        if not self._params.quiet:
            return self._durations.memory
        return {"durations": self._durations.memory, "arrivals": self._arrivals.memory}

    def recall(self, memory: Any, jobs: dict[int, LiveJob]) -> None:
        """Restore what `memory` returned."""
        if isinstance(memory, dict):
            self._arrivals.recall(memory["arrivals"])
            memory = memory["durations"]
        self._durations.recall(memory or ())

    def admit(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """Pack with one other job, the least utilised first, if the scores allow it and both can run."""
        (host, *others) = hosts
        if others or self.is_quiet(now_s) or self.score(live, kind) + self.score(host, kind) > self._params.most:
            return None
        if not self._speed.beside(live.job, host.job, kind) > 0 or not self._speed.beside(host.job, live.job, kind) > 0:
            return None
        return (self._speed.use(host.job, kind),)

    def score(self, live: LiveJob, kind: DeviceType) -> int:
        """Return the sharing score of a job by its utilisation."""
        busy = self._speed.use(live.job, kind)
        return TINY if busy < self._params.tiny else MEDIUM if busy < self._params.medium else JUMBO


def _did_s(live: LiveJob, now_s: float) -> float:
    """Return the work that a job has done, in seconds at its best speed."""
    return live.work_done(now_s) / (live.nominal_rate or 1.0)


lucid = colocation(
    "lucid",
    Lucid,
    cites="Hu et al., ASPLOS 2023",
    summary="Least remaining service first; jobs without free devices are packed with one whose profile leaves room.",
    params=LucidParams,
    differs=(
        "jobs are not profiled on separate devices first, and packing depends on the predicted load only with `quiet`; "
        "the effects of the duration model are means shrunk towards 0, not boosted trees."
    ),
    traits=Traits(
        prior_knowledge="utilisation from profiles; durations of jobs that have ended",
        scheduling_input="remaining service, packing score",
        priority="least remaining service",
        starvation="possible",
        placement="consolidated, packed",
    ),
    emits=SHARES,
    packs=True,
)
