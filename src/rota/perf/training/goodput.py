"""Goodput of a model on a number of devices: throughput times statistical efficiency (Qiao et al., OSDI 2021).

A step takes the time of computing gradients and of exchanging them, which overlap in part. A larger batch makes steps
longer and each example less useful, the more so the less noisy the gradient is. A job picks the batch with the highest
goodput on its devices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

_BATCHES = 24
"""Number of batch sizes tried between the user's own and the largest, in equal ratios."""


class StepTime(NamedTuple):
    """Seconds of a step: ((compute + per_example * batch / devices)^overlap + exchange^overlap)^(1/overlap).

    The exchange takes `local` or `remote` seconds (on one node, on several) for two devices, and `local_more` or
    `remote_more` for each additional one.
    """

    compute_s: float
    per_example_s: float
    local_s: float = 0.0
    local_more_s: float = 0.0
    remote_s: float = 0.0
    remote_more_s: float = 0.0
    overlap: float = 1.0

    def gradient_s(self, batch: float, devices: int) -> float:
        """Return the seconds until every device has its local gradient."""
        return self.compute_s + self.per_example_s * batch / devices

    def exchange_s(self, devices: int, several_nodes: bool) -> float:
        """Return the seconds until all devices have the reduced gradient."""
        if devices < 2:
            return 0.0
        first, more = (self.remote_s, self.remote_more_s) if several_nodes else (self.local_s, self.local_more_s)
        return first + more * (devices - 2)

    def step_s(self, batch: float, devices: int, several_nodes: bool) -> float:
        """Return the seconds of one step."""
        gradient_s, exchange_s = self.gradient_s(batch, devices), self.exchange_s(devices, several_nodes)
        longer = max(gradient_s, exchange_s)
        if not exchange_s or not longer:
            return longer
        shorter = min(gradient_s, exchange_s) / longer
        return longer * float((1.0 + shorter**self.overlap) ** (1.0 / self.overlap))


class Batches(NamedTuple):
    """Batch sizes a model may be trained with, and its gradient noise scale, in examples."""

    own: int
    """The batch size its user chose: an example in it counts as 1."""
    most: int
    most_per_device: int
    noise: float
    """The gradient noise scale: up to about this batch size an example is almost as useful as in a small one."""

    def efficiency(self, batch: float) -> float:
        """Return the statistical efficiency of a batch size relative to the user's own."""
        return (self.noise + self.own) / (self.noise + batch)

    def choices(self, devices: int) -> list[float]:
        """Return the batch sizes to choose from on that many devices, ascending."""
        largest = max(min(self.most, self.most_per_device * devices), self.own)
        ratio = (largest / self.own) ** (1.0 / (_BATCHES - 1))
        return [self.own * ratio**at for at in range(_BATCHES)] if ratio > 1.0 else [float(self.own)]


class BestBatch(NamedTuple):
    """The batch size with the highest goodput on some devices, and that goodput."""

    goodput: float
    batch: float


def best_batch(times: StepTime, batches: Batches, devices: int, several_nodes: bool) -> BestBatch:
    """Return the batch size with the highest goodput."""
    best = BestBatch(-math.inf, 0.0)
    for batch in batches.choices(devices):
        goodput = batch / times.step_s(batch, devices, several_nodes) * batches.efficiency(batch)
        best = max(best, BestBatch(goodput, batch))
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The true training behaviour of a model; only the simulated world knows it."""

    times: StepTime
    batches: Batches


class Sample(NamedTuple):
    """A measured step: its batch size and its duration."""

    batch: float
    step_s: float


# Of the order of published measurements on data-centre GPUs, rounded; assumed, not measured by us.
TRAININGS: Mapping[str, Training] = {
    "resnet18": Training(
        times=StepTime(0.010, 3.0e-4, 0.020, 0.0005, 0.028, 0.0006, 1.6),
        batches=Batches(own=128, most=4096, most_per_device=1024, noise=1200.0),
    ),
    "resnet50": Training(
        times=StepTime(0.020, 3.5e-3, 0.060, 0.0015, 0.090, 0.0015, 2.0),
        batches=Batches(own=128, most=12800, most_per_device=200, noise=4000.0),
    ),
    "yolov3": Training(
        times=StepTime(0.030, 2.5e-2, 0.050, 0.0020, 0.070, 0.0015, 1.8),
        batches=Batches(own=8, most=512, most_per_device=16, noise=90.0),
    ),
    "bert": Training(
        times=StepTime(0.020, 2.2e-2, 0.100, 0.0020, 0.160, 0.0025, 1.5),
        batches=Batches(own=12, most=384, most_per_device=12, noise=80.0),
    ),
    "deepspeech2": Training(
        times=StepTime(0.050, 1.2e-2, 0.050, 0.0030, 0.080, 0.0020, 1.7),
        batches=Batches(own=20, most=640, most_per_device=20, noise=130.0),
    ),
    "neumf": Training(
        times=StepTime(0.004, 8.0e-6, 0.012, 0.0010, 0.018, 0.0010, 1.3),
        batches=Batches(own=256, most=32768, most_per_device=32768, noise=5000.0),
    ),
}
"""Models of known training behaviour, by name."""


@lru_cache(maxsize=100_000)
def best_of(model: str, devices: int, several_nodes: bool) -> BestBatch:
    """Return the highest goodput of a model of known training behaviour."""
    known = TRAININGS[model]
    return best_batch(known.times, known.batches, devices, several_nodes)


@lru_cache(maxsize=100_000)
def steps_tried(model: str, devices: int, several_nodes: bool) -> tuple[Sample, ...]:
    """Return the steps that a job measures with its smallest, best and largest batch size."""
    known = TRAININGS[model]
    choices = known.batches.choices(devices)
    tried = sorted({choices[0], best_of(model, devices, several_nodes).batch, choices[-1]})
    return tuple(Sample(batch, known.times.step_s(batch, devices, several_nodes)) for batch in tried)
