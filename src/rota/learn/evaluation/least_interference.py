"""Least interference first, with a linear model: a common baseline."""

from __future__ import annotations

import numpy as np

from rota.core.state.job_record import LiveJob
from rota.learn.experience import Experience
from rota.learn.network_inputs import Floats, on_servers
from rota.mechanisms.learned.heuristics import one_by_one
from rota.mechanisms.learned.server_arrays import SERVER, WORKER, Chosen, ServerArrays
from rota.perf.speed.network import is_server

RIDGE = 1.0


def fit_linear(history: Experience) -> Floats:
    """Fit, by kind, a constant and the speed lost to each task of each kind and role on the same server."""
    kinds = len(history.kinds)
    tasks, _ = on_servers(history.kind, kinds, history.workers, history.servers)
    width = 2 * (kinds + 1) + 1
    found = np.zeros((kinds + 1, width))
    here = history.workers + history.servers
    at, job, node = np.nonzero(here)
    seen = history.speed[at, job] > 0
    at, job, node = at[seen], job[seen], node[seen]
    own = history.kind[at, job]
    neighbours = tasks[at, node].copy()
    rows = np.arange(len(at))
    neighbours[rows, 0, own] -= history.workers[at, job, node]
    neighbours[rows, 1, own] -= history.servers[at, job, node]
    inputs = np.concatenate([np.ones((len(at), 1)), neighbours.reshape(len(at), -1)], axis=1)
    lost = 1.0 - history.speed[at, job]
    for kind in range(kinds + 1):
        mine = inputs[own == kind]
        if len(mine):
            normal = mine.T @ mine + RIDGE * np.eye(width)
            found[kind] = np.linalg.solve(normal, mine.T @ lost[own == kind])
    return found


class LeastInterference:
    """Chooser that places each task where the linear model predicts the least loss, its own and its neighbours'."""

    def __init__(self, kinds: tuple[str, ...], linear: Floats) -> None:
        self.kinds = kinds
        self._linear = linear

    def observe(self, running: dict[int, LiveJob], now_s: float) -> None:
        """Ignore running jobs; the server arrays contain all inputs."""

    def choose(self, arrays: ServerArrays, live: LiveJob, now_s: float) -> Chosen | None:
        """Place task by task; tasks already chosen count as present."""
        job, kind = live.job, arrays.kind(live.job)
        count = len(self.kinds) + 1

        def score(arrays: ServerArrays, role: int, chosen: Chosen) -> Floats:
            side = SERVER if is_server(job, role) else WORKER
            tasks = arrays.tasks.copy()
            for (other, node), placed in chosen.items():
                tasks[node, SERVER if is_server(job, other) else WORKER, kind] += placed
            own = tasks.reshape(len(tasks), -1) @ self._linear[kind, 1:]
            taken = tasks.sum(axis=1) @ self._linear[:, 1 + side * count + kind]
            return -(own + taken)

        return one_by_one(arrays, job, score)
