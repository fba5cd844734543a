"""Runs a search without a manager: trials make one step at a time, in an order that a test chooses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rota.sweeps.file import SweepFile, sweep_file
from rota.sweeps.rules import rule_of
from rota.sweeps.samplers import sample
from rota.sweeps.search import Search
from rota.sweeps.trial import Point, SweepTrial, TrialState

JOB: dict[str, Any] = {"run": "python train.py", "checkpoint": {}}


def made(**fields: Any) -> SweepFile:
    """A sweep file with one parameter, and what the test is about."""
    values: dict[str, Any] = {"parameters": {"x": {"uniform": [0.0, 1.0]}}, "job": JOB, "trials": 8, "parallel": 4}
    return sweep_file({**values, **fields})


@dataclass
class World:
    """A sweep in a world in which trials do steps when they are told to."""

    file: SweepFile
    loss: Callable[[SweepTrial, int], float]
    steps: int
    search: Search = field(init=False)
    reports: dict[int, list[Point]] = field(default_factory=dict)
    is_over: bool = False
    why: str = ""
    has_failed: bool = False
    done_steps: int = 0

    def __post_init__(self) -> None:
        self.search = Search(self.file, rule_of(self.file))
        self.tell()

    def tell(self, number: int | None = None, end: TrialState | None = None) -> None:
        """Let the search decide, with what a trial has reported or how it ended."""
        reports = {} if number is None else {number: self.reports.get(number, [])}
        found = self.search.decide(reports, {} if number is None or end is None else {number: end})
        for trial in found.changed.values():
            self.search.put(trial)
        for _ in range(found.new):
            count = len(self.search.trials)
            self.search.put(
                SweepTrial(number=count, params=sample(self.file, count, self.search.trials), job_id=str(count))
            )
        self.is_over, self.why, self.has_failed = found.is_over, found.why, found.has_failed

    @property
    def active(self) -> list[SweepTrial]:
        """The trials that run."""
        return [trial for trial in self.search.trials if trial.state is TrialState.ACTIVE]

    def step(self, number: int) -> None:
        """Let a trial do one step, and end with its last."""
        points = self.reports.setdefault(number, [])
        trial = self.search.trials[number]
        points.append((len(points) + 1, self.loss(trial, len(points) + 1)))
        self.done_steps += 1
        self.tell(number, TrialState.COMPLETED if len(points) == self.steps else None)

    def run(self, choose: Callable[[list[SweepTrial]], int] = lambda active: active[0].number) -> World:
        """Run to the end; `choose` names the trial that does the next step."""
        while not self.is_over:
            assert self.active, "no trial runs, and the search is not over"
            self.step(choose(self.active))
        return self
