"""Collection of experience: run workloads with placements as varied as those of users and common schedulers."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from rota.core.state.job_record import LiveJob
from rota.learn.evaluation.play import play
from rota.learn.experience import Experience, Recorder, pack
from rota.learn.workloads import WorkloadShape, workload
from rota.mechanisms.learned.heuristics import fullest, least_loaded, one_by_one
from rota.mechanisms.learned.server_arrays import Chosen, Floats, ServerArrays


class Varied:
    """Chooser that places each job by one of several random methods: packed, balanced, around one server, anywhere."""

    kinds: tuple[str, ...] = ()

    def __init__(self, seed: object) -> None:
        self._chance = random.Random(f"varied {seed}")

    def observe(self, running: dict[int, LiveJob], now_s: float) -> None:
        """Ignore running jobs."""

    def choose(self, arrays: ServerArrays, live: LiveJob, now_s: float) -> Chosen | None:
        """Place a job by a random method."""
        taste = np.array([self._chance.random() for _ in arrays.free])
        ways = (least_loaded, fullest, lambda arrays, role, chosen: taste, self._anywhere)
        return one_by_one(arrays, live.job, self._chance.choice(ways))

    def _anywhere(self, arrays: ServerArrays, role: int, chosen: Chosen) -> Floats:
        return np.array([self._chance.random() for _ in arrays.free])


def collect(
    shape: WorkloadShape, count: int, seed: int, kinds: tuple[str, ...], tell: Callable[[int], None] | None = None
) -> Experience:
    """Return the experience of that many workloads."""
    moments = []
    for number in range(count):
        recorder = Recorder(Varied(f"{seed}/{number}"), kinds)
        play(workload(shape, f"collect {seed}/{number}"), shape.servers, recorder)
        moments += recorder.moments
        if tell is not None:
            tell(number + 1)
    return pack(moments, kinds, shape.servers)
