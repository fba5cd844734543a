"""Heuristic choosers of a server for each task: the least loaded, or the fullest with room."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rota.core.model.job import Job
from rota.core.state.job_record import LiveJob
from rota.mechanisms.learned.server_arrays import Chosen, Floats, ServerArrays

Score = Callable[[ServerArrays, int, Chosen], Floats]
"""Score of each node for a task of a role, given the choices for the job's other tasks."""


def in_turn(job: Job) -> list[int]:
    """Return the roles of a job's tasks in order of placement, cycling through the roles."""
    left = [role.count for role in job.roles]
    order = []
    while any(left):
        for role, count in enumerate(left):
            if count:
                order.append(role)
                left[role] -= 1
    return order


def one_by_one(arrays: ServerArrays, job: Job, score: Score) -> Chosen | None:
    """Place each task at the highest score; None if one does not fit. The server arrays are restored."""
    chosen: Chosen = {}
    try:
        for role in in_turn(job):
            fits = arrays.fits(job.roles[role])
            if not fits.any():
                return None
            node = int(np.argmax(np.where(fits, score(arrays, role, chosen), -np.inf)))
            chosen[role, node] = chosen.get((role, node), 0) + 1
            arrays.take(node, job.roles[role])
        return chosen
    finally:
        for (role, node), tasks in chosen.items():
            arrays.take(node, job.roles[role], -tasks)


def least_loaded(arrays: ServerArrays, role: int, chosen: Chosen) -> Floats:
    """Score nodes by their most used resource, lowest first."""
    scores: Floats = -arrays.used().max(axis=1)
    return scores


def fullest(arrays: ServerArrays, role: int, chosen: Chosen) -> Floats:
    """Score nodes by the sum of their free resources, lowest first."""
    scores: Floats = arrays.used().sum(axis=1)
    return scores


class Scored:
    """Chooser by a score."""

    kinds: tuple[str, ...] = ()

    def __init__(self, score: Score) -> None:
        self._score = score

    def observe(self, running: dict[int, LiveJob], now_s: float) -> None:
        """Ignore running jobs."""

    def choose(self, arrays: ServerArrays, live: LiveJob, now_s: float) -> Chosen | None:
        """Place each task at the highest score."""
        return one_by_one(arrays, live.job, self._score)
