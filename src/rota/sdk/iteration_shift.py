"""Turns between jobs that share links: iterations that start at a shift within a period.

shift = IterationShift()
for batch in loader:
    shift.begin()
    train(batch)
"""

from __future__ import annotations

import os
import time

LATE = 0.1
"""An iteration that starts this fraction of its period after its turn began is out of step."""
MOST_WAIT = 0.1
"""The fraction of its time that a job waits for its turns at most, and one period."""


class IterationShift:
    """Keeps iterations in step with a schedule between jobs: it starts each one at a shift within a period.

    The shift and the period come from the scheduler, in `ROTA_SHIFT_S` and `ROTA_PERIOD_S`; without them nothing waits.
    Turns are counted from `epoch_s` of the clock on the wall, which machines have in common (NTP keeps it within ms).
    A job that drifts by more than a tenth of the period waits for its next turn. Where iterations are much longer or
    shorter than the period, so that it would wait for more than a tenth of its time, it goes on out of step.
    """

    def __init__(self, shift_s: float | None = None, period_s: float | None = None, epoch_s: float = 0.0) -> None:
        self.shift_s = float(os.environ.get("ROTA_SHIFT_S") or 0) if shift_s is None else shift_s
        self.period_s = float(os.environ.get("ROTA_PERIOD_S") or 0) if period_s is None else period_s
        self._epoch_s = epoch_s
        self._first_s: float | None = None
        self._waited_s = 0.0

    def lateness_s(self, now_s: float) -> float:
        """Return how long ago its turn began."""
        return (now_s - self._epoch_s - self.shift_s) % self.period_s if self.period_s else 0.0

    def begin(self) -> float:
        """Wait for the turn of this iteration where it is out of step; return the seconds waited."""
        wait_s = self.wait_s(time.time())
        if wait_s:
            time.sleep(wait_s)
        return wait_s

    def wait_s(self, now_s: float) -> float:
        """Return how long an iteration that could start now has to wait, and count it as waited."""
        if not self.period_s:
            return 0.0
        late_s = self.lateness_s(now_s)
        early_s = self.period_s - late_s
        if self._first_s is None:
            self._first_s = now_s + early_s
            return early_s
        waited_s = self._waited_s + early_s
        if late_s <= LATE * self.period_s or waited_s > MOST_WAIT * (now_s - self._first_s) + self.period_s:
            return 0.0
        self._waited_s = waited_s
        return early_s
