"""Actor network that chooses a server for each task, evaluated by NumPy alone.

Its inputs do not grow with the cluster: every server goes through the same encoder, and so does every job; the state of
the cluster is pooled. So the same weights serve six servers or a thousand. Each (role, server) gets one score for the
next job; servers without room are masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import RotaError
from rota.core.model.job import Job
from rota.core.state.job_record import LiveJob
from rota.mechanisms.learned.server_arrays import SERVER, WORKER, Chosen, ServerArrays
from rota.mechanisms.network.layout import needs_of
from rota.perf.speed.network import is_server

Array = NDArray[np.float32]
ROLES = 2
TASKS = 4.0
"""Divisor of task counts, so that inputs are of the order of 1."""
WORK_S = 1200.0
OWN = 8
"""Inputs about a job other than its kind."""
PAIR = 5
"""Inputs about a job's tasks on one server."""
FREE = 2
MOST_WEIGHT = 1000.0
SHORTLIST = 64
"""On larger clusters, later tasks of a job are placed among this many best servers of its first task, if possible."""


def server_inputs(kinds: int) -> int:
    """Return the number of inputs of each server, without its free resources."""
    return 3 * (kinds + 1)


def servers_seen(tasks: NDArray[np.float64], talking: NDArray[np.float64]) -> Array:
    """Return the inputs of each server: tasks by role and kind, and those of jobs that span servers."""
    flat = tasks.reshape(*tasks.shape[:-2], -1)
    return (np.concatenate([flat, talking], axis=-1) / TASKS).astype(np.float32)


def job_seen(kind: int, kinds: int, counts: tuple[int, int], left: tuple[int, int], nodes: int, work_s: float) -> Array:
    """Return the inputs of a job: kind, tasks by role, tasks left, servers so far, length."""
    seen = np.zeros(kinds + 1 + OWN, np.float32)
    seen[kind] = 1.0
    length = np.log(max(work_s, 1.0) / WORK_S) if work_s > 0 else 0.0
    seen[kinds + 1 :] = (
        counts[0] / TASKS,
        counts[1] / TASKS,
        float(counts[1] > 0),
        left[0] / TASKS,
        left[1] / TASKS,
        nodes / TASKS,
        length,
        float(sum(counts) > 1),
    )
    return seen


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Weights by name, and the kinds of jobs they distinguish."""

    kinds: tuple[str, ...]
    of: Mapping[str, Array]

    def encoded(self, servers: Array) -> tuple[Array, Array]:
        """Return each server as encoded for scores, and as encoded for the pool."""
        by_server: Array = servers @ self.of["server.weight"].T
        pool: Array = np.maximum(servers @ self.of["pool.weight"].T + self.of["pool.bias"], 0.0)
        return by_server, pool

    def scores(self, by_server: Array, job: Array, free: Array, pairs: Array, pooled: Array) -> Array:
        """Return the score of each server for a task of one role."""
        of = self.of
        common = of["job.weight"] @ job + of["cluster.weight"] @ pooled + of["job.bias"]
        hidden = by_server + common + np.concatenate([free, pairs], axis=1) @ of["pair.weight"].T
        np.maximum(hidden, 0.0, out=hidden)
        second = hidden @ of["second.weight"].T + of["second.bias"]
        np.maximum(second, 0.0, out=second)
        scored: Array = second @ of["score.weight"][0]
        return scored


def shapes(kinds: int, hidden: int, narrow: int, pool: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight."""
    servers = server_inputs(kinds)
    return {
        "server.weight": (hidden, servers),
        "job.weight": (hidden, kinds + 1 + OWN + ROLES),
        "job.bias": (hidden,),
        "cluster.weight": (hidden, 2 * pool),
        "pair.weight": (hidden, FREE + PAIR),
        "pool.weight": (pool, servers),
        "pool.bias": (pool,),
        "second.weight": (narrow, hidden),
        "second.bias": (narrow,),
        "score.weight": (1, narrow),
    }


