"""What starts, stops, resumes and restarts cost on this machine, learned from the steps of the journal."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rota.core.model.job import JobId
from rota.forecast.chance import uniforms
from rota.forecast.past import PastRun, ended
from rota.perf.speed.model import Costs
from rota.traces.workload import OrderDelays

LATEST = 200
"""How many of the latest answers of a kind are used."""
FEWEST_RESTARTED = 3
"""Restarted jobs from which on the cost of a restart is known."""
DRAWN = 4
"""How many starts and stops of a job are drawn each; later ones take as long as these on average."""
MEDIAN_ERROR = 1.86
"""The standard error of a median, relative to the median distance from it and the root of the number of samples."""
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
    """From the order to move a job until it runs again."""
    resize_s: float | None = None
    """From the order to resize a job until it runs again."""
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
            resize_s=self.resize_s,
            checkpoint_interval_s=math.inf,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderTimes:
    """How long starts and stops took on this machine, shortest first; each forward run draws others."""

    starts_s: tuple[float, ...] = ()
    stops_s: tuple[float, ...] = ()
    known: Mapping[JobId, OrderDelays] = field(default_factory=dict)
    """What is known of single jobs, in hindsight."""

    def draw(self, run: int, job_id: JobId, over_s: float = 0.0) -> OrderDelays:
        """Return how long the next starts and stops of a job take; the first longer than it has taken already."""
        known = self.known.get(job_id)
        if known is not None:
            return known
        places = [uniforms(run, f"{job_id} order {number}") for number in range(DRAWN)]
        return OrderDelays(
            starts_s=tuple(_at(self.starts_s, place, 0.0 if at else over_s) for at, (place, _) in enumerate(places)),
            stops_s=tuple(_at(self.stops_s, place, 0.0 if at else over_s) for at, (_, place) in enumerate(places)),
        )


def _at(ordered: Sequence[float], place: float, over_s: float) -> float:
    """Return a number at a place between 0 and 1 among those seen that are larger; from now on as usual, if none is."""
    beyond = ordered[bisect_right(ordered, over_s) :] if over_s else ordered
    if not beyond:
        return over_s + (median(ordered) if ordered else 0.0)
    at = place * (len(beyond) - 1)
    below = int(at)
    above = min(below + 1, len(beyond) - 1)
    return beyond[below] + (beyond[above] - beyond[below]) * (at - below)


class CostLearner:
    """Takes the steps of a journal in order, as JSON values, and knows the costs so far."""

    def __init__(self) -> None:
        self._ordered: dict[tuple[str, str], float] = {}
        self._stopped: dict[str, float] = {}
        """The work that jobs had saved when they were first stopped."""
        self._suspends: set[str] = set()
        """Jobs that are suspended in place of a stop, each at a price of its own."""
        self._seen: dict[str, deque[float]] = {order: deque(maxlen=LATEST) for order in _ANSWERS.values()}

    def take(self, step: Mapping[str, Any]) -> None:
        """Take one step."""
        now_s = float(step["t"])
        for event in step["in"]:
            if event["event"] == "stopped" and event.get("work"):
                self._stopped.setdefault(event["job_id"], float(event["work"]))
            order = _ANSWERS.get(event["event"])
            if order is not None:
                ordered_s = self._ordered.pop((order, event["job_id"]), None)
                is_own = order in ("start", "stop") and event["job_id"] in self._suspends
                if ordered_s is not None and not is_own:
                    self._seen[order].append(now_s - ordered_s)
            elif event["event"] == "checkpoint-changed":
                is_suspended = event["job"].get("checkpoint", {}).get("suspend_s") is not None
                (self._suspends.add if is_suspended else self._suspends.discard)(event["job_id"])
            elif event["event"] in ("ended", "interrupted", "start-failed"):
                for kind in self._seen:
                    self._ordered.pop((kind, event["job_id"]), None)
        for decision in step.get("out", ()):
            if decision["order"] in self._seen:
                self._ordered[decision["order"], decision["job_id"]] = now_s

    def order_times(self) -> OrderTimes | None:
        """Return how long the latest starts and stops took; None as long as no start is known."""
        if not self._seen["start"]:
            return None
        return OrderTimes(starts_s=tuple(sorted(self._seen["start"])), stops_s=tuple(sorted(self._seen["stop"])))

    def stops_under_way(self) -> dict[JobId, float]:
        """Return when each stop that is not answered yet was ordered."""
        return {JobId(job_id): at_s for (order, job_id), at_s in self._ordered.items() if order == "stop"}

    def learned(self, past: Sequence[PastRun] = ()) -> LearnedCosts:
        """Return what is known; the cost of a restart follows from past runs."""
        return LearnedCosts(
            startup_s=_median(self._seen["start"]),
            stop_s=_median(self._seen["stop"]),
            resume_s=_median(self._seen["resume"]),
            move_s=_median(self._seen["move"]),
            resize_s=_median(self._seen["resize"]),
            restart_s=restart_cost_s(past, self._stopped),
        )


def restart_cost_s(past: Sequence[PastRun], stopped: Mapping[str, float] | None = None) -> float | None:
    """Return by how much a restart lengthens the runs of jobs that save: against those of the same name without one.

    Long jobs are stopped more often than short ones. A job that was first stopped after so much work (`stopped`, by
    job) is therefore compared with runs that came as far. Only what exceeds the uncertainty of the median counts.
    """
    groups: dict[tuple[str, str, int], list[PastRun]] = {}
    for run in ended(past):
        groups.setdefault(_alike(run), []).append(run)
    added: list[float] = []
    for runs in groups.values():
        first_stop = {run.job.id: (stopped or {}).get(run.job.id, 0.0) for run in runs if run.restarts}
        usual = _Survival([(first_stop.get(run.job.id, run.work_s or 0.0), not run.restarts) for run in runs])
        for run in runs:
            expected_s = usual.median_beyond(first_stop[run.job.id]) if run.restarts and _saves(run) else None
            if expected_s is not None:
                added.append(((run.work_s or 0.0) - expected_s) / run.restarts)
    if len(added) < FEWEST_RESTARTED:
        return None
    middle_s = median(added)
    apart_s = median(abs(each - middle_s) for each in added)
    return max(middle_s - MEDIAN_ERROR * apart_s / math.sqrt(len(added)), 0.0)


class _Survival:
    """How many runs last how long, by the product-limit estimate: of a stopped run only a lower bound is known."""

    def __init__(self, lengths: Sequence[tuple[float, bool]]) -> None:
        """Take lengths, each with whether it is complete."""
        self._steps: list[tuple[float, float]] = []
        left, at_risk = 1.0, len(lengths)
        for length_s, is_complete in sorted(lengths):
            if is_complete:
                left *= 1.0 - 1.0 / at_risk
                self._steps.append((length_s, left))
            at_risk -= 1

    def median_beyond(self, least_s: float) -> float | None:
        """Return the median length of runs that last longer than this; None where too few are known."""
        left = min((share for length_s, share in self._steps if length_s <= least_s), default=1.0)
        return next((length_s for length_s, share in self._steps if share <= left / 2.0 and length_s > least_s), None)


def _saves(run: PastRun) -> bool:
    return run.job.checkpoint is not None and run.job.checkpoint.interval_s < math.inf


def _alike(run: PastRun) -> tuple[str, str, int]:
    return run.job.user, run.job.name, run.job.gpu_milli


def _median(seen: Sequence[float] | deque[float]) -> float | None:
    return median(seen) if seen else None
