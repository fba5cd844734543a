"""Profile files: Gavel's throughput JSON, and Rota's own form, which adds where each figure comes from."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError
from rota.core.model import DeviceType
from rota.perf.profiles import PairKey, Profiles, SpeedKey

OWN = "rota_profiles"
VERSION = 1
_SCATTERED = "_unconsolidated"
"""Gavel's mark on a type for jobs whose devices are on several nodes."""


def read_profiles(path: Path) -> Profiles:
    """Speeds from a file in either form; which one, its content says."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise RotaError(f"profiles {path}: can't be read: {err.strerror}") from err
    except ValueError as err:
        raise RotaError(f"profiles {path}: this is not JSON: {err}") from err
    if isinstance(table, dict) and OWN in table:
        return _read_own(table, path)
    try:
        return _read_gavel(table, path)
    except (AttributeError, ValueError, SyntaxError, TypeError, KeyError) as err:
        raise RotaError(
            f"profiles {path}: it is not in Gavel's form, and does not say \"{OWN}\": {VERSION} as Rota's own: {err}"
        ) from err


def write_profiles(profiles: Profiles, path: Path) -> None:
    """Speeds in Rota's own form; a pair is written once."""
    speeds: list[dict[str, Any]] = []
    for key, rate in profiles.steps_per_s.items():
        row: dict[str, Any] = {"type": key[0], "model": key[1], "devices": key[2], "steps_per_s": rate}
        if key in profiles.scattered:
            row["scattered_steps_per_s"] = profiles.scattered[key]
        speeds.append(row)
    pairs = [
        {"type": kind, "models": [one, other], "devices": devices, "steps_per_s": list(rates)}
        for (kind, one, other, devices), rates in profiles.pairs.items()
        if one <= other
    ]
    value = {OWN: VERSION, "source": profiles.source, "speeds": speeds, "pairs": pairs}
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _read_gavel(table: Any, path: Path) -> Profiles:
    """type -> "('model', devices)" -> {"null": steps/s alone, "('other', devices)": [its own, the other's]}."""
    speeds: dict[SpeedKey, float] = {}
    scattered: dict[SpeedKey, float] = {}
    pairs: dict[PairKey, tuple[float, float]] = {}
    parsed: dict[str, tuple[str, int]] = {}

    def parse(key: str) -> tuple[str, int]:
        if key not in parsed:
            model, devices = ast.literal_eval(key)
            parsed[key] = (str(model), int(devices))
        return parsed[key]

    for name, models in table.items():
        kind = DeviceType(name.removesuffix(_SCATTERED))
        for key, rates in models.items():
            model, devices = parse(key)
            alone = _speed(rates["null"])
            if name.endswith(_SCATTERED):
                scattered[(kind, model, devices)] = alone
                continue
            speeds[(kind, model, devices)] = alone
            for other_key, both in rates.items():
                if other_key != "null":
                    mine, others = both
                    pairs[(kind, model, parse(other_key)[0], devices)] = (_speed(mine), _speed(others))
    return Profiles(steps_per_s=speeds, source=str(path), scattered=scattered, pairs=pairs)


def _read_own(table: dict[str, Any], path: Path) -> Profiles:
    if table[OWN] != VERSION:
        raise RotaError(f"profiles {path}: {OWN} is {table[OWN]!r}; this Rota reads {VERSION}")
    speeds: dict[SpeedKey, float] = {}
    scattered: dict[SpeedKey, float] = {}
    pairs: dict[PairKey, tuple[float, float]] = {}

    def speed(row: dict[str, Any]) -> None:
        key = (DeviceType(str(row["type"])), str(row["model"]), int(row["devices"]))
        speeds[key] = _speed(row["steps_per_s"])
        if "scattered_steps_per_s" in row:
            scattered[key] = _speed(row["scattered_steps_per_s"])

    def pair(row: dict[str, Any]) -> None:
        (one, other), (mine, others) = row["models"], row["steps_per_s"]
        kind, devices = DeviceType(str(row["type"])), int(row["devices"])
        rates = (_speed(mine), _speed(others))
        pairs[(kind, str(one), str(other), devices)] = rates
        pairs[(kind, str(other), str(one), devices)] = rates[::-1]

    _each(table, "speeds", speed, path)
    _each(table, "pairs", pair, path)
    return Profiles(steps_per_s=speeds, source=str(path), scattered=scattered, pairs=pairs)


def _each(table: dict[str, Any], name: str, read: Callable[[dict[str, Any]], None], path: Path) -> None:
    for number, row in enumerate(table.get(name, ()), start=1):
        try:
            read(row)
        except KeyError as err:
            raise RotaError(f"profiles {path}: entry {number} of {name} has no {err.args[0]!r}") from err
        except (ValueError, TypeError, AttributeError) as err:
            raise RotaError(f"profiles {path}: entry {number} of {name} is wrong: {err}") from err


def _speed(value: Any) -> float:
    speed = float(value)
    if not 0 <= speed < math.inf:
        raise ValueError(f"a speed is {value}; it must be a number of 0 or more")
    return speed
