"""Podman: containers as descendants of the task, in the task's cgroup, each with a store of its own.

Stores of images are only read. What a container writes, its locks and its records lie in a folder of its own: no
container waits for another, and nothing is left of one once its folder is removed, however it ended.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError
from rota.drivers.local.containers.plan import ContainerCommand, ContainerPlan
from rota.drivers.local.containers.seccomp_profile import write_profile
from rota.drivers.local.containers.settings import SEARCHED
from rota.drivers.local.containers.short_folder import make_short
from rota.store.run_folder import Json

INFO_S = 60.0
NO_COMMAND = 127
"""The exit code of a container that lacks its command."""
INITS = ("/usr/libexec/podman/catatonit", "/usr/bin/catatonit")
DRIVERS = ("overlay", "vfs", "btrfs", "zfs")
RUNTIME = "crun"
"""The only program below Podman that leaves a container in the cgroup of its caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodmanStore:
    """Where the manager's own images are, and how they are stored."""

    folder: Path
    driver: str
    options: tuple[str, ...]


def fault_of_podman() -> str:
    """Return why Podman starts no containers here; empty if it does. It needs no image: that of the trial is empty."""
    program = shutil.which("podman", path=SEARCHED)
    if program is None:
        return "podman is not installed"
    limits = ("--ulimit", "nofile=256:256", "--ulimit", "nproc=1000:1000")
    with tempfile.TemporaryDirectory() as empty:
        words = [program, "--runtime", RUNTIME, "run", "--rm", "--network=host", "--cgroups=disabled", *limits]
        try:
            done = subprocess.run(
                [*words, "--rootfs", empty, "/nothing"],
                capture_output=True,
                text=True,
                timeout=INFO_S,
                check=False,
                stdin=subprocess.DEVNULL,
                cwd="/",
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)[:300]
    if done.returncode == NO_COMMAND:  # the container was there, and its command was looked for
        return ""
    return next((line for line in reversed(done.stderr.splitlines()) if line), f"exit code {done.returncode}")[:300]


@lru_cache(maxsize=4)
def own_store(program: str) -> PodmanStore:
    """Return the store of this process's user. Raises a `RotaError` if Podman does not work here."""
    try:
        done = subprocess.run(
            [program, "info", "--format", "json"],
            capture_output=True,
            text=True,
            timeout=INFO_S,
            check=True,
            stdin=subprocess.DEVNULL,
            cwd="/",
        )
        store: Json = json.loads(done.stdout)["store"]
        return PodmanStore(
            folder=Path(store["graphRoot"]),
            driver=str(store["graphDriverName"]),
            options=tuple(_options(store.get("graphOptions") or {})),
        )
    except subprocess.CalledProcessError as error:
        raise RotaError(f"podman does not work here: {error.stderr.strip().rpartition(chr(10))[2][:300]}") from error
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
        raise RotaError(f"podman does not work here: {error}") from error


def podman_command(plan: ContainerPlan) -> ContainerCommand:
    """Return how Podman runs a task."""
    ours, private = _private(plan)
    pidfile = plan.folder / "pid"
    return ContainerCommand(
        run=(*ours, "run", *_options_of_run(plan, pidfile)),
        image=plan.image,
        enter=(*ours, "exec"),
        env=private,
        pidfile=pidfile,
        binds=not plan.is_rootless,
    )


def find_init() -> str | None:
    """Return the program that is the first process of a container and hands signals on; None if none is installed."""
    return next((path for path in INITS if os.access(path, os.X_OK)), None)


