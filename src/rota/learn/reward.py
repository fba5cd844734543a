"""Fit of the reward model to experience, and its error on held-out snapshots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from rota.learn.experience import Experience
from rota.learn.network_inputs import rows_of
from rota.learn.networks import RewardModel

HELD_OUT = 0.1
BATCH = 64
UNKNOWN = 0.3
"""Fraction of snapshots in which a kind is treated as unknown, so that the model learns unknown kinds."""
ADAM = 2e-3


@dataclass(frozen=True, slots=True)
class RewardFit:
    """Relative errors of predicted speeds in held-out snapshots."""

    samples: int
    median: float
    p90: float


def fit_reward(
    history: Experience, *, passes: int, seed: int, tell: Callable[[int, float], None] | None = None
) -> tuple[RewardModel, RewardFit]:
    """Fit a model to the speeds of experience; return it with its error on a tenth of the snapshots."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    order = rng.permutation(len(history))
    cut = max(int(len(order) * HELD_OUT), 1)
    held, used = order[:cut], order[cut:]
    model = RewardModel(len(history.kinds))
    adam = torch.optim.Adam(model.parameters(), ADAM)
    steps = passes * max(len(used) // BATCH, 1)
    falling = torch.optim.lr_scheduler.OneCycleLR(adam, ADAM, total_steps=steps + 1)
    for number in range(passes):
        rng.shuffle(used)
        total = 0.0
        for first in range(0, len(used) - BATCH + 1, BATCH):
            loss = _loss(model, history, used[first : first + BATCH], rng)
            adam.zero_grad()
            loss.backward()
            adam.step()
            falling.step()
            total += float(loss.detach())
        if tell is not None:
            tell(number + 1, total / max(len(used) // BATCH, 1))
    return model, _error(model, history, held)


def _loss(model: RewardModel, history: Experience, at: np.ndarray, rng: np.random.Generator) -> torch.Tensor:
    kind = history.kind[at]
    unknown = rng.random(len(at)) < UNKNOWN
    if history.kinds and unknown.any():
        lost = rng.integers(len(history.kinds), size=len(at))
        kind = np.where(unknown[:, None] & (kind == lost[:, None]), len(history.kinds), kind)
    rows = rows_of(kind, len(history.kinds), history.workers[at], history.servers[at])
    speed = history.speed[at].reshape(-1)
    seen = speed > 0
    predicted = model(torch.from_numpy(rows.inputs), torch.from_numpy(rows.owner), len(speed))
    wanted = torch.from_numpy(np.log(np.where(seen, speed, 1.0)).astype(np.float32))
    return ((predicted - wanted)[torch.from_numpy(seen)] ** 2).mean()


def _error(model: RewardModel, history: Experience, at: np.ndarray) -> RewardFit:
    rows = rows_of(history.kind[at], len(history.kinds), history.workers[at], history.servers[at])
    speed = history.speed[at].reshape(-1)
    predicted = model.predict(rows, len(speed))
    seen = speed > 0
    off = np.abs(predicted[seen] - speed[seen]) / speed[seen]
    return RewardFit(history.samples, float(np.median(off)), float(np.quantile(off, 0.9)))
