"""Placement as a Gymnasium environment, for any learner: one cluster, the batch of new jobs of each interval.

The state has the components of Harmony (Bao et al., INFOCOM 2019), for new and running jobs: x the kind, r the tasks
and their requests, w and p the tasks placed so far, v the free resources, d the tasks by server, u whether a job is
new. An action is a (job, role, server); `action_masks()` and `info["mask"]` contain which are allowed. When the batch
is placed or nothing fits any more, the interval ends and gives its reward: the sum over jobs of the epochs done
relative to the job's total.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rota.learn.fast_cluster import FREE, Arrival, FastClusters
from rota.learn.workloads import KIND_NAMES, LOAD, WorkloadShape, refuse_below_one

Observation = dict[str, NDArray[Any]]
BATCH = 8
"""Number of new jobs that can be acted on at once; further ones wait."""


class PlacementEnv(gymnasium.Env[Observation, np.int64]):
    """One cluster; a step places one task of one new job."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, servers: int = 6, intervals: int = 200, batch: int = BATCH, load: float = LOAD) -> None:
        refuse_below_one(intervals=intervals, batch=batch)
        self._shape = WorkloadShape(servers=servers, load=load)
        self._intervals = intervals
        self._batch = batch
        self._world = FastClusters(self._shape, [servers], "environment")
        self._slots = self._world.kind.shape[1] + batch
        kinds, rows = len(KIND_NAMES), self._slots
        self.action_space = spaces.Discrete(batch * 2 * servers)
        self.observation_space = spaces.Dict(
            {
                "x": spaces.Box(0, 1, (rows, kinds), np.float32),
                "r": spaces.Box(0, np.inf, (rows, 6), np.float32),
                "w": spaces.Box(0, np.inf, (rows,), np.float32),
                "p": spaces.Box(0, np.inf, (rows,), np.float32),
                "v": spaces.Box(0, np.inf, (servers, len(FREE)), np.float32),
                "d": spaces.Box(0, np.inf, (rows, servers, 2), np.float32),
                "u": spaces.Box(0, 1, (rows,), np.float32),
            }
        )
        self._new: list[Arrival] = []
        self._mine: NDArray[np.float64] = np.zeros((batch, servers, 2))
        self._left_intervals = intervals
        self._episode = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a new workload; the same seed gives the same one."""
        super().reset(seed=seed)
        self._episode = self._episode + 1 if seed is None else 0
        drawn = int(self.np_random.integers(2**31))
        self._world = FastClusters(self._shape, [self._shape.servers], f"environment {drawn}/{self._episode}")
        self._left_intervals = self._intervals
        self._new = []
        self._wait_for_work()
        return self._seen(), self._info()

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Place a task. A masked action places nothing: the batch waits for the next interval."""
        reward = 0.0
        if self.action_masks()[action]:
            job, rest = divmod(int(action), 2 * self._shape.servers)
            side, node = divmod(rest, self._shape.servers)
            self._mine[job, node, side] += 1
            self._settle()
        elif self._left_intervals:
            reward += self._pass_interval()
        while self._left_intervals and not self.action_masks().any():
            reward += self._pass_interval()
        ended = not self._left_intervals
        return self._seen(), reward, False, ended, self._info()

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the allowed actions: the job is new, such a task is left, and server and cluster have room."""
        found = np.zeros((self._batch, 2, self._shape.servers), np.bool_)
        free = self._free()
        for number, arrival in enumerate(self._new):
            left = np.array(arrival.counts) - self._mine[number].sum(0)
            arrays = (free[None] >= arrival.needs[:, None] - 1e-9).all(-1)
            found[number] = arrays & (left > 0)[:, None]
            if not _finishes(arrival, left, free):
                found[number] = False
        return found.reshape(-1)

    def _free(self) -> NDArray[np.float64]:
        """Return what neither running jobs nor tasks placed in this interval hold."""
        taken = sum(
            (self._mine[number] @ arrival.needs for number, arrival in enumerate(self._new)),
            np.zeros((self._shape.servers, len(FREE))),
        )
        free: NDArray[np.float64] = self._world.free()[0] - taken
        return free

    def _settle(self) -> None:
        """Start the jobs whose tasks are all placed."""
        for number in reversed(range(len(self._new))):
            arrival = self._new[number]
            if (self._mine[number].sum(0) >= arrival.counts).all():
                self._world.place(0, arrival, *self._mine[number].T)
                self._forget(number)

    def _forget(self, number: int) -> None:
        del self._new[number]
        self._mine[number:-1] = self._mine[number + 1 :]
        self._mine[-1] = 0.0

    def _pass_interval(self) -> float:
        """Release partially placed jobs, advance time, and form the next batch; return the reward."""
        self._mine[:] = 0.0
        self._left_intervals -= 1
        progress = float(self._world.advance()[0])
        queue = self._world.waiting[0]
        while queue and len(self._new) < self._batch:
            self._new.append(queue.popleft())
        return progress

    def _wait_for_work(self) -> None:
        while self._left_intervals and not self.action_masks().any():
            self._pass_interval()

    def _info(self) -> dict[str, Any]:
        return {"mask": self.action_masks(), "waiting": len(self._new) + len(self._world.waiting[0])}

    def _seen(self) -> Observation:
        world, rows, batch = self._world, self._slots, self._batch
        running = world.active[0]
        kind = np.zeros((rows, len(KIND_NAMES)), np.float32)
        asked = np.zeros((rows, 6), np.float32)
        where = np.zeros((rows, self._shape.servers, 2), np.float32)
        is_new = np.zeros(rows, np.float32)
        for number, arrival in enumerate(self._new):
            kind[number, arrival.kind] = 1.0
            asked[number] = (arrival.counts[0], *arrival.needs[0], arrival.counts[1], *arrival.needs[1])
            is_new[number] = 1.0
        where[:batch] = self._mine
        where[batch:, :, 0] = np.where(running[:, None], world.workers[0], 0.0)
        where[batch:, :, 1] = np.where(running[:, None], world.parameter_servers[0], 0.0)
        kind[batch:][running, world.kind[0][running]] = 1.0
        asked[batch:, 0], asked[batch:, 3] = where[batch:, :, 0].sum(1), where[batch:, :, 1].sum(1)
        asked[batch:, 1] = np.where(running, world.devices[0], 0.0)
        asked[batch:, 2], asked[batch:, 5] = (np.where(running, world.cores[0, :, side], 0.0) for side in range(2))
        return {
            "x": kind,
            "r": asked,
            "w": where[..., 0].sum(1),
            "p": where[..., 1].sum(1),
            "v": self._free().clip(0.0).astype(np.float32),
            "d": where,
            "u": is_new,
        }


def _finishes(arrival: Arrival, left: NDArray[np.float64], free: NDArray[np.float64]) -> bool:
    """Return whether all tasks left can be placed, alternating between roles, on the first server with room."""
    free, left = free.copy(), left.copy()
    while left.any():
        for side in range(2):
            if left[side]:
                arrays = np.flatnonzero((free >= arrival.needs[side] - 1e-9).all(-1))
                if not len(arrays):
                    return False
                free[arrays[0]] -= arrival.needs[side]
                left[side] -= 1
    return True
