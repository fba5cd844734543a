"""Collect history: run workloads with placements as varied as those of people and of the usual schedulers."""

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
    """Places each job in one of several ways, by chance: packed, balanced, around one server, anywhere."""

    kinds: tuple[str, ...] = ()

    def __init__(self, seed: object) -> None:
        self._chance = random.Random(f"varied {seed}")

    def seen(self, running: dict[int, LiveJob], now_s: float) -> None:
        """What runs does not matter."""

    def choose(self, room: ServerArrays, live: LiveJob, now_s: float) -> Chosen | None:
        """In a way of its own for each job."""
        taste = np.array([self._chance.random() for _ in room.free])
        ways = (least_loaded, fullest, lambda room, role, chosen: taste, self._anywhere)
        return one_by_one(room, live.job, self._chance.choice(ways))

    def _anywhere(self, room: ServerArrays, role: int, chosen: Chosen) -> Floats:
        return np.array([self._chance.random() for _ in room.free])


def collect(
    shape: WorkloadShape, count: int, seed: int, kinds: tuple[str, ...], tell: Callable[[int], None] | None = None
) -> Experience:
    """What is seen in so many workloads."""
    moments = []
    for number in range(count):
        recorder = Recorder(Varied(f"{seed}/{number}"), kinds)
        play(workload(shape, f"collect {seed}/{number}"), shape.servers, recorder)
        moments += recorder.moments
        if tell is not None:
            tell(number + 1)
    return pack(moments, kinds, shape.servers)
