"""Placement of one job in each of many clusters at once, in several ways each: inputs and actions of the actor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rota.learn.fast_cluster import FREE, Arrival
from rota.mechanisms.learned.actor import TASKS, WORK_S, pair_inputs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Singles = NDArray[np.float32]


@dataclass(slots=True, eq=False)
class Situation:
    """A job to place in each of several clusters, and the tasks placed so far."""

    kind: Ints
    """Number of the kind in the network."""
    kinds: int
    counts: Floats
    """Tasks by role."""
    needs: Floats
    """Devices and cores of a task, by role."""
    work_s: Floats
    servers: Singles
    """Inputs about each server."""
    open: Bools
    free: Floats
    left: Floats
    mine: Floats
    """Tasks placed, by server and role."""
    stuck: Bools

    @classmethod
    def of(
        cls, arrivals: list[Arrival], kind: Ints, kinds: int, servers: Singles, is_open: Bools, free: Floats
    ) -> Situation:
        """Begin with no task placed."""
        counts = np.array([arrival.counts for arrival in arrivals], np.float64)
        return cls(
            kind,
            kinds,
            counts,
            np.stack([arrival.needs for arrival in arrivals]),
            np.array([arrival.work_s for arrival in arrivals]),
            servers,
            is_open,
            free.copy(),
            counts.copy(),
            np.zeros((*is_open.shape, 2)),
            np.zeros(len(arrivals), np.bool_),
        )

    def repeated(self, times: int) -> Situation:
        """Return the same decisions several times, to be made in different ways."""

        def again(value: Any) -> Any:
            return np.repeat(value, times, axis=0) if isinstance(value, np.ndarray) else value

        return Situation(**{part.name: again(getattr(self, part.name)) for part in fields(self)})

    @property
    def unfinished(self) -> Bools:
        """Return which decisions still have tasks to place."""
        return (self.left.sum(1) > 0) & ~self.stuck

    def mask(self) -> Bools:
        """Return the allowed actions: a task of the role is left, and the server has room."""
        arrays = (self.free[:, None] >= self.needs[:, :, None] - 1e-9).all(-1)
        return arrays & self.open[:, None] & (self.left > 0)[..., None]

    def job_seen(self) -> Singles:
        """Return the inputs about each job."""
        nodes = (self.mine.sum(2) > 0).sum(1)
        own = np.stack(
            [
                self.counts[:, 0] / TASKS,
                self.counts[:, 1] / TASKS,
                self.counts[:, 1] > 0,
                self.left[:, 0] / TASKS,
                self.left[:, 1] / TASKS,
                nodes / TASKS,
                np.log(np.maximum(self.work_s, 1.0) / WORK_S),
                self.counts.sum(1) > 1,
            ],
            axis=1,
        )
        return np.concatenate([np.eye(self.kinds + 1)[self.kind], own], axis=1).astype(np.float32)

    def free_seen(self) -> Singles:
        """Return the free fraction of devices and cores of each server."""
        return (self.free / FREE).clip(0.0, 1.0).astype(np.float32)

    def pairs_seen(self) -> Singles:
        """Return the inputs about each job's tasks on each server, by role."""
        whole = (self.left[..., None] * self.needs).sum(1)
        takes_all = (self.free >= whole[:, None] - 1e-9).all(-1)
        sides = []
        for side in range(2):
            need = self.needs[:, None, side]
            with np.errstate(divide="ignore", invalid="ignore"):
                room_for = np.where(need > 0, np.floor(self.free / need + 1e-9), np.inf).min(-1)
            sides.append(pair_inputs(self.mine, takes_all, room_for, self.left[:, None, side]))
        return np.stack(sides, axis=1)

    def take(self, actions: Ints, where: Bools) -> None:
        """Place one task in each of these decisions by its action: role x servers + server."""
        at = np.flatnonzero(where)
        side, node = np.divmod(actions[at], self.open.shape[1])
        self.mine[at, node, side] += 1
        self.left[at, side] -= 1
        self.free[at, node] -= self.needs[at, side]


Scores = Callable[[Situation], Floats]


def balanced(situation: Situation) -> Floats:
    """Return the scores of (role, server) by load balancing."""
    return _by_use(situation, -(1.0 - situation.free / FREE).max(-1))


def packed(situation: Situation) -> Floats:
    """Return the scores of (role, server) by packing."""
    return _by_use(situation, (1.0 - situation.free / FREE).sum(-1))


def _by_use(situation: Situation, scores: Floats) -> Floats:
    """Alternate between the roles."""
    done = situation.counts - situation.left
    later = done[:, 0] > done[:, 1]
    first = np.where(later, -1e3, 1e3)
    return np.stack([scores + first[:, None], scores - first[:, None]], axis=1)
