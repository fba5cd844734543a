"""Suspended jobs on disk: written there by CRIU after a time, so that they need no host memory and outlive a reboot."""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rota.core.model.cluster import Node
from rota.core.model.job import JobId
from rota.core.model.placement import Placement
from rota.drivers.local.attempt import Attempt
from rota.drivers.local.gpu.abilities import CRIU
from rota.drivers.local.gpu.held_attempts import changed_devices, placement_before
from rota.drivers.local.launch_order import LaunchOrder
from rota.drivers.local.settings import Settings
from rota.drivers.local.task_runner.criu import IMAGE, RECORD
from rota.drivers.local.task_runner.processes import boot, start_time
from rota.store.run_folder import Json, attempt_folder, read_json, remove_folder, write_json

log = logging.getLogger("rota.drivers.local")
_KEPT = (
    *("started_s", "rests_since_s", "rested_s", "output"),
    *("swap", "swap_bytes", "swap_held_bytes", "swap_out_s", "swap_pids"),
)
"""What the next supervisor has to know of a task."""
_OF_THE_LAST = ("claim", "state.json", "exit.json", "stop.json")
"""Files of the supervisor that wrote the task to disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOnDisk:
    """A job that is on disk: the devices that it left, and its task's folder."""

    placement: Placement
    folder: Path
    state: Json
    """What was known of its task."""

    @property
    def attempt(self) -> int:
        """The number of the attempt in whose folder it is."""
        return int(self.folder.parent.name)

    @property
    def gpu_bytes(self) -> int:
        """How much GPU memory it needs."""
        return int(self.state["swap_held_bytes"])


class DiskImages:
    """Which suspended jobs are on disk, or are being written there."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._home = settings.home
        self._writer = None if settings.gpu is None else settings.gpu.writer
        self._waiting: dict[JobId, tuple[float, int, Placement]] = {}
        """Jobs that wait in memory: since when, and what they wait as."""
        self._asked: set[JobId] = set()
        self._told: set[JobId] = set()
        self.jobs: dict[JobId, JobOnDisk] = {}

    def look(self, attempt: Attempt) -> None:
        """Order that a job which waits suspended is written to disk, when it is time."""
        job_id, task = attempt.job.id, attempt.tasks[0]
        since_s = self._waiting.setdefault(job_id, (time.monotonic(), attempt.number, attempt.placement))[0]
        if self._writer is None or not task.is_on_host:
            return
        if job_id not in self._asked and time.monotonic() >= since_s + self._writer.after_s:
            with contextlib.suppress(OSError):  # the disk is full: it is tried again
                task.order_rest(True, swap={"disk": self._writer.program})
                self._asked.add(job_id)
        if task.state.get("disk_refused") and job_id not in self._told:
            self._told.add(job_id)
            why = task.state["disk_refused"]
            log.warning("a suspended job can't be written to disk", extra={"job": job_id, "why": why})

    def left_memory(self, job_id: JobId) -> None:
        """Take note that a job no longer waits suspended in memory."""
        self._waiting.pop(job_id, None)
        self._asked.discard(job_id)
        self._told.discard(job_id)

    def has_taken(self, job_id: JobId) -> bool:
        """Return whether a job whose processes have ended was written to disk before."""
        waited = self._waiting.get(job_id)
        return waited is not None and self.find(job_id, *waited[1:])

    def find(self, job_id: JobId, attempt: int, placement: Placement) -> bool:
        """Return whether a job is on disk: its record is, and no supervisor looks after its task."""
        folder = attempt_folder(self._home, job_id, attempt).resolve() / "0"
        with contextlib.suppress(OSError, ValueError, KeyError):
            state = read_json(folder / RECORD)
            if state is None or _has_supervisor(folder):
                return False
            self.jobs[job_id] = JobOnDisk(placement=placement, folder=folder, state=state)
            return True
        return False

    def find_linked(self, order: LaunchOrder, nodes: Sequence[Node]) -> bool:
        """Return whether a job was about to be restored when the manager ended."""
        folder = attempt_folder(self._home, order.job.id, order.attempt)
        before = placement_before(folder, nodes) if folder.is_symlink() else None
        return before is not None and self.find(order.job.id, order.attempt, before)

    def restore(self, order: LaunchOrder, start: Callable[[LaunchOrder, Json], None]) -> None:
        """Start a supervisor that restores a job, in the job's former folder."""
        job = self.jobs.pop(order.job.id)
        way_back = changed_devices(self._settings, job.placement, order.placement)
        for name in _OF_THE_LAST:
            (job.folder / name).unlink(missing_ok=True)
        write_json(job.folder / "rest.json", {"rests": False, "until_s": None, **(way_back or {})})
        known = {name: job.state[name] for name in _KEPT if name in job.state}
        program = shutil.which(CRIU) or CRIU if self._writer is None else self._writer.program
        start(order, {"criu": program, "state": known})

    def drop(self, job_id: JobId) -> None:
        """Remove a job from disk: it was cancelled."""
        folder = self.jobs.pop(job_id).folder
        (folder / RECORD).unlink(missing_ok=True)
        remove_folder(folder / IMAGE)


def _has_supervisor(folder: Path) -> bool:
    """Return whether a supervisor looks after the task of a folder, and not only writes its last words."""
    claim, state = read_json(folder / "claim"), read_json(folder / "state.json")
    if claim is None or claim.get("boot") != boot() or (state is not None and state.get("phase") == "ended"):
        return False
    return bool(start_time(int(claim["supervisor"])) == claim["supervisor_start"] != 0)
