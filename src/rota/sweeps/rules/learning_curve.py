"""HyperDrive's rule (POP): trials by the chance that their learning curve ends below the target.

Rasley et al., "HyperDrive: Exploring Hyperparameters with POP Scheduling", Middleware 2017. A trial with hardly any
chance is poor and ends. The promising ones keep their places; the others are opportunistic and are time-sliced on the
places that are left. How many places the promising deserve follows from their chances: the threshold p is the one at
which min(places * p, trials with a chance of at least p) is largest.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.sweeps.curve_fit import chance_below
from rota.sweeps.rules.median import MOST_MARKS
from rota.sweeps.rules.rule import GO_ON, TrialTurn, TrialVerdict
from rota.sweeps.trial import SweepTrial, TrialState

LEAST_POINTS = 4
"""Points of a curve below which nothing is predicted of it."""


class LearningCurve:
    """Judges every few steps by the chance to end below the target, or below the best trial so far."""

    new_first = True

    def __init__(
        self,
        *,
        every: int,
        first: int,
        max_steps: int,
        parallel: int,
        least_chance: float,
        target: float | None,
        pauses: bool,
    ) -> None:
        self._every = every
        self._first = first
        self._max_steps = max_steps
        self._parallel = parallel
        self._least_chance = least_chance
        self._target = target
        self._pauses = pauses

    def marks(self, number: int) -> tuple[int, ...]:
        """Every few steps up to the last, the first of them."""
        return tuple(range(self._first, self._max_steps, self._every)[:MOST_MARKS])

    def rungs(self, number: int) -> tuple[int, ...]:
        """None: most trials go on."""
        return ()

    def bracket(self, number: int) -> int:
        """All trials are compared with each other."""
        return 0

    def next_mark(self, trial: SweepTrial) -> int | None:
        """The next multiple below the last step."""
        step = self._first + len(trial.values) * self._every
        return step if step < self._max_steps else None

    def _chance(self, trial: SweepTrial, target: float) -> float | None:
        """The chance of a trial to end at or below a target; None while its curve is too short."""
        if len(trial.values) < LEAST_POINTS:
            return None
        return chance_below(list(trial.values), list(trial.values.values()), self._max_steps, target)

    def _target_for(self, trials: Sequence[SweepTrial]) -> float:
        best = min(trial.loss for trial in trials)
        return best if self._target is None else min(best, self._target) if best > self._target else self._target

    def judge(self, trial: SweepTrial, trials: Sequence[SweepTrial]) -> TrialVerdict:
        """Stop a poor trial, let a promising one go on, and an opportunistic one pause while others wait."""
        target = self._target_for(trials)
        chance = self._chance(trial, target)
        if chance is None or trial.loss <= target:
            return GO_ON
        if chance < self._least_chance:
            return TrialVerdict(TrialTurn.STOP, f"chance {chance:.2g} to end below {target:.4g}")
        if not self._pauses or not any(each.state is TrialState.PAUSED for each in trials):
            return GO_ON
        running = [each for each in trials if each.state in (TrialState.ACTIVE, TrialState.PAUSED)]
        chances = [found for each in running if (found := self._chance(each, target)) is not None]
        if chance >= promising_from(chances, self._parallel):
            return GO_ON
        return TrialVerdict(TrialTurn.PAUSE, f"chance {chance:.2g} to end below {target:.4g}; others take their turn")

    def promoted(self, trials: Sequence[SweepTrial]) -> tuple[SweepTrial, str] | None:
        """The paused trial with the fewest steps: the opportunistic ones are time-sliced."""
        paused = [trial for trial in trials if trial.state is TrialState.PAUSED]
        if not paused:
            return None
        return min(paused, key=lambda trial: (len(trial.values), trial.number)), "its turn"


def promising_from(chances: Sequence[float], places: int) -> float:
    """The chance from which on trials are promising; above all chances if none deserves a place."""

    def deserved(p: float) -> float:
        return min(places * p, sum(1 for each in chances if each >= p))

    return max(sorted(set(chances)), key=deserved, default=1.0)
