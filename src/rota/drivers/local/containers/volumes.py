"""The volumes of a job, as its file names them, checked; and the name of its image."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from rota.core.errors import RotaError

MOST_VOLUMES = 64
MOST_NAME = 512
MOST_PATH = 1024
_PATH = re.compile(r"/[A-Za-z0-9._@+=~ -]+(/[A-Za-z0-9._@+=~ -]+)*", re.ASCII)
"""Paths without colons and commas, which separate the parts of a runtime's options, and without control characters."""
_IMAGE = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
_TRANSPORTS = frozenset(
    ("atomic", "containers-storage", "dir", "docker", "docker-archive", "docker-daemon", "oci", "oci-archive")
) | frozenset(("ostree", "sif", "tarball"))
"""What Podman takes for the kind of a place, not for a name, in front of a colon."""
_OF_CONTAINER = ("/proc", "/sys", "/dev")
"""What a container has of its own; only `/dev/shm` is mounted there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedVolume:
    """A file or folder of the machine, and where a container finds it."""

    source: str
    target: str
    read_only: bool


def image_name(text: str) -> str:
    """Return the name of an image, or a file of Apptainer's; raises a `RotaError` for what is neither.

    What a runtime could take for an option, for a transport or for another argument is no name.
    """
    is_short = len(text) <= MOST_NAME  # asked before anything looks at each letter
    is_file = (
        is_short
        and text.endswith(".sif")
        and _PATH.fullmatch(text) is not None
        and ".." not in PurePosixPath(text).parts
    )
    is_name = is_short and _IMAGE.fullmatch(text) is not None and text.partition(":")[0] not in _TRANSPORTS
    if not (is_file or is_name):
        raise RotaError(f"job: image is {text!r:.80}; write it like pytorch/pytorch:2.5.1 or localhost/mine:1")
    return text


def volumes_of(texts: Iterable[str]) -> tuple[MountedVolume, ...]:
    """Return the volumes that are written like `/data:/data:ro`."""
    found = tuple(_volume(number, text) for number, text in enumerate(texts))
    if len(found) > MOST_VOLUMES:
        raise RotaError(f"job: volumes has {len(found)} entries; at most {MOST_VOLUMES} are possible")
    targets: set[str] = set()
    for number, volume in enumerate(found):
        if volume.target in targets:
            raise RotaError(f"job: volumes[{number}] is mounted at {volume.target}, as another one is")
        targets.add(volume.target)
    return found


def refuse_other_folders(volumes: Iterable[MountedVolume], allowed: Iterable[str], *, exactly: bool) -> None:
    """Raise a `RotaError` for a volume that is not in one of the folders that may be mounted, or `exactly` one."""
    folders = [PurePosixPath(each) for each in allowed]
    for volume in volumes:
        source = PurePosixPath(volume.source)
        if source not in folders and (exactly or not any(source.is_relative_to(folder) for folder in folders)):
            names = ", ".join(map(str, folders)) or "none"
            raise RotaError(f"job: volumes: {volume.source} may not be mounted here; what may be: {names}")


def _volume(number: int, text: str) -> MountedVolume:
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if mode not in ("", "ro", "rw") or not source or not target:
        raise RotaError(f"job: volumes[{number}] is {text!r:.200}; write it like /data:/data:ro")
    for path in (source, target):
        if not _is_plain(path):
            raise RotaError(
                f"job: volumes[{number}] is {text!r:.200}; {path!r:.80} must be an absolute path of letters, digits, "
                "spaces and ._@+=~- without `..`"
            )
    if any(PurePosixPath(target).is_relative_to(each) for each in _OF_CONTAINER):
        raise RotaError(f"job: volumes[{number}] is {text!r:.200}; a container has its own {target}")
    return MountedVolume(source=os.path.normpath(source), target=os.path.normpath(target), read_only=mode == "ro")


def _is_plain(path: str) -> bool:
    is_short = len(path) <= MOST_PATH
    return is_short and _PATH.fullmatch(path) is not None and not {"..", "."} & {*path.split("/")}
