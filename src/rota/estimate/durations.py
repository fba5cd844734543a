"""Durations of jobs, learned from those that have ended: an interpretable sum of effects of attributes.

The logarithm of a duration is a mean plus effects of user, name, model, number of devices and hour of submission, and
of some pairs of them: a generalised additive model with pairwise interactions, as Lucid's (Hu et al., ASPLOS 2023).
Effects are fitted one by one to the residuals of the others, and shrunk towards 0 where few jobs support them.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable
from typing import Any

from rota.core.model.job import Job

ATTRIBUTES = ("user", "name", "model", "gpus", "hour")
EFFECTS = (("user",), ("name",), ("model",), ("gpus",), ("hour",), ("user", "model"), ("user", "gpus"))
HELD = 2.0
"""Number of jobs without effect that each effect is shrunk by."""
SWEEPS = 4
MOST = 4000
"""Number of jobs that are remembered."""
EVERY = 0.1
"""Relative growth of the number of ended jobs after which effects are fitted again."""
UNKNOWN_S = 3600.0
"""Duration assumed before any job has ended."""
_NUMBER = re.compile(r"\d+")

Attributes = tuple[str, ...]
Effect = dict[Attributes, float]


class Durations:
    """Estimator that learns from each job that ends."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._seen: deque[tuple[Attributes, float]] = deque(maxlen=MOST)
        self._count = 0
        self._fitted = 0
        self._mean = math.log(UNKNOWN_S)
        self._effects: list[Effect] = [{} for _ in EFFECTS]

    def ended(self, job: Job, submitted_s: float, took_s: float) -> None:
        """Record the duration of a job, without slowdown by others."""
        self._take([(attributes(job, submitted_s), math.log(max(took_s, 1.0)))])

    def estimate_s(self, job: Job, submitted_s: float) -> float:
        """Return the estimated duration of a job."""
        found = attributes(job, submitted_s)
        return math.exp(self._mean + sum(effect.get(key, 0.0) for effect, key in self._parts(found)))

    def _parts(self, found: Attributes) -> list[tuple[Effect, Attributes]]:
        by_name = dict(zip(ATTRIBUTES, found, strict=True))
        return [
            (effect, tuple(by_name[name] for name in names))
            for effect, names in zip(self._effects, EFFECTS, strict=True)
        ]

    def _take(self, seen: Iterable[tuple[Attributes, float]]) -> None:
        for entry in seen:
            self._seen.append(entry)
            self._count += 1
        if self._seen and self._count >= self._fitted * (1.0 + EVERY):
            self._fit()

    def _fit(self) -> None:
        """Fit each effect to the residuals of the mean and the other effects."""
        self._fitted = self._count
        self._mean = math.fsum(log_s for _, log_s in self._seen) / len(self._seen)
        self._effects = [{} for _ in EFFECTS]
        keys = [[key for _, key in self._parts(found)] for found, _ in self._seen]
        left = [log_s - self._mean for _, log_s in self._seen]
        for _ in range(SWEEPS):
            for at, effect in enumerate(self._effects):
                self._effects[at] = _fitted(effect, [key[at] for key in keys], left)

    @property
    def memory(self) -> Any:
        """The observed durations."""
        return [[list(found), log_s] for found, log_s in self._seen]

    def recall(self, memory: Any) -> None:
        """Restore what `memory` returned."""
        self._forget()
        self._take((tuple(found), log_s) for found, log_s in memory)


def _fitted(effect: Effect, keys: list[Attributes], left: list[float]) -> Effect:
    """Return a refitted effect, and subtract it from the residuals."""
    sums: dict[Attributes, float] = {}
    counts: dict[Attributes, int] = {}
    for at, key in enumerate(keys):
        left[at] += effect.get(key, 0.0)
        sums[key] = sums.get(key, 0.0) + left[at]
        counts[key] = counts.get(key, 0) + 1
    found = {key: total / (counts[key] + HELD) for key, total in sums.items()}
    for at, key in enumerate(keys):
        left[at] -= found[key]
    return found


def attributes(job: Job, submitted_s: float) -> Attributes:
    """Return the attributes known before a job runs; digits in its name, which count repetitions, are dropped."""
    name = _NUMBER.sub("#", job.name)
    hour = int(submitted_s // 3600) % 24
    return (job.user or str(job.tenant), name, job.model or "", f"{job.gpus:g}", str(hour))
