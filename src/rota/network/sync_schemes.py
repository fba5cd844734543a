"""Synchronisation schemes compared on real trainings: simulated time, real gradients.

Each worker computes a gradient of a real model on its own samples; when it is done, and what it exchanges with which
others, is decided by the scheme in simulated time. Staleness then costs what it costs in the real loss.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from rota.core.errors import RotaError
from rota.network.topology import Floats, Ints


class SyncScheme(Enum):
    """The schemes by name."""

    BSP = "bsp"
    ASP = "asp"
    SSP = "ssp"
    EASGD = "easgd"
    ALL_REDUCE = "all-reduce"
    GOSSIP = "gossip"
    AD_PSGD = "ad-psgd"
    PRAGUE = "prague"


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSetting:
    """Workers and what an exchange of the whole model costs.

    `compute_s` is the mean time of one step of each worker, `jitter` its coefficient of variation. `transfer_s` is the
    time in which one link carries the model once.
    """

    compute_s: tuple[float, ...]
    transfer_s: float
    jitter: float = 0.1
    staleness: int = 3
    """Steps that a worker may be ahead of the slowest, under SSP."""
    local_steps: int = 4
    """Steps between two exchanges of EASGD."""
    group: int = 3
    """Workers of a partial all-reduce."""
    gossip: float = 0.25
    """The chance that a worker sends its model after a step, under gossip."""
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.compute_s) < 2 or min(self.compute_s) <= 0 or self.transfer_s < 0:
            raise RotaError("a comparison needs at least two workers with a time above 0, and a transfer of 0 or more")
        if not 2 <= self.group <= len(self.compute_s):
            raise RotaError(f"a group of {self.group} workers; it must be from 2 to {len(self.compute_s)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxTask:
    """A classifier of two layers on clusters of points: small, not convex, and really trained."""

    inputs: Floats
    labels: Ints
    held_out: tuple[Floats, Ints]
    hidden: int = 24
    classes: int = 6
    batch: int = 16
    rate: float = 0.25

    @classmethod
    def make(cls, seed: int = 0, samples: int = 3000, features: int = 12, classes: int = 6) -> SoftmaxTask:
        """Return a task with two clusters of points for each class."""
        rng = np.random.default_rng(seed)
        centres = rng.normal(0, 1.1, (2 * classes, features))
        which = rng.integers(0, 2 * classes, samples)
        points = centres[which] + rng.normal(0, 1.0, (samples, features))
        labels = (which % classes).astype(np.int64)
        cut = samples * 4 // 5
        return cls(inputs=points[:cut], labels=labels[:cut], held_out=(points[cut:], labels[cut:]), classes=classes)

    @property
    def features(self) -> int:
        """Inputs of a sample."""
        return int(self.inputs.shape[1])

    def start(self, seed: int) -> Floats:
        """Return the first parameters."""
        size = self.features * self.hidden + self.hidden * self.classes
        return np.random.default_rng(seed).normal(0, 0.3, size)

    def _layers(self, parameters: Floats) -> tuple[Floats, Floats]:
        cut = self.features * self.hidden
        return parameters[:cut].reshape(self.features, self.hidden), parameters[cut:].reshape(self.hidden, self.classes)

    def loss(self, parameters: Floats) -> float:
        """Return the cross-entropy on held-out samples."""
        points, labels = self.held_out
        chances = self._chances(parameters, points)[1]
        return float(-np.log(np.maximum(chances[np.arange(len(labels)), labels], 1e-12)).mean())

    def accuracy(self, parameters: Floats) -> float:
        """Return the fraction of held-out samples that are classified rightly."""
        points, labels = self.held_out
        return float((self._chances(parameters, points)[1].argmax(axis=1) == labels).mean())

    def _chances(self, parameters: Floats, points: Floats) -> tuple[Floats, Floats]:
        first, second = self._layers(parameters)
        inner = np.tanh(points @ first)
        scores = inner @ second
        scores -= scores.max(axis=1, keepdims=True)
        raised = np.exp(scores)
        return inner, raised / raised.sum(axis=1, keepdims=True)

    def gradient(self, parameters: Floats, rng: np.random.Generator) -> Floats:
        """Return the gradient on one random batch."""
        chosen = rng.integers(0, len(self.inputs), self.batch)
        points, labels = self.inputs[chosen], self.labels[chosen]
        inner, chances = self._chances(parameters, points)
        chances[np.arange(len(labels)), labels] -= 1.0
        chances /= len(labels)
        _, second = self._layers(parameters)
        back = (chances @ second.T) * (1 - inner**2)
        return np.concatenate([(points.T @ back).ravel(), (inner.T @ chances).ravel()])


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOutcome:
    """What a training gave: mean time of a step of all workers together, and losses over time."""

    step_s: float
    losses: tuple[tuple[float, float], ...]
    accuracy: float
    staleness: float
    """Updates of others between reading parameters and applying a gradient, on average."""

    def reached_s(self, loss: float) -> float:
        """Return when the loss was first reached; without end if never."""
        return next((at_s for at_s, value in self.losses if value <= loss), math.inf)


@dataclass(slots=True)
class _Run:
    """The state of a training: parameters of each worker, of the server, and the clock of the server's link."""

    task: SoftmaxTask
    setting: SyncSetting
    rng: np.random.Generator
    models: list[Floats]
    centre: Floats
    seen: list[int] = field(default_factory=list)
    updates: int = 0
    lag: float = 0.0
    lags: int = 0

    def duration_s(self, worker: int) -> float:
        """Return the time of the next step of a worker."""
        spread = self.setting.jitter
        return self.setting.compute_s[worker] * float(self.rng.gamma(1 / spread**2, spread**2) if spread else 1.0)

    def step(self, worker: int, parameters: Floats) -> Floats:
        return self.task.gradient(parameters, self.rng) * self.task.rate

    def note_lag(self, worker: int) -> None:
        self.lag += self.updates - self.seen[worker]
        self.lags += 1


