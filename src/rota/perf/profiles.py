"""Measured speeds: steps a second of a model, by device type, number of devices, spread and neighbour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rota.core.errors import RotaError, did_you_mean
from rota.core.model import DeviceType

SpeedKey = tuple[DeviceType, str, int]
PairKey = tuple[DeviceType, str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """Whole-job steps a second, keyed by (device type, model, devices). 0 means that it can't run there.

    `scattered` holds the speeds of jobs whose devices are on several nodes, where that was measured. A pair is
    keyed by (device type, model, model beside it, devices): both models on the same devices, each at its speed.
    """

    steps_per_s: Mapping[SpeedKey, float]
    source: str
    scattered: Mapping[SpeedKey, float] = field(default_factory=dict)
    pairs: Mapping[PairKey, tuple[float, float]] = field(default_factory=dict)

    def rate(self, device_type: DeviceType, model: str, devices: int, *, scattered: bool = False) -> float | None:
        """The speed of a model there, or None if it was not measured."""
        key = (device_type, model, devices)
        if scattered and key in self.scattered:
            return self.scattered[key]
        return self.steps_per_s.get(key)

    def beside(self, device_type: DeviceType, model: str, other: str, devices: int) -> float | None:
        """The speed of a model while another runs on the same devices, or None if it was not measured."""
        pair = self.pairs.get((device_type, model, other, devices))
        return None if pair is None else pair[0]

    def fastest(self, model: str, devices: int) -> float:
        """The best speed of a model on any type."""
        speeds = [rate for (_, name, count), rate in self.steps_per_s.items() if name == model and count == devices]
        if not speeds:
            known = {name for _, name, _ in self.steps_per_s}
            hint = f"it has none for {devices} devices" if model in known else did_you_mean(model, known)
            raise RotaError(f"profiles {self.source}: no speed of model {model!r}; {hint}")
        return max(speeds)
