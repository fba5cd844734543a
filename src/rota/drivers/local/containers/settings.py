"""Which runtime runs containers here, and what jobs may ask of it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.files.up_file import ContainersPart

SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where runtimes are looked for: never where users may write, as the manager's own PATH may be."""
DOCKER_SOCKET = "/run/docker.sock"


class RuntimeName(Enum):
    """A program that runs containers."""

    PODMAN = "podman"
    DOCKER = "docker"
    APPTAINER = "apptainer"


class Pull(Enum):
    """When an image is fetched from its registry."""

    NEVER = "never"
    MISSING = "missing"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class Containers:
    """The runtime of containers and its settings; without a runtime, the reason why there is none."""

    runtime: RuntimeName | None = None
    program: str = ""
    why: str = "no runtime was looked for"
    pull: Pull = Pull.NEVER
    images: tuple[Path, ...] = ()
    """Further places of images: stores of Podman's, or folders with files of Apptainer's."""
    volumes: tuple[str, ...] | None = None
    """Folders of the machine that jobs may mount, with all below them; None: what a job's user can reach."""


def find_containers(part: ContainersPart, *, maps_accounts: bool) -> Containers:
    """Return the runtime of the settings, or with `auto` the first that there is.

    `maps_accounts`: whether tasks run as other users than the manager. Apptainer has then to be asked for by name, as
    the filter of system calls is not applied under it. Raises a `RotaError` if what is asked for by name is not there.
    """
    if part.runtime == "off":
        return Containers(why="containers are off in the manager's settings")
    is_any = part.runtime == "auto"
    reasons = []
    for name in RuntimeName:
        if name.value != part.runtime and not (is_any and (name is not RuntimeName.APPTAINER or not maps_accounts)):
            continue
        program, why = _find(name)
        if not why:
            return Containers(
                runtime=name,
                program=program,
                why="",
                pull=Pull(part.pull),
                images=part.images,
                volumes=part.volumes,
            )
        reasons.append(why)
    if not is_any:
        raise RotaError(f"containers: runtime is {part.runtime}, and {reasons[0]}; install it, or write auto or off")
    return Containers(why="; ".join(reasons))


def runtimes_here() -> dict[RuntimeName, str]:
    """Return why each runtime can't be used; empty for those that can."""
    return {name: _find(name)[1] for name in RuntimeName}


def _find(name: RuntimeName) -> tuple[str, str]:
    """Return a runtime's program, and why it can't be used; empty if it can."""
    program = shutil.which(name.value, path=SEARCHED)
    if program is None:
        return "", f"{name.value} is not installed"
    if name is RuntimeName.DOCKER and not os.access(DOCKER_SOCKET, os.R_OK | os.W_OK):
        return program, f"docker's daemon can't be reached at {DOCKER_SOCKET}"
    if name is RuntimeName.PODMAN and shutil.which("crun", path=SEARCHED) is None:
        return program, "podman is installed without crun"
    return program, ""
