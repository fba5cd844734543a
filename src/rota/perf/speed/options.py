"""The speed model's options as plain values and back: what a journal's header needs to be run again."""

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
    """All options but the profiles, without what is at its default."""
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
    """The speed model that these options were written of."""
    return SpeedModel(
        profiles=profiles,
        type_speed={DeviceType(kind): factor for kind, factor in value.get("type_speed", {}).items()},
        spread={Level[name.upper()]: factor for name, factor in value.get("spread", {}).items()},
        **{name: value[name] for name in _NUMBERS if name in value},
    )


def fingerprint(path: Path) -> str:
    """What tells a file from any other, whatever its name."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def refuse_other_file(path: Path, sha256: str | None) -> None:
    """A journal's decisions hang on its profiles: another file by the same name would not give them again."""
    if sha256 is not None and path.exists() and fingerprint(path) != sha256:
        raise RotaError(f"profiles {path}: this is not the file that the journal was written with; put that one back")
