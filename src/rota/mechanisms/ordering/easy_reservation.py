"""EASY backfill: the first job that does not fit gets a start time; others may pass it if they do not delay it.

Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rota.core.engine.draft import Draft
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.state.job_record import LiveJob


@dataclass(slots=True)
class Reservation:
    """The expected start time of the head of a quota scope, and the devices that it leaves over then."""

    head: LiveJob
    now_s: float
    starts_s: float
    spare_milli: int

    @classmethod
    def make(cls, draft: Draft, head: LiveJob, holders: Iterable[LiveJob]) -> Reservation:
        """Add up devices in the order in which the holders are expected to end."""
        now_s = draft.now_s
        shortage = draft.allocator.reservation_shortage
        missing = max(shortage.milli(head, draft.inventory), 1)
        ends = sorted((now_s + live.remaining_s(now_s), live.seq, live) for live in holders)
        for end_s, _, live in ends:
            missing -= min(shortage.freed_by(live, head, draft.inventory), live.gpu_milli)
            if missing <= 0:
                return cls(head, now_s, end_s, -missing)
        return cls(head, now_s, math.inf, 0)

    def reason(self) -> Reason:
        """The reason of a job that may not pass the head."""
        starts_s = self.starts_s if self.starts_s < math.inf else None
        return Reason(code=ReasonCode.WOULD_DELAY, job=self.head.job.id, until_s=starts_s)

    def admits(self, gpu_milli: int, expected_s: float) -> bool:
        """Whether a job can start without delaying the head."""
        return gpu_milli <= self.spare_milli or self.now_s + expected_s <= self.starts_s

    def spend(self, gpu_milli: int, expected_s: float) -> None:
        """Account for a job that passed the head: if it runs past the start time, it uses spare devices."""
        if self.now_s + expected_s > self.starts_s:
            self.spare_milli -= gpu_milli
