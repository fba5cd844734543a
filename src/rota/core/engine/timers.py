"""What falls due by itself: time limits of running jobs, and pauses after failures."""

from __future__ import annotations

import heapq
import math

from rota.core.state.job_record import LiveJob
from rota.core.state.state import State

CLOCK_SLACK_S = 1e-6
"""How far a time limit may be off by the rounding of a clock that counts from 1970."""


class Timers:
    """Two queues by due time. An entry whose job went another way meanwhile is skipped when it comes up."""

    def __init__(self, state: State) -> None:
        self._limits: list[tuple[float, int, LiveJob]] = []
        self._retries: list[tuple[float, int, LiveJob]] = []
        for live in state.jobs.values():
            if live.run_since_s is not None and live.stopping is None:
                self.limit(live)
            if live.retry_s is not None and not live.state.is_final:
                self.retry(live, live.retry_s)

    @property
    def next_s(self) -> float:
        """When the first of them falls due."""
        next_s = self._retries[0][0] if self._retries else math.inf
        limits = self._limits
        while limits:
            at_s, _, live = limits[0]
            if live.run_since_s is not None and live.stopping is None:
                return min(at_s, next_s)
            heapq.heappop(limits)
        return next_s

    def limit(self, live: LiveJob) -> None:
        """A job started to run; its time limit, if it has one, counts from here."""
        limit_s, since_s = live.job.time_limit_s, live.run_since_s
        if limit_s is not None and since_s is not None:
            heapq.heappush(self._limits, (since_s + limit_s - live.ran_s, live.seq, live))

    def retry(self, live: LiveJob, at_s: float) -> None:
        """A job pauses until then."""
        heapq.heappush(self._retries, (at_s, live.seq, live))

    def over_limit(self, now_s: float) -> list[LiveJob]:
        """Jobs that have run for as long as they may."""
        found: dict[LiveJob, None] = {}
        limits = self._limits
        while limits and limits[0][0] <= now_s:
            _, _, live = heapq.heappop(limits)
            limit_s = live.job.time_limit_s
            if limit_s is None or live.run_since_s is None or live.stopping is not None:
                continue
            if live.run_s(now_s) >= limit_s - CLOCK_SLACK_S:
                found[live] = None
        return list(found)

    def rested(self, now_s: float) -> list[LiveJob]:
        """Jobs whose pause is over."""
        found: list[LiveJob] = []
        while self._retries and self._retries[0][0] <= now_s:
            _, _, live = heapq.heappop(self._retries)
            if live.retry_s is not None and not live.state.is_final:
                found.append(live)
        return found
