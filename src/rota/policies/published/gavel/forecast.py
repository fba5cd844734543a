"""Shares that leave room for future jobs, as many as recent arrivals suggest.

Recent arrivals stand for the next ones: they join the question as expected jobs that run nothing. What these get
is left without a claim, so that present jobs get least of the devices that the next ones will need most.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from rota.core.model.job import WHOLE, Job, JobId, Role
from rota.core.state.job_record import LiveJob
from rota.mechanisms.rounds.rule import RoundJob, ShareQuestion, ShareRule, Shares

WINDOW_S = 4 * 3600.0
"""How far back arrivals are counted."""
AHEAD_S = 3600.0
"""How far ahead room is left. A job that arrives in that time is present for half of it, on average."""
_MOST = 64
"""Arrivals that are remembered."""


class _Arrival(NamedTuple):
    """What is kept of an arrival: all that a rule may read of it later, when the job is gone."""

    seq: int
    at_s: float
    model: str | None
    work: float | None
    scale: int
    weight: float
    slo: float | None
    entity: str
    speeds: tuple[float, ...]
    shape: tuple[int, int] | None

    def guest(self, now_s: float) -> RoundJob:
        """The same job as if it arrived now. Its number is below all real ones."""
        count, each = self.shape or (1, self.scale)
        job = Job(
            id=JobId(f"guest-{self.seq}"),
            roles=(Role(count=count, device_milli=each * WHOLE),),
            model=self.model,
            work=self.work,
        )
        return RoundJob(
            live=LiveJob(job, -1 - self.seq, now_s, 1.0),
            seq=-1 - self.seq,
            scale=self.scale,
            weight=self.weight,
            slo=self.slo,
            entity=self.entity,
            speeds=self.speeds,
            able=tuple(speed > 0 for speed in self.speeds),
            shape=self.shape,
            kind=(self.model, self.scale, self.speeds, self.shape),
        )


def _arrival(job: RoundJob) -> _Arrival:
    asked = job.live.job
    return _Arrival(
        job.seq,
        job.live.submitted_s,
        asked.model,
        asked.work,
        job.scale,
        job.weight,
        job.slo,
        job.entity,
        job.speeds,
        job.shape,
    )


class ArrivalForecast:
    """A rule that is asked as if the expected jobs were present."""

    def __init__(self, rule: ShareRule) -> None:
        self._rule = rule
        self.sees_types, self.packs, self.backfills = rule.sees_types, rule.packs, rule.backfills
        self._since_s: float | None = None
        self._present: set[int] = set()
        self._types: tuple[str, ...] = ()
        self._lately: list[_Arrival] = []

    @property
    def memory(self) -> Any:
        """Recent arrivals, since when they are counted, and what the rule remembers."""
        return {
            "since_s": self._since_s,
            "present": sorted(self._present),
            "types": list(self._types),
            "lately": [list(arrival) for arrival in self._lately],
            "rule": self._rule.memory,
        }

    def recall(self, memory: Any) -> None:
        """Restore the arrivals."""
        self._since_s = memory["since_s"]
        self._present = set(memory["present"])
        self._types = tuple(memory["types"])
        self._lately = [
            _Arrival._make((*rest, tuple(speeds), None if shape is None else tuple(shape)))
            for *rest, speeds, shape in memory["lately"]
        ]
        self._rule.recall(memory["rule"])

    def shares(self, question: ShareQuestion) -> Shares:
        """The shares of the present jobs, computed together with the expected ones."""
        self._watch(question)
        guests = [arrival.guest(question.now_s) for arrival in self._expected(question.now_s)]
        if not guests:
            return self._rule.shares(question)
        answer = self._rule.shares(replace(question, jobs=[*question.jobs, *guests]))
        return {contender: row for contender, row in answer.items() if contender[0] >= 0}

    def _watch(self, question: ShareQuestion) -> None:
        """Record arrivals since the last question. Jobs present at the first say nothing about the arrival rate."""
        if self._types != question.types:
            self._types, self._lately, self._since_s = question.types, [], None
        if self._since_s is None:
            self._since_s = question.now_s
        else:
            self._lately += [_arrival(job) for job in question.jobs if job.seq not in self._present]
        self._present = {job.seq for job in question.jobs}
        self._lately = [each for each in self._lately if each.at_s > question.now_s - WINDOW_S][-_MOST:]

    def _expected(self, now_s: float) -> list[_Arrival]:
        """The latest arrivals: as many as are present on average during the coming hour."""
        if not self._lately or self._since_s is None:
            return []
        since_s = max(self._since_s, now_s - WINDOW_S)
        if len(self._lately) == _MOST:
            since_s = self._lately[0].at_s
        rate = len(self._lately) / max(now_s - since_s, AHEAD_S)
        count = min(math.floor(rate * AHEAD_S / 2 + 0.5), len(self._lately))
        return self._lately[len(self._lately) - count :]
