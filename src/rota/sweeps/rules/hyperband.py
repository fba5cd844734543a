"""Hyperband: brackets of successive halving that trade the number of trials against the steps of each.

Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization", JMLR 2018. Bracket s begins with
n = ceil((s_max + 1) / (s + 1) * factor^s) trials at most * factor^-s steps; of each rung the best 1/factor go on, once
all of the rung have reported or ended. When all brackets are full, a new set of them begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from rota.sweeps.rules.rule import GO_ON, TrialTurn, TrialVerdict, following
from rota.sweeps.trial import SweepTrial, TrialState


@dataclass(frozen=True, slots=True)
class Bracket:
    """Trials that are compared with each other: the numbers from `first` up to `end`, and their rungs."""

    first: int
    end: int
    rungs: tuple[int, ...]


class Hyperband:
    """Synchronous Hyperband over trials that pause between rungs."""

    new_first = False

    def __init__(self, *, least: int, most: int, factor: int, trials: int) -> None:
        self._factor = factor
        self._brackets: list[Bracket] = []
        top = 0
        while least * factor ** (top + 1) <= most:
            top += 1
        first = 0
        for number in count():
            s = top - number % (top + 1)
            size = -(-(top + 1) * factor**s // (s + 1))
            rungs = tuple(max(1, most // factor ** (s - i)) for i in range(s))
            self._brackets.append(Bracket(first, min(first + size, trials), rungs))
            first += size
            if first >= trials:
                break

    def _bracket(self, number: int) -> Bracket:
        return next(each for each in self._brackets if number < each.end or each is self._brackets[-1])

    def marks(self, number: int) -> tuple[int, ...]:
        """The rungs of the trial's bracket."""
        return self._bracket(number).rungs

    def rungs(self, number: int) -> tuple[int, ...]:
        """The rungs of the trial's bracket."""
        return self.marks(number)

    def bracket(self, number: int) -> int:
        """The first trial of its bracket."""
        return self._bracket(number).first

    def next_mark(self, trial: SweepTrial) -> int | None:
        """The next rung of its bracket."""
        return following(self.marks(trial.number), trial)

    def _going_on(self, bracket: Bracket, trials: Sequence[SweepTrial], rung: int) -> list[SweepTrial]:
        """The trials of a bracket that go on from a rung, best first; none before all others have reported or ended."""
        members = {each.number: each for each in trials if bracket.first <= each.number < bracket.end}
        if len(members) < bracket.end - bracket.first:
            return []
        contenders = list(members.values())
        for index in range(rung + 1):
            mark = bracket.rungs[index]
            if any(mark not in each.values and not each.state.is_over for each in contenders):
                return []
            there = [each for each in contenders if mark in each.values and each.state is not TrialState.FAILED]
            order = sorted(there, key=lambda each: (each.values[mark], each.number))
            size = (bracket.end - bracket.first) // self._factor ** (index + 1)
            contenders = order[: max(1, size)]
        return contenders

    def judge(self, trial: SweepTrial, trials: Sequence[SweepTrial]) -> TrialVerdict:
        """Pause until all of the rung have reported, unless it was the last of them and goes on."""
        rung = len(trial.values) - 1
        if trial.number in [each.number for each in self._going_on(self._bracket(trial.number), trials, rung)]:
            return GO_ON
        return TrialVerdict(TrialTurn.PAUSE, f"waits for its bracket at step {self.marks(trial.number)[rung]}")

    def promoted(self, trials: Sequence[SweepTrial]) -> tuple[SweepTrial, str] | None:
        """A paused trial that goes on from a complete rung, the highest first."""
        for bracket in self._brackets:
            for rung in range(len(bracket.rungs) - 1, -1, -1):
                for place, trial in enumerate(self._going_on(bracket, trials, rung), start=1):
                    if trial.state is TrialState.PAUSED and len(trial.values) == rung + 1:
                        return trial, f"{place} of its bracket at step {bracket.rungs[rung]}"
        return None
