"""The search as a calculation: what was reported and what ended goes in, what trials do next comes out.

The caller keeps the trials, makes the changes durable, and then carries them out. Asking again with the same input
gives the same answer, so that nothing is lost if the caller ends in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from rota.sweeps.file import SweepFile
from rota.sweeps.rules.rule import Rule, TrialTurn, last_resort
from rota.sweeps.trial import Point, SweepTrial, TrialState, thinned

KeepTrial: TypeAlias = Callable[[SweepTrial], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NextSteps:
    """What a search does next."""

    changed: dict[int, SweepTrial] = field(default_factory=dict)
    """Trials that changed, by number."""
    new: int = 0
    """How many new trials begin."""
    is_over: bool = False
    """Whether the search has ended; all trials are over then."""
    why: str = ""
    """Why it ended."""
    has_failed: bool = False
    """Whether it ended without what it was for: too many trials failed, or none has a result."""


@dataclass(frozen=True, slots=True)
class SearchEnd:
    """Why a search is over, and whether it has failed."""

    why: str
    has_failed: bool = False


class Search:
    """One sweep: its file, its rule and its trials in order."""

    def __init__(self, file: SweepFile, rule: Rule, trials: Sequence[SweepTrial] = ()) -> None:
        self.file = file
        self.rule = rule
        self.trials: list[SweepTrial] = list(trials)
        self._target = file.loss_of(file.objective.target)

    @property
    def best(self) -> SweepTrial | None:
        """The trial with the lowest loss; None before the first report."""
        found = min(self.trials, key=lambda trial: (trial.loss, trial.number), default=None)
        return found if found is not None and math.isfinite(found.loss) else None

    def put(self, trial: SweepTrial) -> None:
        """Keep a new or changed trial."""
        if trial.number == len(self.trials):
            self.trials.append(trial)
        else:
            self.trials[trial.number] = trial

    def decide(self, reports: Mapping[int, Sequence[Point]], ended: Mapping[int, TrialState]) -> NextSteps:
        """Return what follows from reports (all of a trial's so far) and from jobs that ended, by trial number.

        Nothing is kept: the caller puts the changed trials once they are durable.
        """
        work = Search(self.file, self.rule, self.trials)
        changed: dict[int, SweepTrial] = {}

        def keep(trial: SweepTrial) -> None:
            changed[trial.number] = trial
            work.put(trial)

        for number in sorted({*reports, *ended}):
            work.follow(number, reports.get(number, ()), ended.get(number), keep)
        if (end := work.end()) is not None:
            for trial in list(work.trials):
                if not trial.state.is_over:
                    keep(replace(trial, state=TrialState.STOPPED, why=trial.why or "the sweep has ended"))
            return NextSteps(changed=changed, is_over=True, why=end.why, has_failed=end.has_failed)
        return NextSteps(changed=changed, new=work.fill(keep))

    def follow(self, number: int, points: Sequence[Point], end: TrialState | None, keep: KeepTrial) -> None:
        """Take in what a trial reported and whether its job ended, and judge it at the marks that it passed."""
        trial = self.trials[number]
        if trial.state.is_over:
            return
        if points and points[-1][0] > trial.step:
            trial = replace(trial, curve=thinned(points, tuple(trial.values)))
        if end is not None:
            trial = replace(trial, state=end, why="")
        if trial is not self.trials[number]:
            keep(trial)
        while trial.state is TrialState.ACTIVE or (end is TrialState.COMPLETED):
            mark = self.rule.next_mark(trial)
            found = None if mark is None else next((point for point in points if point[0] >= mark), None)
            if mark is None or found is None:
                break
            trial = replace(trial, values={**trial.values, mark: found[1]})
            keep(trial)
            if trial.state is not TrialState.ACTIVE:
                continue
            verdict = self.rule.judge(trial, self.trials)
            if verdict.turn is not TrialTurn.CONTINUE:
                state = TrialState.PAUSED if verdict.turn is TrialTurn.PAUSE else TrialState.STOPPED
                trial = replace(trial, state=state, why=verdict.why)
                keep(trial)

    def end(self) -> SearchEnd | None:
        """How the search is over, if it is: the target is reached, too many trials failed, or all is done."""
        best = self.best
        if self._target is not None and best is not None and best.loss <= self._target:
            return SearchEnd(f"trial {best.number} reached the target")
        failed = sum(trial.state is TrialState.FAILED for trial in self.trials)
        if failed == self.file.trials:
            return SearchEnd(f"all {failed} trials failed" if failed > 1 else "its trial failed", has_failed=True)
        if failed >= self.file.max_failures:
            return SearchEnd(f"{failed} of {len(self.trials)} trials failed, and max_failures is {failed}", True)
        if len(self.trials) < self.file.trials or any(trial.state is TrialState.ACTIVE for trial in self.trials):
            return None
        if self.rule.promoted(self.trials) is not None or last_resort(self.trials) is not None:
            return None
        if best is not None:
            return SearchEnd("all trials are done" + (f"; {failed} failed" if failed else ""))
        metric = self.file.objective.metric if self.file.objective.log is None else "a value by the pattern of its log"
        if all(trial.state is TrialState.CANCELLED for trial in self.trials):
            return SearchEnd("all trials were cancelled", has_failed=True)
        what = f"a finite number for {metric}" if any(trial.curve for trial in self.trials) else metric
        return SearchEnd(f"all trials are done, and none has reported {what}", has_failed=True)

    def fill(self, keep: KeepTrial) -> int:
        """Give free places to promoted trials and to new ones; return how many are new."""
        places = self.file.parallel - sum(trial.state is TrialState.ACTIVE for trial in self.trials)
        left = self.file.trials - len(self.trials)
        new = min(max(places, 0), left) if self.rule.new_first else 0
        while places - new > 0:
            found = self.rule.promoted(self.trials)
            if found is None and left == new:
                found = last_resort(self.trials)
            if found is None:
                break
            trial, why = found
            keep(replace(trial, state=TrialState.ACTIVE, why=f"promoted: {why}"))
            places -= 1
        return min(max(places, 0), left)
