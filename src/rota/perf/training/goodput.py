"""How well a model trains on so many devices: examples a second times their worth (Qiao et al., OSDI 2021).

A step's time is that of its gradients and of their exchange, which overlap in part. A larger batch makes steps
longer and each example worth less, the more so the less noisy the gradient is. A job picks the batch that
makes most of the devices it has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

_BATCHES = 24
"""Batch sizes that are tried between the user's own and the largest, in equal ratios."""


class StepTime(NamedTuple):
    """Seconds of a step: ((compute + per_example * batch / devices)^overlap + exchange^overlap)^(1/overlap).

    The exchange takes `local` or `remote` seconds (on one node, on several) for two devices, and `local_more` or
    `remote_more` for each one more.
    """

    compute_s: float
    per_example_s: float
    local_s: float = 0.0
    local_more_s: float = 0.0
    remote_s: float = 0.0
    remote_more_s: float = 0.0
    overlap: float = 1.0

    def gradient_s(self, batch: float, devices: int) -> float:
        """Seconds until every device has its part of the gradient."""
        return self.compute_s + self.per_example_s * batch / devices

    def exchange_s(self, devices: int, several_nodes: bool) -> float:
        """Seconds until all devices have the whole gradient."""
        if devices < 2:
            return 0.0
        first, more = (self.remote_s, self.remote_more_s) if several_nodes else (self.local_s, self.local_more_s)
        return first + more * (devices - 2)

    def step_s(self, batch: float, devices: int, several_nodes: bool) -> float:
        """Seconds of one step."""
        gradient_s, exchange_s = self.gradient_s(batch, devices), self.exchange_s(devices, several_nodes)
        longer = max(gradient_s, exchange_s)
        if not exchange_s or not longer:
            return longer
        shorter = min(gradient_s, exchange_s) / longer
        return longer * float((1.0 + shorter**self.overlap) ** (1.0 / self.overlap))


class Batches(NamedTuple):
    """Which batches a model may be trained with, and how noisy its gradient is, all in examples."""

    own: int
    """The batch that its user chose: an example in it counts as 1."""
    most: int
    most_per_device: int
    noise: float
    """The gradient noise scale: up to about this batch an example is worth almost as much as in a small one."""

    def efficiency(self, batch: float) -> float:
        """What an example in such a batch is worth against one in the user's own."""
        return (self.noise + self.own) / (self.noise + batch)

    def choices(self, devices: int) -> list[float]:
        """Batches to choose from on so many devices, smallest first."""
        largest = max(min(self.most, self.most_per_device * devices), self.own)
        ratio = (largest / self.own) ** (1.0 / (_BATCHES - 1))
        return [self.own * ratio**at for at in range(_BATCHES)] if ratio > 1.0 else [float(self.own)]


class BestBatch(NamedTuple):
    """The batch that makes most of some devices, and the examples' worth a second that it gives."""

    goodput: float
    batch: float


def best_batch(times: StepTime, batches: Batches, devices: int, several_nodes: bool) -> BestBatch:
    """The batch with the highest goodput."""
    best = BestBatch(-math.inf, 0.0)
    for batch in batches.choices(devices):
        goodput = batch / times.step_s(batch, devices, several_nodes) * batches.efficiency(batch)
        best = max(best, BestBatch(goodput, batch))
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What is true of a model; only the simulated world knows it."""

    times: StepTime
    batches: Batches


class Sample(NamedTuple):
    """A measured step: how long one with this batch took."""

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
"""Models whose training is known, by name."""


@lru_cache(maxsize=100_000)
def best_of(model: str, devices: int, several_nodes: bool) -> BestBatch:
    """The best that a model of known training can do."""
    known = TRAININGS[model]
    return best_batch(known.times, known.batches, devices, several_nodes)


@lru_cache(maxsize=100_000)
def steps_tried(model: str, devices: int, several_nodes: bool) -> tuple[Sample, ...]:
    """What a job that tries the smallest, the best and the largest of its batches finds."""
    known = TRAININGS[model]
    choices = known.batches.choices(devices)
    tried = sorted({choices[0], best_of(model, devices, several_nodes).batch, choices[-1]})
    return tuple(Sample(batch, known.times.step_s(batch, devices, several_nodes)) for batch in tried)
