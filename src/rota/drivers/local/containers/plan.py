"""What a container is to be, whatever runs it, and what a supervisor has to know to run it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rota.core.errors import RotaError
from rota.drivers.local.containers.settings import Containers
from rota.drivers.local.containers.volumes import MountedVolume
from rota.store.run_folder import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerUser:
    """The user of a container's processes, by numbers of the machine."""

    uid: int
    gid: int
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan:
    """One task in a container."""

    containers: Containers
    name: str
    image: str
    workdir: str
    folder: Path
    """Where the runtime keeps what is of this container only; removed with all in it after the end."""
    user: ContainerUser | None
    """None: the manager's own."""
    manager_uid: int
    interactive: bool
    """Whether its standard input is a user's."""
    tty: bool
    gpus: tuple[str, ...]
    """The names under which the runtime knows its GPUs."""
    limits: tuple[tuple[str, int, int], ...]
    """Limits of the runtime's own process, soft and hard, which a container may not exceed."""
    cpu_milli: int
    memory_bytes: int
    processes: int
    refuses_calls: bool
    """Whether the system calls are refused that confined tasks are refused."""
    implied: tuple[tuple[MountedVolume, str], ...]
    """What is mounted beside the job's own volumes, and whose right to it counts: see `mounts`."""
    volumes: tuple[MountedVolume, ...]

    @property
    def is_rootless(self) -> bool:
        """Whether the runtime runs as an ordinary user."""
        return self.manager_uid != 0

    def mounts(self) -> list[list[object]]:
        """What is mounted: source, target, whether read-only, and whose right to it counts.

        `manager`: it is the manager's own, or an admin named it; `user`: it is looked up as the job's user;
        `user-if-there`: likewise, and left out where there is none.
        """
        found = [(volume, whose) for volume, whose in self.implied] + [(volume, "user") for volume in self.volumes]
        chosen = {volume.target for volume in self.volumes}
        for volume, _ in found:
            for path in (volume.source, volume.target):
                if {":", ",", "\n"} & {*path} or not path.startswith("/"):
                    raise RotaError(f"{path!r:.200} can't be mounted: it is not absolute, or holds a colon or a comma")
        return [
            [volume.source, volume.target, volume.read_only, whose]
            for volume, whose in found
            if whose == "user" or volume.target not in chosen
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerCommand:
    """The words with which a runtime runs a container, and those with which it starts a command in it."""

    run: tuple[str, ...]
    """Up to the volumes, the image and the command."""
    image: str
    enter: tuple[str, ...]
    """Up to the command of a session, its terminal and working directory."""
    env: dict[str, str]
    """The runtime's own variables, of which none are the job's."""
    remove: tuple[str, ...] = ()
    """What removes the container where its processes are not the task's."""
    kill: tuple[str, ...] = ()
    """What sends it a signal there, up to the signal and the name."""
    pidfile: Path | None = None
    """Where the runtime writes its first process."""
    as_user: bool = False
    """Whether the runtime itself runs as the job's user."""
    binds: bool = False
    """Whether folders are opened as the job's user and handed over by their descriptors."""
    env_by_prefix: str = ""
    """The prefix under which the job's variables are handed over, if not by a file."""

    def order(self, plan: ContainerPlan) -> Json:
        """Return what the supervisor has to know."""
        return {
            "runtime": plan.containers.runtime.value if plan.containers.runtime else "",
            "name": plan.name,
            "run": list(self.run),
            "image": self.image,
            "enter": list(self.enter),
            "env": self.env,
            "remove": list(self.remove),
            "kill": list(self.kill),
            "pidfile": None if self.pidfile is None else str(self.pidfile),
            "as_user": self.as_user,
            "binds": self.binds,
            "env_by_prefix": self.env_by_prefix,
            "folder": str(plan.folder),
            "mounts": plan.mounts(),
        }