def are_sound(weights: NDArray[Any]) -> bool:
    """Return whether weights are finite and within the range of trained ones, so that no score overflows."""
    return weights.dtype.kind in "fiu" and bool((np.abs(weights.astype(np.float64)) <= MOST_WEIGHT).all())


def checked(kinds: tuple[str, ...], of: Mapping[str, NDArray[np.generic]]) -> Network:
    """Return the network of these weights; refuse weights of wrong shape or value with the reason."""
    try:
        hidden, narrow, pool = (of[f"{name}.bias"].shape[0] for name in ("job", "second", "pool"))
    except (KeyError, IndexError) as err:
        raise RotaError(f"not the weights of a placement network: {err} is missing or empty") from None
    if not min(hidden, narrow, pool):
        raise RotaError("the weights are empty")
    wanted = shapes(len(kinds), hidden, narrow, pool)
    for name, shape in wanted.items():
        if name not in of:
            raise RotaError(f"weight {name!r} is missing")
        if of[name].shape != shape:
            raise RotaError(f"weight {name!r} has shape {of[name].shape}; for {len(kinds)} kinds it must be {shape}")
        if not are_sound(of[name]):
            raise RotaError(f"weight {name!r} has values that are not finite, or beyond {MOST_WEIGHT:g}")
    if not of["score.weight"].any():
        raise RotaError("weight 'score.weight' is 0 throughout, so that no server is preferred")
    return Network(kinds, {name: np.ascontiguousarray(of[name], np.float32) for name in wanted})


