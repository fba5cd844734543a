"""The rules of leases: their length, what counts as time served, how often shares are computed.

`LeaseRules` are those of a live cluster; the reproduction of a published simulator has its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rota.core.messages.decisions import Lease
from rota.mechanisms.rounds.rule import RoundJob

SHORTEST_ROUND_S, LONGEST_ROUND_S = 60.0, 3600.0
"""Limits of an adaptive round: shorter ones only make work, longer ones make serve_newcomers wait."""


class SelectedJob(NamedTuple):
    """A job that was placed in a round, with its speed there."""

    job: RoundJob
    speed: float
    stays: bool = True
    """Whether it already runs there; otherwise it has to be started, which takes time."""


class LeaseRules:
    """Jobs are served from the start of the round until they end."""

    lists_all_pairs = False
    """Whether the deficits hold every possible pair, or only those that have a share."""
    serves_newcomers = True
    """Whether a job that joined after shares were computed may run on devices without a claim."""
    failed = False
    """Whether a lease of the current round is known to fail, so that shares are computed again."""
    solve_gap_s = 0.0
    """Minimum time between two computations of shares."""

    def __init__(self, restart_s: float = 0.0) -> None:
        self.restart_s = restart_s
        """The cost of every start but the first."""

    @property
    def memory(self) -> Any:
        """What these rules must remember between two rounds, as a value that JSON can hold."""
        return None

    def recall(self, memory: Any) -> None:
        """Restore what `memory` returned."""

    def served_from_s(self, began_s: float, last_round_end_s: float) -> float:
        """From when a round counts as time served."""
        return began_s

    def served_until_s(self, lease_s: float, over_s: float) -> float:
        """Until when a lease counts as time served; it may end early."""
        return min(lease_s, over_s)

    def leases(self, selected: Sequence[SelectedJob], now_s: float, round_s: float) -> list[Lease]:
        """Whole steps for each job of a contender, at least one and at most a round of them.

        A job that has to be started gets the whole round however little work is left, and never less than the start
        takes: otherwise it could be preempted repeatedly before it makes progress.
        """
        leases = []
        for job, speed, stays in selected:
            left = math.inf if job.live.job.work is None else job.remaining(now_s)
            steps = min(max(math.floor(speed * round_s), 1), left)
            until_s = now_s + (
                steps / speed if stays else max(round_s, self.restart_s + max(self.restart_s, 1 / speed))
            )
            leases.append(Lease(job.live.work_done(now_s) + steps, until_s))
        return leases


def adaptive_round_s(jobs: Sequence[RoundJob], now_s: float, restart_s: float) -> float:
    """The length of a round from the cost of a restart and the remaining run times.

    Over a job's remaining L seconds, rounds of R cost at most L / R restarts, and R / 2 of waiting for the round in
    which it begins; the sum is least at R = sqrt(2 L restart), as for the interval between checkpoints (Young, 1974).
    """
    left_s = sorted(job.remaining(now_s) / max(job.speeds) for job in jobs if max(job.speeds, default=0.0) > 0)
    typical_s = left_s[len(left_s) // 2] if left_s else 0.0
    return min(max(math.sqrt(2 * typical_s * restart_s), 4 * restart_s, SHORTEST_ROUND_S), LONGEST_ROUND_S)


def timed_leases(selected: Sequence[SelectedJob], now_s: float, round_s: float) -> list[Lease]:
    """A whole round for each job, for speeds that are only estimates."""
    works = [each.job.live.job.work for each in selected]
    return [Lease(math.inf if work is None else work, now_s + round_s) for work in works]
