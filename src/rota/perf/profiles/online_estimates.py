"""Speed estimates corrected online: an observation of a job counts for all jobs of its model."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Any

from rota.core.model.job import DeviceType
from rota.perf.profiles.partial_profiles import Gaps, SpeedEstimate, refit
from rota.perf.profiles.speed_table import PairKey, SpeedKey

NOISE = 0.05
"""Standard deviation of the logarithm of one observation."""
_TRUSTED = 0.02
"""The same for a figure that was given as known."""
_UNTESTED = 0.5
"""The same for an estimate whose error could not be measured."""
_NOTABLE = 0.001
"""Relative correction of a speed below which nothing has changed."""
_REFIT_PART = 20
"""Estimates are fitted again when one in this many figures was newly observed."""


@dataclass(slots=True)
class _Belief:
    """Prior of a speed, its precision, and the observations since."""

    prior: float
    deviation: float
    seen: int = 0
    total: float = 0.0

    def mean(self) -> float:
        """The expected speed: prior and observations, weighted by precision."""
        prior_weight, seen_weight = self.deviation**-2, NOISE**-2
        total = self.prior * prior_weight + self.total * seen_weight
        return math.exp(total / (prior_weight + self.seen * seen_weight))


class LearningSpeeds:
    """Estimates corrected by observations, for one run of one policy."""

    is_relative: bool

    def __init__(self, estimate: SpeedEstimate) -> None:
        self._estimate = estimate
        self._profiles = estimate.profiles
        self._alone: dict[SpeedKey, _Belief] = {}
        self._beside: dict[PairKey, _Belief] = {}
        self._unfitted = 0
        self._fitted: tuple[dict[SpeedKey, float], dict[PairKey, float]] = ({}, {})
        self.source = estimate.profiles.source
        self.is_relative = estimate.profiles.is_relative

    @property
    def knows_pairs(self) -> bool:
        """Whether there are measurements of two models on the same devices."""
        return self._profiles.knows_pairs

    @property
    def memory(self) -> Any:
        """Observations so far, and those the present fit is based on, as a serialisable value."""
        return {
            "alone": [[list(key), *astuple(belief)] for key, belief in self._alone.items()],
            "beside": [[list(key), *astuple(belief)] for key, belief in self._beside.items()],
            "fitted": [[[list(key), rate] for key, rate in rates.items()] for rates in self._fitted],
            "unfitted": self._unfitted,
        }

    def recall(self, memory: Any) -> None:
        """Restore what `memory` returned."""
        self._alone = {_key(key): _Belief(*belief) for key, *belief in memory["alone"]}
        self._beside = {_pair_key(key): _Belief(*belief) for key, *belief in memory["beside"]}
        alone, beside = memory["fitted"]
        self._fitted = {_key(key): rate for key, rate in alone}, {_pair_key(key): rate for key, rate in beside}
        self._unfitted = memory["unfitted"]
        self._profiles = refit(self._estimate, *self._fitted) if any(self._fitted) else self._estimate.profiles

    def knows(self, model: str) -> bool:
        """Return whether there is any speed of a model."""
        return self._profiles.knows(model)

    def has_sizes(self, model: str) -> bool:
        """Return whether a model's speeds are in steps at each size."""
        return self._profiles.has_sizes(model)

    def rate(self, device_type: DeviceType, model: str, devices: int, *, scattered: bool = False) -> float | None:
        """Return the expected speed of a model."""
        belief = self._alone.get((device_type, model, devices))
        if belief is not None and not scattered:
            return belief.mean()
        return self._profiles.rate(device_type, model, devices, scattered=scattered)

    def beside(self, device_type: DeviceType, model: str, other: str, devices: int) -> float | None:
        """Return the expected speed of a model packed with another."""
        belief = self._beside.get((device_type, model, other, devices))
        if belief is not None:
            return belief.mean()
        return self._profiles.beside(device_type, model, other, devices)

    def fastest(self, model: str, devices: int) -> float:
        """Return the best initially estimated speed of a model on any type."""
        return self._estimate.profiles.fastest(model, devices)

    def observe(
        self, device_type: DeviceType, model: str, devices: int, rate: float, beside: str | None = None
    ) -> bool:
        """Record the observed speed of a job; return whether it changes the expectation."""
        believed = self.rate(device_type, model, devices)
        belief = self._alone.get((device_type, model, devices))
        if beside is not None:
            believed = self.beside(device_type, model, beside, devices)
            belief = self._beside.get((device_type, model, beside, devices))
        if not (rate > 0 and believed):
            return False
        if belief is None:
            belief = self._first_seen(device_type, model, devices, beside, believed)
        belief.seen += 1
        belief.total += math.log(rate)
        return abs(belief.mean() / believed - 1) > _NOTABLE

    def _first_seen(
        self, device_type: DeviceType, model: str, devices: int, beside: str | None, believed: float
    ) -> _Belief:
        known = self._estimate.known
        gaps: Gaps | None
        if beside is None:
            key = (device_type, model, devices)
            is_guess, gaps = key in known.speeds, self._estimate.speeds
            belief = self._alone[key] = _Belief(math.log(believed), _deviation(is_guess, gaps))
        else:
            pair = (device_type, model, beside, devices)
            is_guess, gaps = pair in known.pairs, self._estimate.pairs
            belief = self._beside[pair] = _Belief(math.log(believed), _deviation(is_guess, gaps))
        self._unfitted += is_guess
        return belief

    def refit(self) -> bool:
        """Fit the estimates again once enough was observed; return whether that happened."""
        if self._unfitted * _REFIT_PART < self._estimate.speeds.known + len(self._alone):
            return False
        self._unfitted = 0
        self._fitted = (
            {key: belief.mean() for key, belief in self._alone.items()},
            {key: belief.mean() for key, belief in self._beside.items()},
        )
        self._profiles = refit(self._estimate, *self._fitted)
        return True


def _key(values: list[Any]) -> SpeedKey:
    kind, model, devices = values
    return DeviceType(kind), model, devices


def _pair_key(values: list[Any]) -> PairKey:
    kind, model, other, devices = values
    return DeviceType(kind), model, other, devices


def _deviation(is_guess: bool, gaps: Gaps | None) -> float:
    if not is_guess:
        return _TRUSTED
    return _UNTESTED if gaps is None or gaps.error is None else max(gaps.error.deviation, NOISE)
