"""Built-in catalogue: published training speeds of common models on common device types, with sources.

Speeds that were not published are estimated from the rest, and marked as such.
"""

from __future__ import annotations

import math
import statistics
import tomllib
from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from rota.core.model.job import DeviceType
from rota.perf.profiles.matrix_completion import Fill, Filled, fill_gaps
from rota.perf.profiles.speed_table import Profiles, SpeedKey

REFERENCE = DeviceType("v100")
"""The device in whose seconds work is counted where it is not in steps, as in Gavel's generator."""
NAME = "catalogue"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeEntry:
    """A device type; `memory_gib` is None where a device has no memory of its own."""

    title: str
    kind: str
    source: str
    memory_gib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Samples per second of a job by number of devices on one node; `scattered`: on one device of each of two nodes."""

    source: str
    by_devices: Mapping[int, float]
    scattered: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A model; a step is `batch` samples per device. It does not fit on devices of `too_small_gib` or less."""

    title: str
    unit: str
    batch: int
    speeds: Mapping[DeviceType, Measured]
    parameters: float | None = None
    parameters_source: str | None = None
    too_small_gib: float = 0.0

    @property
    def gradient_bytes(self) -> float | None:
        """Bytes exchanged between devices in a step, at four bytes per parameter."""
        return None if self.parameters is None else 4 * self.parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Samples per second on a number of devices, and the source; 0 where the model does not fit."""

    samples_per_s: float
    source: str | None
    """Key of the source; None for an estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Sources, types and models, by name."""

    sources: Mapping[str, str]
    types: Mapping[DeviceType, TypeEntry]
    models: Mapping[str, ModelEntry]

    def fits(self, model: str, device_type: DeviceType) -> bool:
        """Return whether a model fits on a device, as far as is known."""
        memory = self.types[device_type].memory_gib
        return memory is None or memory > self.models[model].too_small_gib

    def speed(self, model: str, device_type: DeviceType, devices: int) -> Speed:
        """Return the speed of a model on devices of one node, published or estimated."""
        if not self.fits(model, device_type):
            return Speed(samples_per_s=0.0, source=None)
        measured = self.models[model].speeds.get(device_type)
        if measured is not None and devices in measured.by_devices:
            return Speed(samples_per_s=measured.by_devices[devices], source=measured.source)
        single = _singles()[0][(model, device_type)]
        return Speed(samples_per_s=devices * single * self._efficiency(model, device_type, devices), source=None)

    def profiles(self, types: Collection[DeviceType], counts: Collection[int]) -> Profiles:
        """Return the steps per second of all models on these types and numbers of devices."""
        speeds: dict[SpeedKey, float] = {}
        scattered: dict[SpeedKey, float] = {}
        for model, entry in self.models.items():
            for kind in types:
                measured = entry.speeds.get(kind)
                for devices in counts:
                    key = (kind, model, devices)
                    speeds[key] = self.speed(model, kind, devices).samples_per_s / (entry.batch * devices)
                    if measured is not None and measured.scattered is not None and devices > 1:
                        beside = self.speed(model, kind, 2).samples_per_s
                        scattered[key] = speeds[key] * measured.scattered / beside
        return Profiles(steps_per_s=speeds, scattered=scattered, source=NAME)

    def _efficiency(self, model: str, device_type: DeviceType, devices: int) -> float:
        """Return speed per device relative to a single one, interpolated between measured numbers, constant beyond."""
        points = {1: 1.0, **self._measured_efficiency(model, device_type)}
        counts = sorted(points)
        at = bisect_right(counts, devices)
        low = counts[at - 1]
        if at == len(counts) or low == devices:
            return points[low]
        high = counts[at]
        part = math.log(devices / low) / math.log(high / low)
        return points[low] + part * (points[high] - points[low])

    def _measured_efficiency(self, model: str, device_type: DeviceType) -> dict[int, float]:
        """Return efficiencies measured for the model on the type, else for the model, else for all models."""
        entry = self.models[model]
        own = entry.speeds.get(device_type)
        all_rows = [row for other in self.models.values() for row in other.speeds.values()]
        rows = [[own] if own is not None else [], list(entry.speeds.values()), all_rows]
        return next(found for found in map(_efficiencies, rows) if found)


def _efficiencies(rows: Collection[Measured]) -> dict[int, float]:
    """Return the median speed per device relative to a single one, by number of devices."""
    found: dict[int, list[float]] = {}
    for row in rows:
        for devices, speed in row.by_devices.items():
            if devices > 1 and 1 in row.by_devices:
                found.setdefault(devices, []).append(speed / (devices * row.by_devices[1]))
    return {devices: statistics.median(values) for devices, values in found.items()}


@cache
def catalogue() -> Catalogue:
    """Return the catalogue, read once."""
    table = tomllib.loads(files("rota.perf.profiles").joinpath("catalogue.toml").read_text(encoding="utf-8"))
    models = {}
    for name, entry in table["models"].items():
        speeds = {DeviceType(kind): _measured(row) for kind, row in entry.pop("speeds").items()}
        models[name] = ModelEntry(**entry, speeds=speeds)
    return Catalogue(
        sources=table["sources"],
        types={DeviceType(name): TypeEntry(**entry) for name, entry in table["types"].items()},
        models=models,
    )


def estimated() -> Filled:
    """Return how unpublished speeds were estimated, with the error."""
    return _singles()[1]


def _measured(row: dict[str, str | float]) -> Measured:
    scattered = row.get("scattered")
    return Measured(
        source=str(row["source"]),
        by_devices={int(key): float(value) for key, value in row.items() if key.isdigit()},
        scattered=None if scattered is None else float(scattered),
    )


@cache
def _singles() -> tuple[dict[tuple[str, DeviceType], float], Filled]:
    """Return speeds on a single device, published or by matrix completion."""
    book = catalogue()
    models, types = list(book.models), list(book.types)
    values = np.full((len(models), len(types)), np.nan)
    for row, model in enumerate(models):
        for kind, measured in book.models[model].speeds.items():
            count, speed = min(measured.by_devices.items())
            values[row, types.index(kind)] = math.log(speed / count)
    filled = fill_gaps(values, Fill.COMPLETION, seed=0)
    return {
        (model, kind): math.exp(filled.values[row, column])
        for row, model in enumerate(models)
        for column, kind in enumerate(types)
    }, filled