class Actor:
    """Chooser that places task by task by the scores of a network, with or without job lengths."""

    def __init__(self, network: Network, *, knows_length: bool = True) -> None:
        self._network = network
        self._knows_length = knows_length
        self._view: ServerView | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of jobs that the network distinguishes."""
        return self._network.kinds

    def observe(self, running: dict[int, LiveJob], now_s: float) -> None:
        """Ignore running jobs; the server arrays contain all inputs."""

    def choose(self, arrays: ServerArrays, live: LiveJob, now_s: float) -> Chosen | None:
        """Place each task of either role at the highest score; None if one does not fit."""
        if self._view is None or self._view.arrays is not arrays:
            self._view = ServerView(self._network, arrays)
        length_s = live.job.work if self._knows_length else None
        return Placement(self._network, self._view, live.job, length_s or 0.0).run()


def pooled(encoded: Array) -> Array:
    """Return the pooled state of the cluster: mean and maximum of the encoded servers."""
    return np.concatenate([encoded.mean(axis=0), encoded.max(axis=0)])


class ServerView:
    """Encoded servers, updated where tasks were placed since."""

    def __init__(self, network: Network, arrays: ServerArrays) -> None:
        self.arrays = arrays
        self._network = network
        self._known = len(arrays.touched)
        self.by_server, self._pool = network.encoded(servers_seen(arrays.tasks, arrays.talking))

    def update(self) -> Array:
        """Encode the changed servers and return the pooled state of the open ones."""
        arrays = self.arrays
        rows = np.unique(arrays.touched[self._known :])
        if len(rows):
            self.by_server[rows], self._pool[rows] = self._network.encoded(
                servers_seen(arrays.tasks[rows], arrays.talking[rows])
            )
            self._known = len(arrays.touched)
        return pooled(self._pool[arrays.open])


class Placement:
    """Placement of one job in progress."""

    def __init__(self, network: Network, view: ServerView, job: Job, length_s: float) -> None:
        """Begin the placement of a job; a length of 0 means unknown."""
        self._network = network
        self._length_s = length_s
        self._view = view
        self._room = arrays = view.arrays
        self._job = job
        self._role_of = {SERVER if is_server(job, index) else WORKER: index for index in range(len(job.roles))}
        self._counts = self._by_role([role.count for role in job.roles])
        self._mine = np.zeros((len(arrays.free), ROLES), np.float32)
        self._chosen: Chosen = {}
        self._short: dict[int, NDArray[np.bool_]] = {}

    def _by_role(self, counts: list[int]) -> tuple[int, int]:
        found = [0, 0]
        for side, index in self._role_of.items():
            found[side] = counts[index]
        return found[0], found[1]

    def run(self) -> Chosen | None:
        """Place task by task and return the choice; the server arrays are restored."""
        arrays, job = self._room, self._job
        if len(self._role_of) != len(job.roles) or not arrays.open.any():
            return None
        by_server, cluster = self._view.by_server, self._view.update()
        left = list(self._counts)
        try:
            while any(left):
                found = self._next(by_server, cluster, left)
                if found is None:
                    return None
                side, node = found
                role = self._role_of[side]
                self._chosen[role, node] = self._chosen.get((role, node), 0) + 1
                self._mine[node, side] += 1
                for short in self._short.values():
                    short[node] = True
                left[side] -= 1
                arrays.take(node, job.roles[role])
            return self._chosen
        finally:
            for (role, node), tasks in self._chosen.items():
                arrays.take(node, job.roles[role], -tasks)

    def _next(self, by_server: Array, cluster: Array, left: list[int]) -> tuple[int, int] | None:
        """Return the role and the server with the highest score."""
        arrays, job = self._room, self._job
        best: tuple[float, int, int] | None = None
        nodes = int((self._mine.sum(axis=1) > 0).sum())
        seen = job_seen(
            arrays.kind(job), len(self._network.kinds), self._counts, (left[0], left[1]), nodes, self._length_s
        )
        free = (arrays.free[:, :FREE] / arrays.capacity[:, :FREE]).clip(0.0, 1.0).astype(np.float32)
        for side in range(ROLES):
            if not left[side]:
                continue
            fits = arrays.fits(job.roles[self._role_of[side]])
            if not fits.any():
                return None
            if side in self._short and (known := fits & self._short[side]).any():
                fits = known
            at = np.flatnonzero(fits)
            which = np.eye(ROLES, dtype=np.float32)[side]
            pairs = self._pairs(at, side, left)
            scores = self._network.scores(by_server[at], np.concatenate([seen, which]), free[at], pairs, cluster)
            if not np.isfinite(scores).all():
                return None
            if side not in self._short and len(at) > SHORTLIST:
                self._short[side] = np.zeros(len(fits), np.bool_)
                self._short[side][at[np.argpartition(-scores, SHORTLIST)[:SHORTLIST]]] = True
            top = int(np.argmax(scores))
            if best is None or scores[top] > best[0]:
                best = (float(scores[top]), side, int(at[top]))
        return None if best is None else best[1:]

    def _pairs(self, at: NDArray[np.intp], side: int, left: list[int]) -> Array:
        """Return the job's own tasks on each server, and how many of those left fit there."""
        arrays, job = self._room, self._job
        free = arrays.free[at]
        needs = [
            np.array(needs_of(job.roles[self._role_of[one]]), float) if left[one] else None for one in range(ROLES)
        ]
        whole = np.zeros(free.shape[1])
        for one, need in enumerate(needs):
            if need is not None:
                whole = whole + left[one] * need
        own = needs[side]
        assert own is not None
        with np.errstate(divide="ignore", invalid="ignore"):
            room_for = np.where(own > 0, np.floor(free / own), np.inf).min(axis=1)
        return pair_inputs(self._mine[at], np.asarray((free >= whole).all(axis=1)), room_for, left[side])


def pair_inputs(
    mine: NDArray[np.floating],
    whole: NDArray[np.bool_],
    room_for: NDArray[np.floating],
    left: NDArray[np.generic] | int,
) -> Array:
    """Return the inputs about a job's tasks on servers; the last axis of `mine` is the role."""
    part = np.minimum(room_for, left) / np.maximum(left, 1)
    own = mine / TASKS
    return np.stack(
        [own[..., 0], own[..., 1], (own.sum(axis=-1) > 0).astype(np.float32), whole.astype(np.float32), part], axis=-1
    ).astype(np.float32)
