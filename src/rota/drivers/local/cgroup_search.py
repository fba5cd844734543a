"""Finds where cgroups can be made for tasks, by trying.

Version 2 has a rule that decides where: only a cgroup without processes of its own can have limited ones below it.
The root of the hierarchy is the exception. So these places are tried in turn:

1. the manager's own cgroup, if the manager is alone there (it moves into a leaf), as systemd's `Delegate=` provides it;
2. the top of the mounted hierarchy. On a host this is the root. In a container it is the container's own cgroup, whose
   processes are moved into a leaf first; they stay below the limits of the container.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rota.drivers.local.cgroup import CONTROLLERS, Cgroups, NoCgroups, TaskLimits, enable
from rota.drivers.local.confinement.device_rules import DeviceNumber

PROBES = {
    "memory": TaskLimits(memory_bytes=64 << 20),
    "cpu": TaskLimits(cpu_milli=1000),
    "pids": TaskLimits(processes=64),
    "devices": TaskLimits(refused=(DeviceNumber(kind="c", major=0, minor=0),)),
}
"""A limit of each controller, to try it; that device does not exist."""
LEAF = "rota-manager"
OTHERS = "rota-others"
MOVE_TRIES = 20
"""How often the processes of a cgroup are moved out of it; they may fork meanwhile."""
_FIRST = (*CONTROLLERS, "devices")


def find(home: Path, proc: Path = Path("/proc/self")) -> Cgroups | NoCgroups:
    """Return how limits can be enforced for the tasks of a manager, found by trying."""
    name = f"rota-{hashlib.sha256(str(home).encode()).hexdigest()[:12]}"
    reasons: list[str] = []
    for version, look in ((2, _second), (1, _first)):
        for parents, missing in look(proc, name, reasons):
            try:
                return _tried(Cgroups(version=version, parents=parents, missing=missing))
            except OSError as error:
                reasons.append(f"cgroup v{version}: {error.strerror}")
    return NoCgroups(why="; ".join(dict.fromkeys(reasons)) or "there is no cgroup file system")


def _tried(found: Cgroups) -> Cgroups:
    """Return what remains of the controllers when a cgroup is made with a limit of each; memory has to remain."""
    try:
        for controller, limits in PROBES.items():
            if controller not in found.parents:
                continue
            alone = {"memory": found.parents["memory"], controller: found.parents[controller]}
            try:
                (found if found.version == 2 else replace(found, parents=alone)).make("probe", limits)
            except OSError as error:
                if controller == "memory":
                    raise
                found = _without(found, controller, error)
        return found
    finally:
        found.remove("probe")
        found.drop_empty()


def _without(found: Cgroups, controller: str, error: OSError) -> Cgroups:
    parents = {name: folder for name, folder in found.parents.items() if name != controller}
    return replace(found, parents=parents, missing={**found.missing, controller: str(error.strerror)})


def _second(proc: Path, name: str, reasons: list[str]) -> Iterator[tuple[Mapping[str, Path], Mapping[str, str]]]:
    """Yield places under version 2, with the controllers that are missing there."""
    for place in _places(proc):
        try:
            offered = (place / "cgroup.controllers").read_text().split()
        except OSError as error:
            reasons.append(f"cgroup v2: {place}: {error.strerror}")
            continue
        if "memory" not in offered:
            reasons.append(f"cgroup v2: {place} has no memory controller")
            continue
        try:
            missing = _hand_down(place, [each for each in CONTROLLERS if each in offered])
            parent = place / name
            if parent.exists():
                enable(parent, [each for each in CONTROLLERS if each in offered and each not in missing])
        except OSError as error:
            reasons.append(f"cgroup v2: {place}: {error.strerror}")
            continue
        for each in CONTROLLERS:
            if each not in offered:
                missing[each] = "not offered"
        yield {each: parent for each in (*CONTROLLERS, "devices") if each not in missing}, missing


def _places(proc: Path) -> list[Path]:
    """Return where tasks' cgroups of version 2 could be made, best first: the own cgroup, then the top."""
    found: dict[Path, None] = {}
    for own, top in _own_folders(proc, ""):
        start = own if own.exists() else top
        if start.name == LEAF or start.name == OTHERS:  # the manager moved there when it was started before
            start = start.parent
        found |= {start: None, top: None}
    return list(found)


