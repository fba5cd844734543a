"""The median rule: a trial ends that is worse than the median of the others at the same step.

Golovin et al., "Google Vizier", KDD 2017: the best value of a trial so far is compared with the median of the running
averages of the other trials up to that step.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from rota.sweeps.rules.rule import GO_ON, TrialTurn, TrialVerdict
from rota.sweeps.trial import SweepTrial

MOST_MARKS = 1000


class Median:
    """Judges at `first` steps and then every `every`, once enough other trials have come as far."""

    new_first = True

    def __init__(self, *, every: int, first: int, least_trials: int) -> None:
        self._every = every
        self._first = first
        self._least_trials = least_trials

    def marks(self, number: int) -> tuple[int, ...]:
        """The first marks."""
        return tuple(self._first + index * self._every for index in range(100))

    def rungs(self, number: int) -> tuple[int, ...]:
        """None: most trials go on."""
        return ()

    def bracket(self, number: int) -> int:
        """All trials are compared with each other."""
        return 0

    def next_mark(self, trial: SweepTrial) -> int | None:
        """The next multiple."""
        return self._first + len(trial.values) * self._every if len(trial.values) < MOST_MARKS else None

    def judge(self, trial: SweepTrial, trials: Sequence[SweepTrial]) -> TrialVerdict:
        """Stop it if its best value so far is above the median of the others' averages."""
        mark = max(trial.values)
        others = [each for each in trials if each.number != trial.number and mark in each.values]
        if len(others) < self._least_trials:
            return GO_ON
        middle = median(fmean(value for step, value in each.values.items() if step <= mark) for each in others)
        best = min(trial.values.values())
        if best <= middle:
            return GO_ON
        return TrialVerdict(TrialTurn.STOP, f"{best:.4g} is worse than the median {middle:.4g} at step {mark}")

    def promoted(self, trials: Sequence[SweepTrial]) -> tuple[SweepTrial, str] | None:
        """None: no trial pauses."""
        return None