def _private(plan: ContainerPlan) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the words and variables by which Podman keeps to the folder of this container."""
    own = own_store(plan.containers.program)
    stores = [path for path in (*plan.containers.images, own.folder) if path.is_dir()]
    driver = _driver(stores, own, plan.image)
    folder = plan.folder
    for name in ("root", "tmp", "home", "xdg"):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    words = [plan.containers.program, "--root", str(folder / "root"), "--runroot", str(make_short(folder, plan.name))]
    words += ["--tmpdir", str(folder / "tmp"), "--storage-driver", driver]
    options = [f"{driver}.imagestore={path}" for path in stores if _holds(path, driver)]
    options += own.options if driver == own.driver else ()
    words += [word for option in options for word in ("--storage-opt", option)]
    words += ["--runtime", RUNTIME, "--cgroup-manager", "cgroupfs", "--events-backend", "none", "--log-level", "fatal"]
    env = {"PATH": SEARCHED, "LANG": "C.UTF-8", "XDG_RUNTIME_DIR": str(folder / "xdg")}
    if plan.user is None:  # it runs as the manager's user, whose configuration applies
        env |= {name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME") if name in os.environ}
    return tuple(words), {"HOME": str(folder / "home"), **env}


def _options_of_run(plan: ContainerPlan, pidfile: Path) -> list[str]:
    """Return the options that keep a container to what the task may have."""
    words = ["--rm", "--name", plan.name, "--pidfile", str(pidfile), f"--pull={plan.containers.pull.value}"]
    words += ["--cgroups=disabled", "--network=host", "--uts=host", "--ipc=private", "--no-hosts"]
    words += ["--cap-drop=all", "--security-opt=no-new-privileges", "--security-opt=label=disable"]
    words += ["--http-proxy=false", "--entrypoint=", "--workdir", plan.workdir]
    profile = write_profile(plan.folder) if plan.refuses_calls else None
    words += [] if profile is None else [f"--security-opt=seccomp={profile}"]
    init = find_init()
    words += [] if init is None else ["--init", f"--init-path={init}"]
    words += [f"--ulimit={name}={soft}:{hard}" for name, soft, hard in plan.limits]
    words += [f"--device={name}" for name in plan.gpus]
    words += _user(plan)
    words += ["--interactive"] if plan.interactive else []
    words += ["--tty", "--log-driver=none"] if plan.tty else ["--log-driver=passthrough"]
    return words


def _user(plan: ContainerPlan) -> list[str]:
    """Return the options for the user inside: the job's own numbers, or the root of a rootless container.

    That root is the manager's user for the machine, and has no capabilities.
    """
    if plan.is_rootless:
        return ["--user=0:0", "--group-add=keep-groups"]
    if plan.user is None:
        return ["--user=0:0"]
    groups = [group for group in plan.user.groups if group != plan.user.gid]
    return [f"--user={plan.user.uid}:{plan.user.gid}", *(f"--group-add={group}" for group in groups)]


def _driver(stores: list[Path], own: PodmanStore, image: str) -> str:
    """Return how the store keeps its layers that has the image: one container can use one kind of store only."""
    kinds = [(path, driver) for path in stores for driver in DRIVERS if _holds(path, driver)]
    for path, driver in kinds:
        if _has_image(path, driver, image):
            return driver
    return kinds[0][1] if kinds else own.driver


def _holds(store: Path, driver: str) -> bool:
    return (store / f"{driver}-images" / "images.json").is_file()


def _has_image(store: Path, driver: str, image: str) -> bool:
    name = image if ":" in image.rpartition("/")[2] or "@" in image else f"{image}:latest"
    try:
        known: Any = json.loads((store / f"{driver}-images" / "images.json").read_text(encoding="utf-8"))
        names = [str(each) for entry in known for each in entry.get("names") or ()]
    except (OSError, ValueError, AttributeError, TypeError):
        return False
    return any(each == name or each.endswith(f"/{name}") for each in names)


def _options(found: Mapping[str, object]) -> list[str]:
    """Return the options of a store as they are given on the command line."""
    words = []
    for name, value in sorted(found.items()):
        text = value.get("Executable") if isinstance(value, dict) else value
        if isinstance(text, str) and "." in name:
            words.append(f"{name}={text}")
    return words


def is_complete() -> bool:
    """Whether all is there that Podman needs to run tasks."""
    return shutil.which(RUNTIME, path=SEARCHED) is not None
