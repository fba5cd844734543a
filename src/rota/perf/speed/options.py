"""Speed model options as plain values and back, as journal headers need them for a replay."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.job import DeviceType, Level
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import SpeedModel

_NUMBERS = (
    "scaling",
    "device_neighbour",
    "node_neighbour",
    "turns",
    "spilled",
    "gaps",
    "interleaved",
    "network",
    "scattered",
    "uneven",
    "contention",
    "factor",
)


def encode_speed(speed: SpeedModel) -> dict[str, Any]:
    """Return all options but the profiles, without those at their defaults."""
    usual = SpeedModel()
    value: dict[str, Any] = {
        name: getattr(speed, name) for name in _NUMBERS if getattr(speed, name) != getattr(usual, name)
    }
    if speed.type_speed:
        value["type_speed"] = {str(kind): factor for kind, factor in speed.type_speed.items()}
    if speed.spread:
        value["spread"] = {level.name.lower(): factor for level, factor in speed.spread.items()}
    return value


def decode_speed(value: Mapping[str, Any], profiles: Profiles | None) -> SpeedModel:
    """Return the speed model of encoded options."""
    return SpeedModel(
        profiles=profiles,
        type_speed={DeviceType(kind): factor for kind, factor in value.get("type_speed", {}).items()},
        spread={Level[name.upper()]: factor for name, factor in value.get("spread", {}).items()},
        **{name: value[name] for name in _NUMBERS if name in value},
    )


def fingerprint(path: Path) -> str:
    """Return a hash of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def refuse_other_file(path: Path, sha256: str | None) -> None:
    """Refuse a file other than the one a journal was written with, since its decisions depend on the profiles."""
    if sha256 is not None and path.exists() and fingerprint(path) != sha256:
        raise RotaError(f"profiles {path}: this is not the file that the journal was written with; restore that one")
