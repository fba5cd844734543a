"""Profile files: Gavel's throughput JSON, and Rota's own format, which adds the source of each figure."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.job import DeviceType
from rota.perf.profiles.speed_table import PairKey, Profiles, SpeedKey

OWN = "rota_profiles"
VERSION = 1
_SCATTERED = "_unconsolidated"
"""Gavel's suffix of a type for jobs whose devices are on several nodes."""


def read_profiles(path: Path) -> Profiles:
    """Read speeds from a file in either format, detected by its content."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise RotaError(f"profiles {path}: can't be read: {err.strerror}") from err
    except ValueError as err:
        raise RotaError(f"profiles {path}: this is not JSON: {err}") from err
    if not isinstance(table, dict):
        raise RotaError(
            f"profiles {path}: it is a {type(table).__name__}, not an object; see docs/reference/profiles.md"
        )
    return _read_own(table, path) if OWN in table else _read_gavel(table, path)


def write_profiles(profiles: Profiles, path: Path) -> None:
    """Write speeds in Rota's own format; a pair is written once."""
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
    value: dict[str, Any] = {OWN: VERSION, "source": profiles.source, "speeds": speeds, "pairs": pairs}
    if profiles.is_relative:
        value["relative"] = True
    if profiles.sized:
        value["sized"] = sorted(profiles.sized)
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _read_gavel(table: dict[str, Any], path: Path) -> Profiles:
    """Read type -> "('model', devices)" -> {"null": steps/s alone, "('other', devices)": [its own, the other's]}."""
    speeds: dict[SpeedKey, float] = {}
    scattered: dict[SpeedKey, float] = {}
    pairs: dict[PairKey, tuple[float, float]] = {}
    for name, models in table.items():
        kind = DeviceType(name.removesuffix(_SCATTERED))
        if not isinstance(models, dict):
            raise RotaError(
                f"profiles {path}: {name!r} is not an object of models; this is neither Gavel's format nor Rota's own, "
                f'which has "{OWN}": {VERSION}'
            )
        for key, rates in models.items():
            try:
                model, devices = _gavel_key(key)
                alone = _speed(rates["null"])
                packed = {} if name.endswith(_SCATTERED) else _gavel_pairs(rates, devices)
            except KeyError:
                raise RotaError(f'profiles {path}: {name}: {key}: the speed alone, "null", is missing') from None
            except (ValueError, TypeError, AttributeError) as err:
                raise RotaError(f"profiles {path}: {name}: {key}: {err}") from err
            if name.endswith(_SCATTERED):
                scattered[(kind, model, devices)] = alone
            else:
                speeds[(kind, model, devices)] = alone
                pairs.update({(kind, model, other, devices): both for other, both in packed.items()})
    return Profiles(steps_per_s=speeds, source=str(path), scattered=scattered, pairs=pairs)


@cache
def _gavel_key(key: str) -> tuple[str, int]:
    try:
        model, devices = ast.literal_eval(key)
        return str(model), int(devices)
    except (ValueError, SyntaxError, TypeError) as err:
        raise ValueError(f"{key!r} is not of the form ('MODEL', DEVICES)") from err


def _gavel_pairs(rates: dict[str, Any], devices: int) -> dict[str, tuple[float, float]]:
    pairs = {}
    for key, both in rates.items():
        if key == "null":
            continue
        other, size = _gavel_key(key)
        if size != devices:
            raise ValueError(f"paired with {key}, which has another number of devices")
        if not isinstance(both, list) or len(both) != 2:
            raise ValueError(f"packed with {key} it has {both!r}; expected two speeds, its own and the other's")
        pairs[other] = (_speed(both[0]), _speed(both[1]))
    return pairs


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
    relative = table.get("relative", False)
    if not isinstance(relative, bool):
        raise RotaError(f"profiles {path}: relative is {relative!r}; it must be true or false")
    sized = table.get("sized", [])
    if not isinstance(sized, list) or not all(isinstance(model, str) for model in sized):
        raise RotaError(f"profiles {path}: sized is {sized!r}; it must be a list of models")
    return Profiles(
        steps_per_s=speeds,
        source=str(path),
        scattered=scattered,
        pairs=pairs,
        is_relative=relative,
        sized=frozenset(sized),
    )


def _each(table: dict[str, Any], name: str, read: Callable[[dict[str, Any]], None], path: Path) -> None:
    rows = table.get(name, [])
    if not isinstance(rows, list):
        raise RotaError(f"profiles {path}: {name} is {rows!r}; it must be a list")
    for number, row in enumerate(rows, start=1):
        try:
            read(row)
        except KeyError as err:
            raise RotaError(f"profiles {path}: entry {number} of {name} has no {err.args[0]!r}") from err
        except (ValueError, TypeError, AttributeError) as err:
            raise RotaError(f"profiles {path}: entry {number} of {name} is wrong: {err}") from err


def _speed(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf:
        raise ValueError(f"a speed is {value!r}; it must be a number of 0 or more")
    return float(value)