def train(scheme: SyncScheme, task: SoftmaxTask, setting: SyncSetting, steps: int = 400) -> SyncOutcome:
    """Train until the workers have done so many steps each on average, and return what it gave."""
    rng = np.random.default_rng(setting.seed)
    workers = len(setting.compute_s)
    start = task.start(setting.seed)
    run = _Run(task, setting, rng, [start.copy() for _ in range(workers)], start.copy(), [0] * workers)
    losses = [(0.0, task.loss(start))]
    if scheme in (SyncScheme.BSP, SyncScheme.ALL_REDUCE):
        end_s = _barrier(run, scheme, steps, losses)
    else:
        end_s = _events(run, scheme, steps, losses)
    final = run.centre if scheme in _CENTRAL else np.mean(run.models, axis=0)
    return SyncOutcome(
        step_s=end_s / steps,
        losses=tuple(losses),
        accuracy=task.accuracy(final),
        staleness=run.lag / run.lags if run.lags else 0.0,
    )


_CENTRAL = (SyncScheme.ASP, SyncScheme.SSP, SyncScheme.EASGD)


def _barrier(run: _Run, scheme: SyncScheme, steps: int, losses: list[tuple[float, float]]) -> float:
    """All workers wait for each other in every step."""
    workers = len(run.models)
    exchange_s = _server_s(run.setting, workers) if scheme is SyncScheme.BSP else _reduce_s(run.setting, workers)
    now_s = 0.0
    parameters = run.models[0]
    for number in range(steps):
        now_s += max(run.duration_s(worker) for worker in range(workers)) + exchange_s
        parameters = parameters - np.mean([run.step(w, parameters) for w in range(workers)], axis=0)
        if number % 4 == 3:
            losses.append((now_s, run.task.loss(parameters)))
    run.models = [parameters] * workers
    return now_s


def _reduce_s(setting: SyncSetting, members: int) -> float:
    """Return the time of an all-reduce between some workers."""
    return 2 * (members - 1) / members * setting.transfer_s


def _server_s(setting: SyncSetting, workers: int) -> float:
    """Return the time in which one server takes the gradients of some workers and returns parameters."""
    return 2 * workers * setting.transfer_s


