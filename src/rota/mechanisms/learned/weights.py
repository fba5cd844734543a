"""File of a learned placement: plain arrays, validated on load. Nothing in it is executed."""

from __future__ import annotations

import json
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import RotaError
from rota.mechanisms.learned.actor import Network, are_sound, checked

VERSION = 1
RESOURCES = ("devices", "cores")
"""The free resources of a server that are inputs of the network, in this order."""
MOST_BYTES = 50_000_000
_UNREADABLE = (OSError, ValueError, EOFError, AttributeError, TypeError, MemoryError, zlib.error, zipfile.BadZipFile)
"""What NumPy raises for files of another format, or truncated or corrupted ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """A network, the linear model fitted to the same experience, and the provenance of both."""

    network: Network
    linear: NDArray[np.float64]
    about: dict[str, Any] = field(default_factory=dict)


def save_learned(path: Path, learned: Learned) -> None:
    """Write a learned placement."""
    arrays: dict[str, Any] = {f"actor.{name}": weight for name, weight in learned.network.of.items()}
    arrays |= {
        "version": np.array(VERSION),
        "resources": np.array(RESOURCES),
        "kinds": np.array(learned.network.kinds),
        "linear": learned.linear.astype(np.float32),
        "about": np.array(json.dumps(learned.about)),
    }
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def load_learned(path: Path) -> Learned:
    """Read a learned placement; refuse a file that is corrupt, outdated or of another format with the reason."""
    if not path.is_file():
        raise RotaError(f"weights {path}: there is no such file; train weights with `rota learn train`")
    try:
        with zipfile.ZipFile(path) as packed:
            size = sum(each.file_size for each in packed.infolist())
        if size > MOST_BYTES:
            raise RotaError(
                f"weights {path}: larger than {MOST_BYTES // 1_000_000} MB; this is not a placement network"
            )
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except _UNREADABLE as err:
        raise RotaError(f"weights {path}: can't be read: {err}") from None
    try:
        return _learned(arrays)
    except RotaError as err:
        raise RotaError(f"weights {path}: {err}") from None


def _learned(arrays: dict[str, NDArray[Any]]) -> Learned:
    for name in ("version", "resources", "kinds", "linear", "about"):
        if name not in arrays:
            raise RotaError(f"{name!r} is missing; this is not a file of `rota learn train`")
    version = arrays["version"].reshape(-1)
    if version.dtype.kind != "i" or version.tolist() != [VERSION]:
        raise RotaError(f"version {version.tolist()} is not supported, only {VERSION}; train them again")
    resources = tuple(str(name) for name in arrays["resources"].reshape(-1))
    if resources != RESOURCES:
        raise RotaError(f"trained on {', '.join(resources)}, but jobs request {', '.join(RESOURCES)} here")
    kinds = tuple(str(kind) for kind in arrays["kinds"].reshape(-1))
    if len(set(kinds)) < len(kinds):
        raise RotaError(f"a kind occurs twice: {', '.join(kinds)}")
    network = checked(
        kinds, {name.removeprefix("actor."): of for name, of in arrays.items() if name.startswith("actor.")}
    )
    linear = arrays["linear"]
    if linear.shape != (len(kinds) + 1, 2 * (len(kinds) + 1) + 1) or not are_sound(linear):
        raise RotaError("the linear model has the wrong shape, or values that are not finite")
    try:
        about = json.loads(str(arrays["about"]))
    except (ValueError, RecursionError):
        raise RotaError("the record of their training can't be read") from None
    return Learned(network, linear.astype(np.float64), about if isinstance(about, dict) else {})
