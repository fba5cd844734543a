"""Goodput of each job, learned while it runs, for rules that choose sizes by it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from rota.core.model.job import WHOLE
from rota.core.model.placement import tasks_of
from rota.core.state.job_record import LiveJob
from rota.mechanisms.elastic.rule import Candidate, DefaultSizeRule, SizePlan, SizeQuestion
from rota.perf.training.goodput_fit import Seen, fit_steps, goodputs
from rota.perf.training.reports import Reports
from rota.perf.training.speed_fit import fit_speed

Floats = NDArray[np.float64]


class _Learned:
    """Observations of one job, their fit, and the largest size it has run at."""

    __slots__ = ("curve", "most", "places", "rates")

    def __init__(self) -> None:
        self.places: dict[tuple[int, bool], None] = {}
        self.rates: dict[int, float] = {}
        self.most = 0
        self.curve: tuple[tuple[int, ...], int, Floats] | None = None


class GoodputObservations:
    """Observations by job, and the goodput by size fitted to them.

    Some jobs report step times and gradient noise; of the others only the speed is known.
    """

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self._jobs: dict[int, _Learned] = {}

    @property
    def memory(self) -> Any:
        """The observations of each job."""
        return [
            [seq, [list(place) for place in one.places], [list(pair) for pair in one.rates.items()], one.most]
            for seq, one in self._jobs.items()
        ]

    def recall(self, memory: Any) -> None:
        """Restore observations; models are fitted again on demand."""
        self._jobs = {}
        for seq, places, rates, most in memory:
            one = self._jobs[seq] = _Learned()
            one.places = {(devices, bool(several)): None for devices, several in places}
            one.rates = dict(rates)
            one.most = most

    def observe(self, live: LiveJob, nodes: int) -> None:
        """Record the observed speed of a job."""
        if live.job.elastic is None or live.placement is None:
            return
        one = self._jobs.setdefault(live.seq, _Learned())
        tasks = tasks_of(live.placement)
        one.most = max(one.most, tasks)
        place = (_devices(live, tasks), nodes > 1)
        if place not in one.places or one.rates.get(tasks) != live.rate:
            one.places[place] = None
            one.rates[tasks] = live.rate
            one.curve = None

    def forget(self, live: LiveJob) -> None:
        """Drop the observations of a job that has ended."""
        self._jobs.pop(live.seq, None)

    def seen(self, found: Candidate) -> tuple[int, float]:
        """Return a value that changes with every observation of a job."""
        one = self._jobs.get(found.seq)
        return (0, 0.0) if one is None else (len(one.places), math.fsum(one.rates.values()))

    def allowed(self, found: Candidate) -> tuple[int, ...]:
        """Return the sizes that may be tried: at most twice the largest so far, and the smallest at first."""
        if not found.is_elastic or not found.sizes:
            return found.sizes
        one = self._jobs.get(found.seq)
        most = max(2 * one.most if one is not None else 0, found.sizes[0])
        return tuple(tasks for tasks in found.sizes if tasks <= most)

    def goodput(self, found: Candidate, sizes: tuple[int, ...], node_devices: int) -> Floats:
        """Return the goodput at these sizes in a unit of the job's own; linear where nothing is known."""
        one = self._jobs.get(found.seq)
        if one is None or not found.is_elastic:
            return np.array(sizes, dtype=np.float64)
        if one.curve is None or one.curve[:2] != (sizes, node_devices):
            one.curve = (sizes, node_devices, self._fitted(found, one, sizes, node_devices))
        return one.curve[2]

    def _fitted(self, found: Candidate, one: _Learned, sizes: tuple[int, ...], node_devices: int) -> Floats:
        live = found.live
        batches = self._reports.batches(live.job)
        if batches is None:
            curve = fit_speed(one.rates)
            return np.array([curve.speed(tasks) for tasks in sizes])
        seen = [Seen(devices, far, self._reports.steps(live.job, devices, far)) for devices, far in one.places]
        devices = [_devices(live, tasks) for tasks in sizes]
        return goodputs(fit_steps(seen), batches, devices, node_devices)


class GoodputRule(DefaultSizeRule, ABC):
    """Rule that chooses sizes by goodput in every round, and keeps its plan while nothing has changed."""

    def __init__(self, round_s: float, reports: Reports) -> None:
        self.interval_s: float | None = round_s
        self._observations = GoodputObservations(reports)
        self._last: tuple[Any, SizePlan] | None = None

    @property
    def memory(self) -> Any:
        """The observations."""
        return self._observations.memory

    def recall(self, memory: Any) -> None:
        """Restore the observations."""
        self._observations.recall(memory)

    def observe(self, live: LiveJob, nodes: int, now_s: float) -> None:
        """Record one more observation."""
        self._observations.observe(live, nodes)

    def forget(self, live: LiveJob) -> None:
        """Drop the observations of a job that has ended."""
        self._observations.forget(live)

    def plan(self, question: SizeQuestion) -> SizePlan:
        """Return the last plan while nothing has changed, else choose again."""
        jobs = [found for found in question.candidates if found.sizes]
        key = (question.free_milli, [(found.seq, found.tasks, self._observations.seen(found)) for found in jobs])
        if self._last is None or self._last[0] != key:
            self._last = (key, self.choose(jobs, question, crc32(repr(key).encode())))
        return self._last[1]

    @abstractmethod
    def choose(self, jobs: list[Candidate], question: SizeQuestion, mark: int) -> SizePlan:
        """Choose sizes for these jobs; `mark` is a number derived from the question, to seed random choices."""


def _devices(live: LiveJob, tasks: int) -> int:
    return tasks * max(live.job.roles[0].device_milli // WHOLE, 1)