def _hand_down(place: Path, wanted: Sequence[str]) -> dict[str, str]:
    """Enable controllers below a cgroup, after its processes were moved if need be; return those that refuse."""
    try:
        return _enabled(place, wanted)
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EOPNOTSUPP):
            raise
        _vacate(place, error)
    return _enabled(place, wanted)


def _enabled(place: Path, wanted: Sequence[str]) -> dict[str, str]:
    """Enable all controllers, or those that can be; memory has to be among them."""
    try:
        enable(place, wanted)
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.EOPNOTSUPP) or len(wanted) == 1:
            raise
        enable(place, ["memory"])
    else:
        return {}
    refusing: dict[str, str] = {}
    for each in wanted[1:]:
        try:
            enable(place, [each])
        except OSError as error:
            refusing[each] = str(error.strerror)
    return refusing


def _vacate(place: Path, cause: OSError) -> None:
    """Move the processes of a cgroup into a leaf below it, if they are the manager alone or a container's."""
    inside = (place / "cgroup.procs").read_text().split()
    if inside == [str(os.getpid())]:
        _move(inside, place / LEAF)
        return
    if not _is_top_of_container(place):
        raise cause
    for _ in range(MOVE_TRIES):
        if not inside:
            return
        _move(inside, place / OTHERS)
        inside = (place / "cgroup.procs").read_text().split()
    raise cause


def _is_top_of_container(place: Path) -> bool:
    """Whether a cgroup is the top of what this machine shows, but not the root of the kernel's hierarchy."""
    return (place / "cgroup.type").exists() and not (place.parent / "cgroup.procs").exists()


def _move(processes: Sequence[str], leaf: Path) -> None:
    leaf.mkdir(exist_ok=True)
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            (leaf / "cgroup.procs").write_text(pid)


def _first(proc: Path, name: str, reasons: list[str]) -> Iterator[tuple[Mapping[str, Path], Mapping[str, str]]]:
    """Yield the place under version 1, which has a hierarchy for each controller."""
    found: dict[str, Path] = {}
    missing: dict[str, str] = {}
    for controller in _FIRST:
        own = next((folder for folder, _ in _own_folders(proc, controller)), None)
        if own is None:
            missing[controller] = "not mounted"
        elif controller != "memory" and not os.access(own, os.W_OK):
            missing[controller] = "not writable"
        else:
            found[controller] = own / name
    if "memory" in found:
        yield found, missing


def _own_folders(proc: Path, controller: str) -> list[tuple[Path, Path]]:
    """This process's own cgroup in the hierarchy of a controller (none: version 2), and the top of that mount.

    There may be several mounts of one hierarchy; those that can be written come first.
    """
    own = None
    for line in (proc / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            own = path
    if own is None:
        return []
    found: list[tuple[bool, Path, Path]] = []
    for line in (proc / "mountinfo").read_text().splitlines():
        fields = line.split()
        root, at, flags = fields[3], Path(fields[4]), fields[5]
        kind, _, options = fields[fields.index("-") + 1 :][:3]
        fits = controller in options.split(",") if controller else True
        if kind == ("cgroup" if controller else "cgroup2") and fits:
            inside = own.removeprefix("/" if root == "/" else root).lstrip("/")
            read_only = "ro" in flags.split(",") or "ro" in options.split(",")
            found.append((read_only, at / inside, at))
    return [(folder, top) for _, folder, top in sorted(found, key=lambda each: each[0])]
