"""Preemption that loses no work: jobs that save nothing are suspended with their GPU memory on the host.

To the engine such a job was stopped and starts again later with all of its work. In between its processes are stopped
and hold no GPU. It is only done where the engine could rely on it beforehand: the driver has shown that it can suspend
the job's only CUDA process, and host memory for it is booked (`CheckpointChanged` tells the engine).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rota.core.engine.driver import ExitDetail
from rota.core.messages.decisions import Cause
from rota.core.messages.events import (
    Event,
    Interrupted,
    JobEnded,
    Moved,
    Resumed,
    SpeedChanged,
    Started,
    StartFailed,
    Stopped,
    Suspended,
)
from rota.core.model.cluster import Node
from rota.core.model.job import JobId
from rota.core.model.placement import Placement
from rota.core.state.phases import Phase
from rota.core.state.state import State
from rota.drivers.local import attempt_events
from rota.drivers.local.attempt import Attempt
from rota.drivers.local.attempt_controller import AttemptController
from rota.drivers.local.gpu.copy_rates import LearnedRates
from rota.drivers.local.gpu.disk_images import DiskImages
from rota.drivers.local.gpu.held_attempts import (
    HELD_FILE,
    is_suspendable,
    link_attempt,
    placement_before,
    way_back,
    write_held,
)
from rota.drivers.local.gpu.host_memory import HostMemory
from rota.drivers.local.gpu.offers import SuspensionOffers
from rota.drivers.local.gpu.residency import FreeOnGpus, GpuRoom, Residency, asked_bytes, needs_room
from rota.drivers.local.launch_order import LaunchOrder
from rota.drivers.local.settings import Settings
from rota.store.run_folder import attempt_folder

log = logging.getLogger("rota.drivers.local")
LOOK_S = 2.0
"""Between two looks at jobs that wait suspended, and at those for which host memory lacked."""
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
        free_on_gpus: FreeOnGpus | None = None,
    ) -> None:
        self._settings = settings
        self._home = settings.home
        self._state = state
        self._nodes = nodes
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
        self._disk = DiskImages(settings)
        self._coming: dict[JobId, LaunchOrder] = {}
        """Jobs that are about to go on after they waited suspended."""
        self._lost: set[JobId] = set()
        """Jobs whose suspended processes have ended: they start over although the engine counts their work."""
        self._offers = SuspensionOffers(state, nodes[0].id, answer, self.memory, self._rates)
        self._moving: dict[JobId, LaunchOrder] = {}
        """Jobs that move to other GPUs with their memory."""
        free = free_on_gpus or GpuRoom(settings.nvml).free_bytes
        self._residency = Residency(free, self._gpu_bytes, lambda job_id: self._inner.attempt(job_id), self._leave_gpu)
        self._timer: Any = None

    def attach(self, inner: AttemptController) -> None:
        """Run attempts with this controller, whose events go to `answered` and whose attempts to `noticed`."""
        self._inner = inner

    # -- from the controller ---------------------------------------------------------------------

    def noticed(self, attempt: Attempt) -> None:
        """Take note of how much GPU memory an attempt holds that the driver can suspend."""
        job_id = attempt.job.id
        if attempt.all_ended:
            attempt.crowded = self._residency.crowds(attempt)
        if attempt.launch.checkpoint or attempt.job.elastic is not None or len(attempt.tasks) != 1:
            return
        if attempt.tasks[0].has_ended:  # its memory is gone, and so is it
            return
        held, refused = attempt.tasks[0].swap_bytes, attempt.tasks[0].swap_refused
        if job_id in self._leaving | self._coming.keys() | self._held.keys() | self._moving.keys():
            return
        if refused and not held:
            self._offers.refuse(job_id, refused)
        if held != self._gpu_bytes.get(job_id, 0):
            self._gpu_bytes[job_id] = held
            if not self._offers.book(job_id, held):
                self._look_again()

    def answered(self, event: Event, detail: ExitDetail) -> None:
        """Pass an event on, in the terms of a stop and a start where that was ordered."""
        match event:
            case Suspended(job_id) if self._residency.is_leaving(job_id):
                self._evicted(job_id)
                return
            case Suspended(job_id) if job_id in self._moving:
                self._arrive(job_id)
                return
            case Resumed(job_id, rate, work_from_s) if job_id in self._moving:
                del self._moving[job_id]
                self._back(job_id)
                work = attempt_events.done_s(self._attempt(job_id))
                self._answer(Moved(job_id, work, rate, work_from_s), detail)
                return
            case Suspended(job_id, work) if job_id in self._leaving:
                self._leaving.discard(job_id)
                self._hold(job_id)
                self._answer(Stopped(job_id, work), detail)
                return
            case Resumed(job_id, rate, work_from_s) if job_id in self._coming:
                del self._coming[job_id]
                self._back(job_id)
                self._answer(Started(job_id, rate, work_from_s), detail)
                self._offers.book(job_id, self._gpu_bytes.get(job_id, 0))  # the price may be another by now
                return
            case Started(job_id, rate) if job_id in self._lost:
                self._lost.discard(job_id)
                self._answer(event, detail)
                self._answer(SpeedChanged(job_id, 0.0, rate), ExitDetail())
                return
        if isinstance(event, Suspended) and event.job_id in self.memory:
            if self._attempt(event.job_id).tasks[0].is_on_host:
                self.memory.hold(event.job_id)
        elif isinstance(event, Resumed):
            self.memory.return_to_gpu(event.job_id)
        elif isinstance(event, _OVER):
            was_held, coming = self._held.pop(event.job_id, None) is not None, self._coming.get(event.job_id)
            is_on_disk = self._disk.has_taken(event.job_id)
            self._forget(event.job_id)
            self._residency.ended(event.job_id)
            if is_on_disk:
                self._offers.tell_memory()
                if coming is not None:  # its turn came too late to keep it in memory
                    self._restore(coming)
                return
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
            link_attempt(self._home, order, self._attempt(job_id).number)
            before = self._held.pop(job_id)
        elif job_id in self._disk.jobs or self._disk.find_linked(order, self._nodes):
            self._restore(order)
            return
        elif folder.is_symlink():  # after a restart of the manager: it was about to go on
            before = placement_before(folder, self._nodes) or order.placement
            self._inner.find(replace(order, placement=before))
            if self._inner.attempt(job_id) is None:  # it has ended meanwhile, and its end is reported
                return
            self._gpu_bytes[job_id] = self._bytes_of(job_id)
        else:
            if folder.exists():
                self._inner.start(order)
            else:
                self._residency.come(job_id, order.placement, asked_bytes(order), lambda: self._inner.start(order))
            return
        self._coming[job_id] = order
        self._go_on(job_id, before, order.placement)

    def find(self, order: LaunchOrder, stopping: Cause | None = None) -> None:
        """Find the tasks of a job again; those of one that leaves suspended are not ordered to stop."""
        leaves = stopping in _LEAVES and is_suspendable(self._home, order)
        self._inner.find(order, None if leaves else stopping)
        job_id, attempt = order.job.id, self._inner.attempt(order.job.id)
        if attempt is not None and (leaves or attempt.tasks[0].is_on_host):  # the latter waits for its turn
            self._gpu_bytes[job_id] = max(self._bytes_of(job_id), 1)
            (self.memory.book if leaves else self.memory.hold)(job_id, self._gpu_bytes[job_id])

    def find_held(self, order: LaunchOrder) -> None:
        """Find the tasks of a job that waits, if it waits suspended."""
        folder = attempt_folder(self._home, order.job.id, order.attempt)
        before = placement_before(folder, self._nodes)
        if before is None or self._disk.find(order.job.id, order.attempt, before):
            self._look_again()  # it may be cancelled
            return
        self._held[order.job.id] = before
        self._inner.find(replace(order, placement=before))
        if order.job.id in self._held:  # else its processes have ended meanwhile
            self._gpu_bytes[order.job.id] = self._bytes_of(order.job.id)
            self.memory.hold(order.job.id, self._gpu_bytes[order.job.id])
        self._look_again()

    def resize(self, order: LaunchOrder, before: Placement) -> None:
        """Run a job with another number of tasks or on other devices; one that can be takes its GPU memory along."""
        job_id = order.job.id
        if not order.moves or not self._can_move(order):
            self._inner.resize(order, before)
            return
        if self._inner.attempt(job_id) is None:  # after a restart of the manager
            begun = attempt_folder(self._home, job_id, order.attempt).is_symlink()
            self._inner.find(replace(order, placement=before, attempt=order.attempt - (not begun), resizes=False))
            self._gpu_bytes[job_id] = max(self._bytes_of(job_id), 1)
            self.memory.book(job_id, self._gpu_bytes[job_id])
        if self._inner.attempt(job_id) is None:  # it has ended meanwhile
            return
        self._moving[job_id] = order
        if self._attempt(job_id).tasks[0].is_on_host:
            self._arrive(job_id)
        else:
            self._leave_gpu(job_id)

    def share(self, job_id: JobId, placement: Placement) -> None:
        """Give a job another fraction of its devices."""
        self._inner.share(job_id, placement)

    def suspend(self, job_id: JobId) -> None:
        """Suspend a job. Its GPU memory stays until another job needs the room; if that can't be ordered later, it goes
        to the host now."""
        if job_id in self.memory and self._gpu_bytes.get(job_id):
            self._inner.suspend(job_id)
        else:
            self._leave_gpu(job_id)

    def resume(self, job_id: JobId) -> None:
        """Resume a job, once there is room for its memory."""
        attempt, come = self._inner.attempt(job_id), partial(self._inner.resume, job_id)
        if attempt is None or not needs_room(attempt):
            come()
            return
        self._residency.come(job_id, attempt.placement, self._gpu_bytes.get(job_id) or None, come)

    def stop(self, job_id: JobId, cause: Cause) -> None:
        """Stop a job; one that could not save is suspended, if the engine counts on that."""
        self._residency.come_now(job_id)
        if cause in _LEAVES and job_id in self.memory and self._gpu_bytes.get(job_id):
            self._leaving.add(job_id)
            self._leave_gpu(job_id)
            return
        self._leaving.discard(job_id)
        self._moving.pop(job_id, None)
        self._inner.stop(job_id, cause)

    def settle(self) -> None:
        """Remove tasks of no known job; then begin what had to wait until all were found."""
        self._inner.settle()
        self._residency.settle()

    def close(self) -> None:
        """Stop watching; the tasks continue to run, or wait suspended."""
        if self._timer is not None:
            self._timer.cancel()
        self._inner.close()

    def _evicted(self, job_id: JobId) -> None:
        """A suspended job has made room, unless the host has no memory for it."""
        if self._attempt(job_id).tasks[0].is_on_host:
            self._rates.learn(self._attempt(job_id).tasks[0].state)
            self._offers.hold(job_id, self._bytes_of(job_id))
        self._residency.left(job_id)

    def _can_move(self, order: LaunchOrder) -> bool:
        """Return whether a job's memory can go along to other GPUs."""
        job_id = order.job.id
        if self._inner.attempt(job_id) is None:
            return is_suspendable(self._home, replace(order, attempt=order.attempt - 1))
        return job_id in self.memory and bool(self._gpu_bytes.get(job_id))

    def _arrive(self, job_id: JobId) -> None:
        """The memory of a job that moves is on the host: let it go on where it was sent."""
        order, attempt = self._moving[job_id], self._attempt(job_id)
        self.memory.hold(job_id, self._bytes_of(job_id))
        link_attempt(self._home, order, attempt.number)
        self._go_on(job_id, attempt.placement, order.placement)

    def _go_on(self, job_id: JobId, before: Placement, after: Placement) -> None:
        """Let a job whose memory is on the host go on, once there is room for it."""

        def come() -> None:
            self._inner.share(job_id, after)
            back = way_back(self._settings, self._attempt(job_id).tasks[0].token, before, after)
            self._inner.resume(job_id, back)

        need_bytes = max(self._gpu_bytes.get(job_id, 0), self._bytes_of(job_id))
        self._residency.come(job_id, after, need_bytes or None, come)

    def _restore(self, order: LaunchOrder) -> None:
        """Let a job that is on disk go on, once there is room for its memory."""
        job_id, job = order.job.id, self._disk.jobs[order.job.id]
        self._coming[job_id], self._gpu_bytes[job_id] = order, job.gpu_bytes
        self.memory.hold(job_id, job.gpu_bytes)
        link_attempt(self._home, order, job.attempt)
        come = partial(self._disk.restore, order, self._inner.start)
        self._residency.come(job_id, order.placement, job.gpu_bytes, come)

    # -- jobs that wait suspended ----------------------------------------------------------------

    def _hold(self, job_id: JobId) -> None:
        attempt = self._attempt(job_id)
        self._held[job_id] = attempt.placement
        self._rates.learn(attempt.tasks[0].state)
        write_held(attempt, self._nodes)
        self._offers.hold(job_id, self._bytes_of(job_id))
        self._look_again()

    def _back(self, job_id: JobId) -> None:
        attempt = self._attempt(job_id)
        self._rates.learn(attempt.tasks[0].state)
        (attempt.tasks[0].folder.parent / HELD_FILE).unlink(missing_ok=True)
        self.memory.return_to_gpu(job_id)
        self._disk.left_memory(job_id)
        self._offers.tell_memory()

    def _lose(self, job_id: JobId, detail: ExitDetail) -> None:
        """The processes of a job that waits have ended: it starts over."""
        log.warning("a suspended job has ended and starts over", extra={"job": job_id, "why": detail.message})
        self._lost.add(job_id)
        self._offers.withdraw(job_id)
        self._offers.tell_memory()

    def _forget(self, job_id: JobId) -> None:
        self.memory.release(job_id)
        self._gpu_bytes.pop(job_id, None)
        self._leaving.discard(job_id)
        self._coming.pop(job_id, None)
        self._disk.left_memory(job_id)
        self._moving.pop(job_id, None)
        self._offers.forget(job_id)

    def _look_again(self) -> None:
        if self._timer is None:
            self._timer = self._later(LOOK_S, self._look)

    def _look(self) -> None:
        """End suspended jobs that were cancelled, and try again to book memory for running ones."""
        self._timer = None
        for job_id in [*self._held, *self._disk.jobs]:
            live = self._state.jobs.get(job_id)
            if live is not None and live.phase < Phase.SUCCEEDED:
                if job_id in self._held:
                    self._disk.look(self._attempt(job_id))
            elif job_id in self._disk.jobs:
                self._disk.drop(job_id)
            else:
                del self._held[job_id]
                self._forget(job_id)
                self._inner.stop(job_id, Cause.CANCELLED)
                self._offers.tell_memory()
        for job_id in list(self._offers.short):
            self._offers.book(job_id, self._gpu_bytes[job_id])
        if self._held or self._offers.short or self._disk.jobs:
            self._look_again()

    # -- attempts, folders and devices ---------------------------------------------------------------------

    def _attempt(self, job_id: JobId) -> Attempt:
        found = self._inner.attempt(job_id)
        assert found is not None, "an attempt is known until its end was reported"
        return found

    def _bytes_of(self, job_id: JobId) -> int:
        attempt = self._inner.attempt(job_id)
        return 0 if attempt is None else attempt.tasks[0].swap_bytes

    def _leave_gpu(self, job_id: JobId) -> None:
        """Suspend a job with its memory on the host, if that can take as much."""
        self._inner.suspend(job_id, {"swap": True, "most_bytes": self.memory.most_bytes(job_id)})
