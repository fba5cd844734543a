"""Shares that leave room for jobs that are still to come, as many as the recent past lets expect.

Whoever came lately stands for whoever comes next: it joins the question as a guest that runs nothing. What guests
get is nobody's claim, so that present jobs are promised least of the devices that the next ones will want most.
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
"""How far ahead room is left. Who comes in that time is there for half of it, on average."""
_MOST = 64
"""Arrivals that are remembered."""


class _Arrival(NamedTuple):
    """What is kept of a job that came: all that a rule may ask of it later, when it is long gone."""

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
        """The same job, had it come just now. Its number is below all real ones."""
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
    """A rule that is asked as if those who are expected were there already."""

    def __init__(self, rule: ShareRule) -> None:
        self._rule = rule
        self.sees_types, self.packs, self.backfills = rule.sees_types, rule.packs, rule.backfills
        self._since_s: float | None = None
        self._present: set[int] = set()
        self._types: tuple[str, ...] = ()
        self._lately: list[_Arrival] = []

    @property
    def memory(self) -> Any:
        """Who came lately, since when arrivals are counted, and what the rule remembers."""
        return {
            "since_s": self._since_s,
            "present": sorted(self._present),
            "types": list(self._types),
            "lately": [list(arrival) for arrival in self._lately],
            "rule": self._rule.memory,
        }

    def recall(self, memory: Any) -> None:
        """Go on counting."""
        self._since_s = memory["since_s"]
        self._present = set(memory["present"])
        self._types = tuple(memory["types"])
        self._lately = [
            _Arrival._make((*rest, tuple(speeds), None if shape is None else tuple(shape)))
            for *rest, speeds, shape in memory["lately"]
        ]
        self._rule.recall(memory["rule"])

    def shares(self, question: ShareQuestion) -> Shares:
        """The shares of those who are there, in the company of those who are not there yet."""
        self._watch(question)
        guests = [arrival.guest(question.now_s) for arrival in self._expected(question.now_s)]
        if not guests:
            return self._rule.shares(question)
        answer = self._rule.shares(replace(question, jobs=[*question.jobs, *guests]))
        return {contender: row for contender, row in answer.items() if contender[0] >= 0}

    def _watch(self, question: ShareQuestion) -> None:
        """Note who came since the last question. Who was there at the first says nothing of the flow."""
        if self._types != question.types:
            self._types, self._lately, self._since_s = question.types, [], None
        if self._since_s is None:
            self._since_s = question.now_s
        else:
            self._lately += [_arrival(job) for job in question.jobs if job.seq not in self._present]
        self._present = {job.seq for job in question.jobs}
        self._lately = [each for each in self._lately if each.at_s > question.now_s - WINDOW_S][-_MOST:]

    def _expected(self, now_s: float) -> list[_Arrival]:
        """The last few who came: as many as are there on average while the coming hour passes."""
        if not self._lately or self._since_s is None:
            return []
        since_s = max(self._since_s, now_s - WINDOW_S)
        if len(self._lately) == _MOST:
            since_s = self._lately[0].at_s
        rate = len(self._lately) / max(now_s - since_s, AHEAD_S)
        count = min(math.floor(rate * AHEAD_S / 2 + 0.5), len(self._lately))
        return self._lately[len(self._lately) - count :]
