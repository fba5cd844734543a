"""Measured speeds: steps a second of a model, by device type and number of devices."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError, did_you_mean
from rota.core.model import DeviceType

SpeedKey = tuple[DeviceType, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """Whole-job steps a second, keyed by (device type, model, devices). 0 means that it can't run there."""

    steps_per_s: Mapping[SpeedKey, float]
    source: str

    def rate(self, device_type: DeviceType, model: str, devices: int) -> float | None:
        """The speed of a model there, or None if it was not measured."""
        return self.steps_per_s.get((device_type, model, devices))

    def fastest(self, model: str, devices: int) -> float:
        """The best speed of a model on any type."""
        speeds = [rate for (_, name, count), rate in self.steps_per_s.items() if name == model and count == devices]
        if not speeds:
            known = {name for _, name, _ in self.steps_per_s}
            hint = f"it has none for {devices} devices" if model in known else did_you_mean(model, known)
            raise RotaError(f"profiles {self.source}: no speed of model {model!r}; {hint}")
        return max(speeds)


def read_profiles(path: Path) -> Profiles:
    """Speeds from Gavel's throughput JSON: type -> "('model', devices)" -> {"null": steps/s, ...}."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise RotaError(f"profiles {path}: can't be read: {err.strerror}") from err
    except ValueError as err:
        raise RotaError(f"profiles {path}: this is not JSON: {err}") from err
    speeds: dict[SpeedKey, float] = {}
    try:
        for device_type, models in table.items():
            for key, rates in models.items():
                model, devices = ast.literal_eval(key)
                speeds[(DeviceType(device_type), str(model), int(devices))] = _alone(rates)
    except (AttributeError, ValueError, SyntaxError, TypeError, KeyError) as err:
        raise RotaError(f"profiles {path}: it is not in Gavel's form: {err}") from err
    return Profiles(steps_per_s=speeds, source=str(path))


def _alone(rates: Any) -> float:
    return float(rates["null"])
