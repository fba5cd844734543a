"""The protocol of a rule of early stopping, and the rule that never stops anything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from rota.sweeps.trial import SweepTrial, TrialState


class TrialTurn(Enum):
    """What a trial does after a mark."""

    CONTINUE = "continue"
    PAUSE = "pause"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class TrialVerdict:
    """The decision about a trial at a mark, and why."""

    turn: TrialTurn
    why: str = ""


GO_ON = TrialVerdict(TrialTurn.CONTINUE)


class Rule(Protocol):
    """Judges trials at marks: steps at which their values are compared. All values are losses: less is better."""

    new_first: bool
    """Whether a free place goes to a new trial before one that is paused."""

    def marks(self, number: int) -> tuple[int, ...]:
        """The first marks of a trial, as far as they are known; its reports there are always kept."""

    def rungs(self, number: int) -> tuple[int, ...]:
        """The marks at which most trials pause: there a trial leaves its devices if no manager can decide."""

    def bracket(self, number: int) -> int:
        """The group of trials with which a trial is compared, by its number."""

    def next_mark(self, trial: SweepTrial) -> int | None:
        """The next step at which a trial is judged; None if it is judged no more."""

    def judge(self, trial: SweepTrial, trials: Sequence[SweepTrial]) -> TrialVerdict:
        """Decide about a trial that has just reported its value at a mark; `trials` has it with that value."""

    def promoted(self, trials: Sequence[SweepTrial]) -> tuple[SweepTrial, str] | None:
        """The paused trial that goes on next, and why; None if none does now."""


class Never:
    """Every trial runs to its end."""

    new_first = True

    def marks(self, number: int) -> tuple[int, ...]:
        """None."""
        return ()

    def rungs(self, number: int) -> tuple[int, ...]:
        """None."""
        return ()

    def bracket(self, number: int) -> int:
        """All trials are compared with each other."""
        return 0

    def next_mark(self, trial: SweepTrial) -> int | None:
        """None."""
        return None

    def judge(self, trial: SweepTrial, trials: Sequence[SweepTrial]) -> TrialVerdict:
        """Go on."""
        return GO_ON

    def promoted(self, trials: Sequence[SweepTrial]) -> tuple[SweepTrial, str] | None:
        """None: no trial pauses."""
        return None


def rungs_of(least: int, most: int, factor: int) -> tuple[int, ...]:
    """The steps least, least*factor, ... below `most`."""
    found = []
    step = least
    while step < most:
        found.append(step)
        step *= factor
    return tuple(found)


def following(marks: tuple[int, ...], trial: SweepTrial) -> int | None:
    """The first mark that a trial has no value for."""
    passed = len(trial.values)
    return marks[passed] if passed < len(marks) else None


def ranked(trials: Sequence[SweepTrial], mark: int) -> list[SweepTrial]:
    """The trials with a value at a mark, best first; equals in order of their numbers. Failed ones do not count."""
    there = [trial for trial in trials if mark in trial.values and trial.state is not TrialState.FAILED]
    return sorted(there, key=lambda trial: (trial.values[mark], trial.number))


def last_resort(trials: Sequence[SweepTrial]) -> tuple[SweepTrial, str] | None:
    """The best paused trial that came farthest, unless one as good has run to its end: a sweep ends with a whole trial.

    Trials are compared at their last mark, as they may have run on past it before they paused, or to their end: nothing
    pauses them while no manager is up. One that ran to its end so does not keep a better one from it.
    """
    if any(trial.state is TrialState.ACTIVE for trial in trials):
        return None
    paused = [trial for trial in trials if trial.state is TrialState.PAUSED]
    if not paused:
        return None
    mark = max(max(trial.values, default=0) for trial in paused)
    best = min(
        (trial for trial in paused if max(trial.values, default=0) == mark),
        key=lambda trial: (trial.values.get(mark, trial.loss), trial.number),
    )
    whole = [trial for trial in trials if trial.state is TrialState.COMPLETED]
    if any(trial.values.get(mark, -math.inf) <= best.values.get(mark, best.loss) for trial in whole):
        return None
    return best, "best of those that came farthest"
