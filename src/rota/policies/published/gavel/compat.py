"""The lease rules of Gavel's simulator, right or wrong: only its reproduction needs them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rota.core.messages.decisions import Lease
from rota.mechanisms.rounds.lease_rules import LeaseRules, SelectedJob
from rota.mechanisms.rounds.rule import RoundJob

_CHANCES = 5
"""Consecutive failed rounds after which Gavel drops a job."""
_CHANCES_OF_A_PAIR = 100
"""The same of a pair, which Gavel never drops: more than its other jobs leave a pair alone for."""


class GavelLeaseRules(LeaseRules):
    """Lease rules as in the published simulator (commit c4fa400)."""

    lists_all_pairs = True
    serves_newcomers = False
    solve_gap_s = 1920.0

    def __init__(self, restart_s: float = 0.0) -> None:
        super().__init__(restart_s)
        self._failures: dict[int, int] = {}
        self._of_pairs: dict[tuple[int, int], int] = {}

    @property
    def memory(self) -> Any:
        """Consecutive failures by job and by pair, and whether a lease of the current round fails."""
        pairs = [[*pair, count] for pair, count in self._of_pairs.items()]
        return {"failures": list(self._failures.items()), "pairs": pairs, "failed": self.failed}

    def recall(self, memory: Any) -> None:
        """Restore the counts."""
        self._failures = dict(memory["failures"])
        self._of_pairs = {(one, other): count for one, other, count in memory.get("pairs", ())}
        self.failed = memory["failed"]

    def served_from_s(self, began_s: float, last_round_end_s: float) -> float:
        """Gavel counts from the end of the last round, even if the cluster was idle since then."""
        return last_round_end_s

    def served_until_s(self, lease_s: float, over_s: float) -> float:
        """Gavel computes the end of a lease in advance."""
        return lease_s

    def leases(self, selected: Sequence[SelectedJob], now_s: float, round_s: float) -> list[Lease]:
        """Both members of a pair return their devices together, at the later time, even if one ends earlier.

        A lease of fewer steps than devices fails for both members: the time passes without progress. A job that
        failed too often is dropped; here it ends then, which is when Gavel stops its clock. A pair is never dropped
        there, and would be tried for ever: here it goes on after many failures. A job so slow that even a whole round
        has fewer steps than devices would always fail; it keeps its progress in fractions of steps.
        Where restarts cost time, which the published simulator does not know, a restarted job's lease is long enough
        for progress.
        """
        rounds = [_steps_a_round(each, round_s) for each in selected]
        steps = [min(full, job.remaining(now_s)) for full, (job, _, _) in zip(rounds, selected, strict=True)]
        until_s = now_s + max(
            max(count / each.speed, self._restarted_s(each)) for count, each in zip(steps, selected, strict=True)
        )
        failed = any(
            count < job.scale <= full for count, full, (job, _, _) in zip(steps, rounds, selected, strict=True)
        )
        if failed:
            self.failed = True
            if len(selected) == 1:
                steps = [self._last_chance(selected[0].job, now_s)]
            elif not self._is_hopeless([job for job, _, _ in selected]):
                steps = [0.0] * len(selected)
        else:
            for job, _, _ in selected:
                self._failures.pop(job.seq, None)
            self._of_pairs.pop(_pair([job for job, _, _ in selected]), None)
        return [
            Lease(job.live.work_done(now_s) + count, until_s, together=True)
            for count, (job, _, _) in zip(steps, selected, strict=True)
        ]

    def _restarted_s(self, each: SelectedJob) -> float:
        """The shortest lease of a job that has to be restarted: it covers the restart, and as much work again."""
        if each.stays or not self.restart_s or each.job.live.first_start_s is None:
            return 0.0
        return self.restart_s + max(self.restart_s, 1 / each.speed)

    def _last_chance(self, job: RoundJob, now_s: float) -> float:
        """The steps of a lease that fails: none, until the job is dropped."""
        self._failures[job.seq] = self._failures.get(job.seq, 0) + 1
        return job.remaining(now_s) if self._failures[job.seq] >= _CHANCES else 0.0

    def _is_hopeless(self, jobs: Sequence[RoundJob]) -> bool:
        """Count a failure of a pair; whether there were so many in a row that nothing else will end it."""
        pair = _pair(jobs)
        self._of_pairs[pair] = self._of_pairs.get(pair, 0) + 1
        return self._of_pairs[pair] >= _CHANCES_OF_A_PAIR


def _pair(jobs: Sequence[RoundJob]) -> tuple[int, int]:
    return jobs[0].seq, jobs[-1].seq


def _steps_a_round(each: SelectedJob, round_s: float) -> float:
    """Whole steps; fractions of steps for a job too slow to do one per device in a round."""
    whole = math.floor(each.speed * round_s)
    return whole if whole >= each.job.scale else each.speed * round_s
