"""Loss curves: 1 / (fall x epoch + start) + floor (Peng et al., EuroSys 2018), and their fit.

A job has converged when its loss falls by less than a threshold in an epoch. The simulated world knows each job's
curve, and that it ends when all its work is done; policies see the noisy losses so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import NamedTuple

import numpy as np

from rota.core.model.job import Job

EPOCHS = 50
"""Number of epochs into which the work of every job is divided."""
NOISE = 0.01
"""Standard deviation of a measured loss, relative to what is above the floor."""
_FLOORS = 40
"""Number of floors that a fit tries."""


class LossCurve(NamedTuple):
    """Loss by epoch."""

    fall: float
    start: float
    floor: float

    def loss(self, epoch: float) -> float:
        """Return the loss at an epoch."""
        return 1.0 / (self.fall * epoch + self.start) + self.floor

    def falls(self, epoch: float) -> float:
        """Return by how much the loss falls per epoch at an epoch."""
        return self.fall / (self.fall * epoch + self.start) ** 2

    def converges_at(self, threshold: float) -> float:
        """Return the epoch from which on the loss falls by less than the threshold."""
        if not self.fall > 0:
            return 0.0
        return max((math.sqrt(self.fall / threshold) - self.start) / self.fall, 0.0)


@dataclass(frozen=True, slots=True)
class LossReport:
    """What a job reports: its losses at the end of each epoch, and when it counts as converged."""

    losses: tuple[float, ...]
    threshold: float


@lru_cache(maxsize=100_000)
def true_curve(name: str) -> LossCurve:
    """Return the curve of a job, generated from its name."""
    rng = Random(f"loss of {name}")
    return LossCurve(fall=rng.uniform(0.1, 0.4), start=rng.uniform(0.9, 1.3), floor=rng.uniform(0.05, 0.3))


def report(job: Job, work: float) -> LossReport | None:
    """Return the losses of a job that has done that much work; None if its total work is unknown."""
    if not job.work:
        return None
    curve = true_curve(job.id)
    epochs = min(int(work / job.work * EPOCHS + 1e-9), EPOCHS)
    return LossReport(_measured(job.id, epochs), curve.falls(EPOCHS))


@lru_cache(maxsize=200_000)
def _measured(name: str, epochs: int) -> tuple[float, ...]:
    curve, rng = true_curve(name), Random(f"noise of {name}")
    return tuple(
        curve.floor + (curve.loss(epoch) - curve.floor) * (1.0 + NOISE * rng.gauss(0.0, 1.0))
        for epoch in range(1, epochs + 1)
    )


def fit(losses: Sequence[float]) -> LossCurve | None:
    """Fit a curve, with later losses weighted 4 and 16 times; None for fewer than three losses."""
    if len(losses) < 3:
        return None
    loss = np.array(losses)
    epoch = np.arange(1, len(loss) + 1, dtype=np.float64)
    weight = np.repeat([1.0, 4.0, 16.0], [len(part) for part in np.array_split(loss, 3)])
    floors = np.linspace(0.0, 0.98 * float(loss.min()), _FLOORS)[:, None]
    inverse = 1.0 / (loss - floors)
    weight = weight * (loss - floors) ** 4
    total = weight.sum(axis=1)
    mean_x, mean_y = (weight * epoch).sum(axis=1) / total, (weight * inverse).sum(axis=1) / total
    dx, dy = epoch - mean_x[:, None], inverse - mean_y[:, None]
    fall = np.maximum((weight * dx * dy).sum(axis=1) / (weight * dx * dx).sum(axis=1), 0.0)
    start = np.maximum(mean_y - fall * mean_x, 1e-9)
    missed = 1.0 / (fall[:, None] * epoch + start[:, None]) + floors - loss
    error = (np.repeat([1.0, 4.0, 16.0], [len(part) for part in np.array_split(loss, 3)]) * missed**2).sum(axis=1)
    best = int(np.argmin(error))
    return LossCurve(float(fall[best]), float(start[best]), float(floors[best, 0]))
