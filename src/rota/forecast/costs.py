"""What starts, stops, resumes and restarts cost on this machine, learned from the steps of the journal."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rota.forecast.past import PastRun, ended
from rota.perf.speed.model import Costs

LATEST = 200
"""How many of the latest answers of a kind are used."""
FEWEST_RESTARTED = 3
"""Restarted jobs from which on the cost of a restart is known."""
_ANSWERS = {"started": "start", "stopped": "stop", "resumed": "resume", "resized": "resize", "moved": "move"}
"""The order that each event answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedCosts:
    """Medians in seconds; None where nothing was seen."""

    startup_s: float | None = None
    """From the order to start a job until it is reported as started."""
    stop_s: float | None = None
    """From the order to stop a job until it has stopped, saving included."""
    resume_s: float | None = None
    move_s: float | None = None
    """From the order to resize or move a job until it runs again."""
    restart_s: float | None = None
    """Run time that a restart adds to a job that saves its progress: it loads, and repeats what was not saved."""

    def costs(self, *, in_rounds: bool = False) -> Costs:
        """Return the costs of a simulation of this machine: a job that does not say how it saves starts over.

        Policies that plan in rounds leave no time for a stop; there it is counted with the restart.
        """
        stop_s, restart_s = self.stop_s or 0.0, self.restart_s or 0.0
        return Costs(
            load_s=self.startup_s or 0.0,
            checkpoint_s=0.0 if in_rounds else stop_s,
            restart_s=restart_s + (stop_s if in_rounds else 0.0),
            resume_s=self.resume_s or 0.0,
            move_s=self.move_s,
            checkpoint_interval_s=math.inf,
        )


class CostLearner:
    """Takes the steps of a journal in order, as JSON values, and knows the costs so far."""

    def __init__(self) -> None:
        self._ordered: dict[tuple[str, str], float] = {}
        self._seen: dict[str, deque[float]] = {order: deque(maxlen=LATEST) for order in _ANSWERS.values()}

    def take(self, step: Mapping[str, Any]) -> None:
        """Take one step."""
        now_s = float(step["t"])
        for event in step["in"]:
            order = _ANSWERS.get(event["event"])
            if order is not None:
                ordered_s = self._ordered.pop((order, event["job_id"]), None)
                if ordered_s is not None:
                    self._seen[order].append(now_s - ordered_s)
            elif event["event"] in ("ended", "interrupted", "start-failed"):
                for kind in self._seen:
                    self._ordered.pop((kind, event["job_id"]), None)
        for decision in step.get("out", ()):
            if decision["order"] in self._seen:
                self._ordered[decision["order"], decision["job_id"]] = now_s

    def learned(self, past: Sequence[PastRun] = ()) -> LearnedCosts:
        """Return what is known; the cost of a restart follows from past runs."""
        moves = [*self._seen["resize"], *self._seen["move"]]
        return LearnedCosts(
            startup_s=_median(self._seen["start"]),
            stop_s=_median(self._seen["stop"]),
            resume_s=_median(self._seen["resume"]),
            move_s=_median(moves),
            restart_s=restart_cost_s(past),
        )


def restart_cost_s(past: Sequence[PastRun]) -> float | None:
    """Return by how much a restart lengthens the runs of jobs that save: against those of the same name without one."""
    undisturbed: dict[tuple[str, str, int], list[float]] = {}
    for run in ended(past):
        if not run.restarts:
            undisturbed.setdefault(_alike(run), []).append(run.work_s or 0.0)
    added = [
        ((run.work_s or 0.0) - median(undisturbed[_alike(run)])) / run.restarts
        for run in ended(past)
        if run.restarts and _saves(run) and _alike(run) in undisturbed
    ]
    return max(median(added), 0.0) if len(added) >= FEWEST_RESTARTED else None


def _saves(run: PastRun) -> bool:
    return run.job.checkpoint is not None and run.job.checkpoint.interval_s < math.inf


def _alike(run: PastRun) -> tuple[str, str, int]:
    return run.job.user, run.job.name, run.job.gpu_milli


def _median(seen: Sequence[float] | deque[float]) -> float | None:
    return median(seen) if seen else None
