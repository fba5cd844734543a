"""Preemption that loses no work: jobs that save nothing are suspended with their GPU memory on the host.

To the engine such a job was stopped and starts again later with all of its work. In between its processes are stopped
and hold no GPU. It is only done where the engine could rely on it beforehand: the driver has shown that it can suspend
the job's only CUDA process, and host memory for it is booked (`CheckpointChanged` tells the engine).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rota.core.codec.values import decode_placement, encode_placement
from rota.core.engine.driver import ExitDetail
from rota.core.messages.decisions import Cause
from rota.core.messages.events import (
    CheckpointChanged,
    Event,
    Interrupted,
    JobEnded,
    NodeOccupied,
    Resumed,
    SpeedChanged,
    Started,
    StartFailed,
    Stopped,
    Suspended,
)
from rota.core.model.cluster import Node
from rota.core.model.job import Checkpoint, JobId
from rota.core.model.placement import Placement, device_indexes, same_devices
from rota.core.state.phases import Phase
from rota.core.state.state import State
from rota.drivers.local.attempt import Attempt
from rota.drivers.local.attempt_controller import AttemptController
from rota.drivers.local.confinement.device_rules import refused
from rota.drivers.local.gpu.copy_rates import LearnedRates
from rota.drivers.local.gpu.host_memory import HostMemory
from rota.drivers.local.launch_order import LaunchOrder
from rota.drivers.local.settings import Settings
from rota.store.run_folder import Json, attempt_folder, read_json, write_json

log = logging.getLogger("rota.drivers.local")
LOOK_S = 2.0
"""Between two looks at jobs that wait suspended, and at those for which host memory lacked."""
GIB = 2**30
HELD_FILE = "held.json"
_LEAVES = frozenset({Cause.PREEMPTED, Cause.MOVED})
_OVER = (JobEnded, Stopped, Interrupted, StartFailed)


class SuspendingAttempts:
    """The attempts of an `AttemptController`, of which some wait suspended while the engine has them queued."""

    def __init__(
        self,
        settings: Settings,
        state: State,
        nodes: Sequence[Node],
        answer: Callable[[Event, ExitDetail], None],
        later: Callable[[float, Callable[[], None]], Any],
        memory: HostMemory | None = None,
    ) -> None:
        self._settings = settings
        self._home = settings.home
        self._state = state
        self._nodes = nodes
        self._uuids = () if settings.gpu is None else settings.gpu.uuids
        self._answer = answer
        self._later = later
        self.memory = HostMemory() if memory is None else memory
        self._rates = LearnedRates(settings.home)
        self._inner: AttemptController
        self._gpu_bytes: dict[JobId, int] = {}
        """GPU memory of running jobs that the driver can suspend."""
        self._leaving: set[JobId] = set()
        self._held: dict[JobId, Placement] = {}
        """Jobs that wait suspended, and the devices that they left."""
        self._coming: set[JobId] = set()
        self._lost: set[JobId] = set()
        """Jobs whose suspended processes have ended: they start over although the engine counts their work."""
        self._short: set[JobId] = set()
        """Running jobs for which host memory lacks."""
        self._timer: Any = None

    def attach(self, inner: AttemptController) -> None:
        """Run attempts with this controller, whose events go to `answered` and whose attempts to `noticed`."""
        self._inner = inner

    # -- from the controller ---------------------------------------------------------------------

    def noticed(self, attempt: Attempt) -> None:
        """Take note of how much GPU memory an attempt holds that the driver can suspend."""
        job_id = attempt.job.id
        if attempt.launch.checkpoint or attempt.job.elastic is not None or len(attempt.tasks) != 1:
            return
        held = attempt.tasks[0].swap_bytes
        if held == self._gpu_bytes.get(job_id, 0) or job_id in self._leaving | self._coming | self._held.keys():
            return
        self._gpu_bytes[job_id] = held
        self._book(job_id)

    def answered(self, event: Event, detail: ExitDetail) -> None:
        """Pass an event on, in the terms of a stop and a start where that was ordered."""
        match event:
            case Suspended(job_id, work) if job_id in self._leaving:
                self._leaving.discard(job_id)
                self._hold(job_id)
                self._answer(Stopped(job_id, work), detail)
                return
            case Resumed(job_id, rate, work_from_s) if job_id in self._coming:
                self._coming.discard(job_id)
                self._back(job_id)
                self._answer(Started(job_id, rate, work_from_s), detail)
                return
            case Started(job_id, rate) if job_id in self._lost:
                self._lost.discard(job_id)
                self._answer(event, detail)
                self._answer(SpeedChanged(job_id, 0.0, rate), ExitDetail())
                return
        if isinstance(event, Suspended) and event.job_id in self.memory:
            self.memory.hold(event.job_id)
        elif isinstance(event, Resumed) and event.job_id in self.memory:
            self.memory.return_to_gpu(event.job_id)
        elif isinstance(event, _OVER):
            was_held = self._held.pop(event.job_id, None) is not None
            self._forget(event.job_id)
            if was_held:
                self._lose(event.job_id, detail)
                return
        self._answer(event, detail)

    # -- orders ----------------------------------------------------------------------------------

    def start(self, order: LaunchOrder) -> None:
        """Start a job, or let it go on where it was suspended."""
        job_id = order.job.id
        folder = attempt_folder(self._home, job_id, order.attempt)
        if job_id in self._held:
            self._link(order)
            before = self._held.pop(job_id)
        elif folder.is_symlink():  # after a restart of the manager: it was about to go on
            before = self._placement_before(folder) or order.placement
            self._inner.find(replace(order, placement=before))
            self._gpu_bytes[job_id] = self._bytes_of(job_id)
        else:
            self._inner.start(order)
            return
        self._coming.add(job_id)
        self._inner.share(job_id, order.placement)
        self._inner.resume(job_id, self._way_back(before, order.placement, job_id))

    def find(self, order: LaunchOrder, stopping: Cause | None = None) -> None:
        """Find the tasks of a job again; those of one that leaves suspended are not ordered to stop."""
        leaves = stopping in _LEAVES and self._is_suspendable(order)
        self._inner.find(order, None if leaves else stopping)
        if leaves:
            self._gpu_bytes[order.job.id] = max(self._bytes_of(order.job.id), 1)
            self.memory.book(order.job.id, self._gpu_bytes[order.job.id])

    def find_held(self, order: LaunchOrder) -> None:
        """Find the tasks of a job that waits, if it waits suspended."""
        folder = attempt_folder(self._home, order.job.id, order.attempt)
        before = self._placement_before(folder)
        if before is None:
            return
        self._held[order.job.id] = before
        self._inner.find(replace(order, placement=before))
        if order.job.id in self._held:  # else its processes have ended meanwhile
            self._gpu_bytes[order.job.id] = self._bytes_of(order.job.id)
            self.memory.hold(order.job.id, self._gpu_bytes[order.job.id])
        self._look_again()

    def resize(self, order: LaunchOrder, before: Placement) -> None:
        """Run a job with another number of tasks or on other devices."""
        self._inner.resize(order, before)

    def share(self, job_id: JobId, placement: Placement) -> None:
        """Give a job another fraction of its devices."""
        self._inner.share(job_id, placement)

    def suspend(self, job_id: JobId) -> None:
        """Suspend a job; its GPU memory goes to the host where that can be done."""
        self._inner.suspend(job_id, self._to_host(job_id))

    def resume(self, job_id: JobId) -> None:
        """Resume a job."""
        self._inner.resume(job_id)

    def stop(self, job_id: JobId, cause: Cause) -> None:
        """Stop a job; one that could not save is suspended, if the engine counts on that."""
        if cause in _LEAVES and job_id in self.memory and self._gpu_bytes.get(job_id):
            self._leaving.add(job_id)
            self._inner.suspend(job_id, self._to_host(job_id))
            return
        self._leaving.discard(job_id)
        self._inner.stop(job_id, cause)

    def settle(self) -> None:
        """Remove tasks of no known job."""
        self._inner.settle()

    def close(self) -> None:
        """Stop watching; the tasks continue to run, or wait suspended."""
        if self._timer is not None:
            self._timer.cancel()
        self._inner.close()

    # -- what the engine is told -----------------------------------------------------------------

    def _book(self, job_id: JobId) -> None:
        """Book host memory for a running job, and tell the engine whether it can be suspended."""
        held = self._gpu_bytes[job_id]
        if held and self.memory.book(job_id, held):
            self._short.discard(job_id)
            self._tell_checkpoint(job_id, Checkpoint(interval_s=0.0, grace_s=self._rates.rates.suspend_s(held)))
            return
        if job_id in self._short:
            return
        free = self.memory.free_bytes()
        why = f"its {held / GIB:.1f} GiB of GPU memory don't fit into the {free / GIB:.1f} GiB of free host memory"
        self._tell_checkpoint(job_id, None, why if held else "")
        if held:
            self._short.add(job_id)
            self._look_again()

    def _tell_checkpoint(self, job_id: JobId, checkpoint: Checkpoint | None, why: str = "") -> None:
        live = self._state.jobs.get(job_id)
        if live is None or live.job.checkpoint is None:
            return
        wanted = checkpoint or replace(live.job.checkpoint, interval_s=math.inf)
        event = CheckpointChanged(job_id, replace(live.job, checkpoint=wanted))
        self._answer(event, ExitDetail(message=why))

    def _tell_memory(self) -> None:
        node = self._nodes[0]
        self._answer(NodeOccupied(node.id, memory_bytes=self.memory.held_bytes), ExitDetail())

    # -- jobs that wait suspended ----------------------------------------------------------------

    def _hold(self, job_id: JobId) -> None:
        attempt = self._attempt(job_id)
        self._held[job_id] = attempt.placement
        self._rates.learn(attempt.tasks[0].state)
        names = [str(node.id) for node in self._nodes]
        with contextlib.suppress(OSError):  # the disk is full: a restart of the manager would end the job
            write_json(attempt.tasks[0].folder.parent / HELD_FILE, {"on": encode_placement(attempt.placement, names)})
        self.memory.hold(job_id)
        self._tell_memory()
        self._look_again()

    def _back(self, job_id: JobId) -> None:
        attempt = self._attempt(job_id)
        self._rates.learn(attempt.tasks[0].state)
        (attempt.tasks[0].folder.parent / HELD_FILE).unlink(missing_ok=True)
        self.memory.return_to_gpu(job_id)
        self._tell_memory()

    def _lose(self, job_id: JobId, detail: ExitDetail) -> None:
        """The processes of a job that waits have ended: it starts over."""
        log.warning("a suspended job has ended and starts over", extra={"job": job_id, "why": detail.message})
        self._lost.add(job_id)
        self._tell_checkpoint(job_id, None)
        self._tell_memory()

    def _forget(self, job_id: JobId) -> None:
        self.memory.release(job_id)
        self._gpu_bytes.pop(job_id, None)
        self._leaving.discard(job_id)
        self._coming.discard(job_id)
        self._short.discard(job_id)

    def _look_again(self) -> None:
        if self._timer is None:
            self._timer = self._later(LOOK_S, self._look)

    def _look(self) -> None:
        """End suspended jobs that were cancelled, and try again to book memory for running ones."""
        self._timer = None
        for job_id in list(self._held):
            live = self._state.jobs.get(job_id)
            if live is None or live.phase >= Phase.SUCCEEDED:
                del self._held[job_id]
                self._forget(job_id)
                self._inner.stop(job_id, Cause.CANCELLED)
                self._tell_memory()
        for job_id in list(self._short):
            self._book(job_id)
        if self._held or self._short:
            self._look_again()

    # -- attempts, folders and devices ---------------------------------------------------------------------

    def _attempt(self, job_id: JobId) -> Attempt:
        found = self._inner.attempt(job_id)
        assert found is not None, "an attempt is known until its end was reported"
        return found

    def _bytes_of(self, job_id: JobId) -> int:
        attempt = self._inner.attempt(job_id)
        return 0 if attempt is None else attempt.tasks[0].swap_bytes

    def _to_host(self, job_id: JobId) -> Json:
        """What a task is told: how much of its GPU memory the host can take."""
        return {"swap": True, "most_bytes": self.memory.most_bytes(job_id)}

    def _allow(self, job_id: JobId, devices: Sequence[int]) -> None:
        """Let a job's only task open these devices, and no longer those of before."""
        token = self._attempt(job_id).tasks[0].token
        with contextlib.suppress(OSError):  # it then fails to open them, and says so
            self._settings.limits.refuse(token, refused(self._settings.device_nodes, devices))

    def _link(self, order: LaunchOrder) -> None:
        """Let the folder of the new attempt be that of the suspended one, whose processes go on."""
        folder = attempt_folder(self._home, order.job.id, order.attempt)
        with contextlib.suppress(FileExistsError):
            os.symlink(str(self._attempt(order.job.id).number), folder)

    def _placement_before(self, folder: Path) -> Placement | None:
        known: Json | None = None
        with contextlib.suppress(OSError, ValueError):
            known = read_json(folder / HELD_FILE)
        if known is None:
            return None
        indexes = {str(node.id): index for index, node in enumerate(self._nodes)}
        with contextlib.suppress(KeyError, TypeError, ValueError):
            return decode_placement(known["on"], indexes)
        return None

    def _is_suspendable(self, order: LaunchOrder) -> bool:
        if order.launch.checkpoint or order.job.elastic is not None:
            return False
        folder = attempt_folder(self._home, order.job.id, order.attempt)
        state: Json | None = None
        with contextlib.suppress(OSError, ValueError):
            state = read_json(folder / "0" / "state.json")
        return state is not None and bool(state.get("swap_bytes") or state.get("swap"))

    def _way_back(self, before: Placement, after: Placement, job_id: JobId) -> Json | None:
        """The GPUs that change places, by name, and those of the task from now on; None if it goes on where it was."""
        if same_devices(before, after):
            return None
        uuids = self._uuids
        old = [index for slot in before for index in device_indexes(slot.devices)]
        new = [index for slot in after for index in device_indexes(slot.devices)]
        self._allow(job_id, new)
        targets = dict(zip(old, new, strict=True))
        others = iter(index for index in range(len(uuids)) if index not in new)
        pairs = [[uuids[each], uuids[targets[each] if each in targets else next(others)]] for each in range(len(uuids))]
        return {"pairs": pairs, "gpus": new}