def _events(run: _Run, scheme: SyncScheme, steps: int, losses: list[tuple[float, float]]) -> float:
    """Workers go on as soon as the scheme lets them."""
    workers = len(run.models)
    total = steps * workers
    queue = [(run.duration_s(worker), worker) for worker in range(workers)]
    heapq.heapify(queue)
    done = [0] * workers
    free_s = [0.0] * (workers + 1)  # when the link of each worker, and of the server, is free
    held: list[int] = []  # workers that wait for slower ones, under SSP
    group: list[tuple[float, int]] = []
    now_s = 0.0
    for count in range(total):
        now_s, worker = heapq.heappop(queue)
        done[worker] += 1
        next_s = _exchange(run, scheme, worker, now_s, done, free_s)
        if scheme is SyncScheme.PRAGUE:
            for at_s, member in _gather(run, worker, next_s, group, done):
                heapq.heappush(queue, (at_s + run.duration_s(member), member))
        elif scheme is SyncScheme.SSP and done[worker] - min(done) > run.setting.staleness:
            held.append(worker)
        else:
            heapq.heappush(queue, (next_s + run.duration_s(worker), worker))
        for waiting in [w for w in held if done[w] - min(done) <= run.setting.staleness]:
            held.remove(waiting)
            heapq.heappush(queue, (max(next_s, now_s) + run.duration_s(waiting), waiting))
        if count % (4 * workers) == 4 * workers - 1:
            final = run.centre if scheme in _CENTRAL else np.mean(run.models, axis=0)
            losses.append((now_s, run.task.loss(final)))
    return now_s


def _exchange(
    run: _Run, scheme: SyncScheme, worker: int, now_s: float, done: Sequence[int], free_s: list[float]
) -> float:
    """Apply a worker's step and exchange it; return when the worker goes on."""
    server = len(run.models)
    setting = run.setting
    match scheme:
        case SyncScheme.ASP | SyncScheme.SSP:
            run.note_lag(worker)
            run.centre = run.centre - run.step(worker, run.models[worker]) / len(run.models)
            run.updates += 1
            run.models[worker], run.seen[worker] = run.centre, run.updates
            free_s[server] = max(free_s[server], now_s) + 2 * setting.transfer_s
            return free_s[server]
        case SyncScheme.EASGD:
            run.models[worker] = run.models[worker] - run.step(worker, run.models[worker])
            if done[worker] % setting.local_steps:
                return now_s
            pull = 0.9 / len(run.models) * (run.models[worker] - run.centre)
            run.models[worker], run.centre = run.models[worker] - pull, run.centre + pull
            free_s[server] = max(free_s[server], now_s) + 2 * setting.transfer_s
            return free_s[server]
        case SyncScheme.GOSSIP:
            run.models[worker] = run.models[worker] - run.step(worker, run.models[worker])
            if run.rng.random() >= setting.gossip:
                return now_s
            other = _peer(run, worker)
            run.models[other] = 0.5 * (run.models[other] + run.models[worker])
            free_s[worker] = max(free_s[worker], now_s) + setting.transfer_s
            return now_s  # it is sent beside the next step
        case SyncScheme.AD_PSGD:
            other = _peer(run, worker)
            step = run.step(worker, run.models[worker])
            mean = 0.5 * (run.models[worker] + run.models[other])
            run.models[worker], run.models[other] = mean - step, mean.copy()
            until_s = max(now_s, free_s[worker], free_s[other]) + 2 * setting.transfer_s
            free_s[worker] = free_s[other] = until_s  # averaging is atomic: both ends are locked
            return until_s
        case _:
            run.models[worker] = run.models[worker] - run.step(worker, run.models[worker])
            return now_s


def _peer(run: _Run, worker: int) -> int:
    """Return another worker at random."""
    other = int(run.rng.integers(0, len(run.models) - 1))
    return other + (other >= worker)


def _gather(
    run: _Run, worker: int, now_s: float, group: list[tuple[float, int]], done: Sequence[int]
) -> list[tuple[float, int]]:
    """Add a worker to the group that is being formed; when it is full, its members average and go on.

    A worker that joins is grouped with those that are ready, so that a slow one delays a group only when it is part of
    it, for no longer than the exchange.
    """
    group.append((now_s, worker))
    if len(group) < run.setting.group:
        return []
    members = [member for _, member in group]
    mean = np.mean([run.models[member] for member in members], axis=0)
    for member in members:
        run.models[member] = mean.copy()
    until_s = now_s + _reduce_s(run.setting, len(members))
    group.clear()
    return [(until_s, member) for member in members]
