"""Asynchronous successive halving (ASHA): of each rung, the best 1/factor go on to the next, without waiting.

Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020. A trial that is not among the best of
its rung pauses, and goes on if later results make it one of them. Trials that can't resume from a checkpoint are
stopped instead, as in the stopping variant of Ray Tune and Optuna.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.sweeps.rules.rule import GO_ON, TrialTurn, TrialVerdict, following, ranked, rungs_of
from rota.sweeps.trial import SweepTrial, TrialState


class AsynchronousHalving:
    """ASHA with rungs at `least * factor^k` steps below `most`."""

    new_first = False

    def __init__(self, *, least: int, most: int, factor: int, pauses: bool) -> None:
        self._rungs = rungs_of(least, most, factor)
        self._factor = factor
        self._pauses = pauses

    def marks(self, number: int) -> tuple[int, ...]:
        """The rungs."""
        return self._rungs

    def rungs(self, number: int) -> tuple[int, ...]:
        """The rungs, where trials can pause."""
        return self._rungs if self._pauses else ()

    def bracket(self, number: int) -> int:
        """All trials are compared with each other."""
        return 0

    def next_mark(self, trial: SweepTrial) -> int | None:
        """The next rung."""
        return following(self._rungs, trial)

    def judge(self, trial: SweepTrial, trials: Sequence[SweepTrial]) -> TrialVerdict:
        """Go on among the best of the rung; otherwise pause, or stop where pausing would lose the work."""
        mark = self._rungs[len(trial.values) - 1]
        order = ranked(trials, mark)
        place = order.index(trial) + 1
        go_on = len(order) // self._factor
        if not self._pauses:
            go_on = max(go_on, 1)
        if place <= go_on:
            return GO_ON
        why = f"{place} of {len(order)} at step {mark}"
        return TrialVerdict(TrialTurn.PAUSE if self._pauses else TrialTurn.STOP, why)

    def promoted(self, trials: Sequence[SweepTrial]) -> tuple[SweepTrial, str] | None:
        """The best paused trial of the highest rung that has one among its best."""
        for index in range(len(self._rungs) - 1, -1, -1):
            mark = self._rungs[index]
            order = ranked(trials, mark)
            for place, trial in enumerate(order[: len(order) // self._factor], start=1):
                if trial.state is TrialState.PAUSED and len(trial.values) == index + 1:
                    return trial, f"{place} of {len(order)} at step {mark}"
        return None
