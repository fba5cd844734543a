"""What the driver of this machine's GPUs can do beyond running programs."""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import subprocess
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.drivers.local.task_runner.nvml import find_nvml

log = logging.getLogger("rota.drivers.local")
LIBRARY = "libcuda.so.1"
LAUNCHER = "cuda-checkpoint"
"""NVIDIA's program that starts a job whose processes can be suspended together."""
CRIU = "criu"
CHECK_S = 20.0
_SUSPENDS_SINCE, _MOVES_SINCE, _SEVERAL_SINCE = 570, 580, 590
"""The releases from which processes can be suspended; memory can be restored onto other GPUs than it came from; several
processes of a job can be suspended together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskWriter:
    """The program that writes suspended processes to disk, and after how long."""

    program: str
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAbilities:
    """The library that suspends processes, and the GPUs' names by index."""

    library: str
    uuids: tuple[str, ...] = ()
    launcher: str | None = None
    """The program with which tasks are started so that several of their processes can be suspended together."""
    several: str | None = None
    """Why several processes of a job can't be suspended together; None if they can."""
    writer: DiskWriter | None = None
    """Writes jobs to disk that wait suspended; None: they stay in host memory."""


def gpu_abilities() -> GpuAbilities | None:
    """Return what the driver can do; None if it can't suspend processes, or a resumed job might get another GPU."""
    found = find_nvml()
    if found is None:
        return None
    release, uuids = found.release(), tuple(found.uuids())
    try:
        ctypes.CDLL(LIBRARY).cuCheckpointProcessLock  # noqa: B018  # drivers from 570 on have it
    except (OSError, AttributeError):
        _tell(f"the driver {release} can't suspend processes: {_SUSPENDS_SINCE} or later is needed")
        return None
    if len(uuids) > 1 and release < _MOVES_SINCE:
        _tell(f"the driver {release} can't move processes between {len(uuids)} GPUs: {_MOVES_SINCE} can")
        return None
    launcher = shutil.which(LAUNCHER)
    several = None
    if release < _SEVERAL_SINCE:
        several = f"the driver {release} suspends one process of a job only, {_SEVERAL_SINCE} or later several"
    elif launcher is None:
        several = f"{LAUNCHER} is not installed, with which jobs of several processes must be started"
    return GpuAbilities(library=LIBRARY, uuids=uuids, launcher=launcher if several is None else None, several=several)


def disk_writer(after_s: float) -> DiskWriter:
    """Return what writes suspended jobs to disk; raise a `RotaError` that says why if that can't be done here."""
    program = shutil.which(CRIU)
    if program is None:
        raise RotaError(f"gpu.to_disk: {CRIU} is not installed; install CRIU 4 or later, or leave it out")
    if os.geteuid() != 0:
        raise RotaError(f"gpu.to_disk: {CRIU} needs root, and this manager does not run as root; leave it out")
    try:
        checked = subprocess.run([program, "check"], capture_output=True, text=True, timeout=CHECK_S, check=False)
        why = "" if checked.returncode == 0 else (checked.stderr + checked.stdout).strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
        checked = None
    if checked is None or checked.returncode:
        first = next((line for line in why.splitlines() if "Error" in line), why[:200] or "no reason given")
        raise RotaError(f"gpu.to_disk: `{CRIU} check` refuses this machine: {first.strip()}")
    return DiskWriter(program=program, after_s=after_s)


def _tell(why: str) -> None:
    log.warning("preempted jobs on GPUs start over unless they save", extra={"why": why})
