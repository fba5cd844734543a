"""What only a reproduction of Gavel's simulator needs: its lease_rules, right or wrong, behind one switch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rota.core.messages.decisions import Lease
from rota.mechanisms.rounds.lease_rules import LeaseRules, SelectedJob
from rota.mechanisms.rounds.rule import RoundJob

_CHANCES = 5
"""Rounds in a row that may fail before Gavel drops a job."""


class GavelLeaseRules(LeaseRules):
    """As the published simulator (commit c4fa400) does it."""

    lists_all_pairs = True
    serves_newcomers = False
    solve_gap_s = 1920.0

    def __init__(self) -> None:
        super().__init__()
        self._failures: dict[int, int] = {}

    @property
    def memory(self) -> Any:
        """Failures in a row by job, and whether a lease of the present round fails."""
        return {"failures": list(self._failures.items()), "failed": self.failed}

    def recall(self, memory: Any) -> None:
        """Go on counting."""
        self._failures = dict(memory["failures"])
        self.failed = memory["failed"]

    def served_from_s(self, began_s: float, last_round_end_s: float) -> float:
        """Gavel counts from the end of the last round, even if the cluster lay idle since then."""
        return last_round_end_s

    def served_until_s(self, lease_s: float, over_s: float) -> float:
        """Gavel knows beforehand when a lease will be over."""
        return lease_s

    def leases(self, seats: Sequence[SelectedJob], now_s: float, round_s: float) -> list[Lease]:
        """Both members of a pair selector back together, at the later time, even if one is through before.

        A lease of fewer steps than devices fails, for both members: the time is spent and nothing is done. A job
        of which that happened too often is dropped; here it ends then, which is when Gavel stops its clock. One so
        slow that even a whole round has fewer steps than devices would always fail; it keeps what it does, in parts
        of steps.
        """
        rounds = [_steps_a_round(seat, round_s) for seat in seats]
        steps = [min(full, job.remaining(now_s)) for full, (job, _, _) in zip(rounds, seats, strict=True)]
        until_s = now_s + max(count / speed for count, (_, speed, _) in zip(steps, seats, strict=True))
        failed = any(count < job.scale <= full for count, full, (job, _, _) in zip(steps, rounds, seats, strict=True))
        if failed:
            self.failed = True
            steps = [self._last_chance(seats[0].job, now_s) if len(seats) == 1 else 0.0] * len(seats)
        else:
            for job, _, _ in seats:
                self._failures.pop(job.seq, None)
        return [
            Lease(job.live.work_done(now_s) + count, until_s, together=True)
            for count, (job, _, _) in zip(steps, seats, strict=True)
        ]

    def _last_chance(self, job: RoundJob, now_s: float) -> float:
        """The steps of a lease that fails: none, until the job is dropped."""
        self._failures[job.seq] = self._failures.get(job.seq, 0) + 1
        return job.remaining(now_s) if self._failures[job.seq] >= _CHANCES else 0.0


def _steps_a_round(seat: SelectedJob, round_s: float) -> float:
    """Whole steps; for a job that can't do one for each of its devices in a round, whatever it can do."""
    whole = math.floor(seat.speed * round_s)
    return whole if whole >= seat.job.scale else seat.speed * round_s
