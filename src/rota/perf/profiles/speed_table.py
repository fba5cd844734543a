"""Measured speeds: steps per second of a model, by device type, number of devices, spread and packed model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.job import DeviceType

SpeedKey = tuple[DeviceType, str, int]
PairKey = tuple[DeviceType, str, str, int]


class Speeds(Protocol):
    """Source of speeds: a table of measurements, or estimates that learn."""

    @property
    def source(self) -> str:
        """Origin of the figures, for messages."""

    @property
    def is_relative(self) -> bool:
        """Whether speeds are multiples of the reference device's, for work counted in seconds."""

    @property
    def knows_pairs(self) -> bool:
        """Whether there are measurements of two models on the same devices."""

    def knows(self, model: str) -> bool:
        """Return whether there is any speed of a model."""

    def has_sizes(self, model: str) -> bool:
        """Return whether a model's speeds are in steps at each size, so that no rule of scaling applies to them."""

    def rate(self, device_type: DeviceType, model: str, devices: int, *, scattered: bool = False) -> float | None:
        """Return the speed of a model, None if it was not measured."""

    def beside(self, device_type: DeviceType, model: str, other: str, devices: int) -> float | None:
        """Return the speed of a model packed with another on the same devices, None if it was not measured."""

    def fastest(self, model: str, devices: int) -> float:
        """Return the best speed of a model on any type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """Steps per second of whole jobs, by (device type, model, devices). 0 means that it cannot run there.

    `scattered` has the speeds of jobs whose devices are on several nodes, where measured. A pair is keyed by (device
    type, model, packed model, devices): both models on the same devices, each at its speed. Models in `sized` have
    speeds in steps at every size, also where the others are relative.
    """

    steps_per_s: Mapping[SpeedKey, float]
    source: str
    scattered: Mapping[SpeedKey, float] = field(default_factory=dict)
    pairs: Mapping[PairKey, tuple[float, float]] = field(default_factory=dict)
    is_relative: bool = False
    sized: frozenset[str] = frozenset()
    _best: dict[str, dict[int, float]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        best: dict[str, dict[int, float]] = {}
        for (_, model, devices), rate in self.steps_per_s.items():
            counts = best.setdefault(model, {})
            counts[devices] = max(rate, counts.get(devices, 0.0))
        object.__setattr__(self, "_best", best)

    @property
    def knows_pairs(self) -> bool:
        """Whether there are measurements of two models on the same devices."""
        return bool(self.pairs)

    def knows(self, model: str) -> bool:
        """Return whether there is any speed of a model."""
        return model in self._best

    def has_sizes(self, model: str) -> bool:
        """Return whether a model's speeds are in steps at each size, so that no rule of scaling applies to them."""
        return model in self.sized

    def rate(self, device_type: DeviceType, model: str, devices: int, *, scattered: bool = False) -> float | None:
        """Return the speed of a model, None if it was not measured."""
        key = (device_type, model, devices)
        if scattered and key in self.scattered:
            return self.scattered[key]
        return self.steps_per_s.get(key)

    def beside(self, device_type: DeviceType, model: str, other: str, devices: int) -> float | None:
        """Return the speed of a model packed with another on the same devices, None if it was not measured."""
        pair = self.pairs.get((device_type, model, other, devices))
        return None if pair is None else pair[0]

    def fastest(self, model: str, devices: int) -> float:
        """Return the best speed of a model on any type."""
        counts = self._best.get(model, {})
        if devices not in counts:
            hint = f"it has none for {devices} devices" if counts else did_you_mean(model, self._best)
            raise RotaError(f"profiles {self.source}: no speed of model {model!r}; {hint}")
        return counts[devices]

    def relative_to(self, reference: DeviceType) -> Profiles:
        """Return every speed as a multiple of the same model's on the reference type, with as many devices.

        For work counted in seconds there. Models without a speed there are left out.
        """

        def share(model: str, devices: int) -> float:
            return self.steps_per_s.get((reference, model, devices), 0.0)

        def divided(speeds: Mapping[SpeedKey, float]) -> dict[SpeedKey, float]:
            return {key: rate / share(*key[1:]) for key, rate in speeds.items() if share(*key[1:]) > 0}

        pairs = {
            key: (rates[0] / share(key[1], key[3]), rates[1] / share(key[2], key[3]))
            for key, rates in self.pairs.items()
            if share(key[1], key[3]) > 0 and share(key[2], key[3]) > 0
        }
        return replace(
            self,
            steps_per_s=divided(self.steps_per_s),
            scattered=divided(self.scattered),
            pairs=pairs,
            is_relative=True,
        )
