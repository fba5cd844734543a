"""How a round is kept: what a lease comes to, what counts as time served, how often shares are worked out.

`LeaseRules` is how a cluster should be run. A reproduction of a published simulator brings its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rota.core.messages.decisions import Lease
from rota.mechanisms.rounds.rule import Contender

SHORTEST_ROUND_S, LONGEST_ROUND_S = 60.0, 3600.0
"""Limits of an adaptive round: shorter ones only make work, longer ones make newcomers wait."""


class SelectedJob(NamedTuple):
    """A job that was drawn for a round, with its speed there."""

    job: Contender
    speed: float
    stays: bool = True
    """Whether it runs there already; otherwise it has to be started first, which takes time."""


class LeaseRules:
    """The plain way: jobs are served from the moment the round begins and end when they end."""

    lists_all_pairs = False
    """Whether every possible pair is in the books, or only those that have a share."""
    serves_newcomers = True
    """Whether who joined after shares were worked out may run on devices that nobody else wants."""
    failed = False
    """Whether a lease of the present round is known to come to nothing, so that shares are worked out anew."""
    solve_gap_s = 0.0
    """Least time between two looks at the shares."""

    def __init__(self, restart_s: float = 0.0) -> None:
        self.restart_s = restart_s
        """What every start but the first costs."""

    @property
    def memory(self) -> Any:
        """What these habits must remember between two rounds, as a value that JSON can hold."""
        return None

    def recall(self, memory: Any) -> None:
        """Take up what `memory` said."""

    def served_from_s(self, began_s: float, last_round_end_s: float) -> float:
        """From when on a round counts as time served."""
        return began_s

    def served_until_s(self, lease_s: float, over_s: float) -> float:
        """Until when a lease counts as time served: it may be over before its time."""
        return min(lease_s, over_s)

    def leases(self, seats: Sequence[SelectedJob], now_s: float, round_s: float) -> list[Lease]:
        """Whole steps, at most a round of them but at least one, for each member of a party.

        Who has to be started first has until the end of the round, however little it has left to do, and never less
        than the start takes: or it might be stopped again and again before it has done anything.
        """
        leases = []
        for job, speed, stays in seats:
            left = math.inf if job.live.job.work is None else job.remaining(now_s)
            steps = min(max(math.floor(speed * round_s), 1), left)
            until_s = now_s + (
                steps / speed if stays else max(round_s, self.restart_s + max(self.restart_s, 1 / speed))
            )
            leases.append(Lease(job.live.work_done(now_s) + steps, until_s))
        return leases


def adaptive_round_s(jobs: Sequence[Contender], now_s: float, restart_s: float) -> float:
    """A round's length from what a restart costs and how long jobs still run.

    Over a job's remaining L seconds, rounds of R cost at most L / R restarts, and R / 2 of waiting for the round in
    which it begins; the sum is least at R = sqrt(2 L restart), as for the interval between checkpoints (Young, 1974).
    """
    left_s = sorted(job.remaining(now_s) / max(job.speeds) for job in jobs if max(job.speeds, default=0.0) > 0)
    typical_s = left_s[len(left_s) // 2] if left_s else 0.0
    return min(max(math.sqrt(2 * typical_s * restart_s), 4 * restart_s, SHORTEST_ROUND_S), LONGEST_ROUND_S)


def timed_leases(seats: Sequence[SelectedJob], now_s: float, round_s: float) -> list[Lease]:
    """A whole round for each, whatever that comes to in steps: for speeds that are only estimated."""
    works = [seat.job.live.job.work for seat in seats]
    return [Lease(math.inf if work is None else work, now_s + round_s) for work in works]
