"""The usual ways to choose a server for each task: the least loaded, or the fullest that has room."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rota.core.model.job import Job
from rota.core.state.job_record import LiveJob
from rota.mechanisms.learned.server_arrays import Chosen, Floats, ServerArrays

Score = Callable[[ServerArrays, int, Chosen], Floats]
"""What speaks for each node as the place of a task of a role, given where the job's other tasks went."""


def in_turn(job: Job) -> list[int]:
    """The roles of a job's tasks in the order in which they are placed: one of each role in turn."""
    left = [role.count for role in job.roles]
    order = []
    while any(left):
        for role, count in enumerate(left):
            if count:
                order.append(role)
                left[role] -= 1
    return order


def one_by_one(room: ServerArrays, job: Job, score: Score) -> Chosen | None:
    """Each task in its turn where most speaks for it; None if one finds no room. The room is left as it was."""
    chosen: Chosen = {}
    try:
        for role in in_turn(job):
            fits = room.fits(job.roles[role])
            if not fits.any():
                return None
            node = int(np.argmax(np.where(fits, score(room, role, chosen), -np.inf)))
            chosen[role, node] = chosen.get((role, node), 0) + 1
            room.take(node, job.roles[role])
        return chosen
    finally:
        for (role, node), tasks in chosen.items():
            room.take(node, job.roles[role], -tasks)


def least_loaded(room: ServerArrays, role: int, chosen: Chosen) -> Floats:
    """By the resource of which most is in use."""
    scores: Floats = -room.used().max(axis=1)
    return scores


def fullest(room: ServerArrays, role: int, chosen: Chosen) -> Floats:
    """By what is left of all resources together."""
    scores: Floats = room.used().sum(axis=1)
    return scores


class Scored:
    """Chooses by a score."""

    kinds: tuple[str, ...] = ()

    def __init__(self, score: Score) -> None:
        self._score = score

    def seen(self, running: dict[int, LiveJob], now_s: float) -> None:
        """What runs does not matter beyond what it uses."""

    def choose(self, room: ServerArrays, live: LiveJob, now_s: float) -> Chosen | None:
        """Each task where most speaks for it."""
        return one_by_one(room, live.job, self._score)
