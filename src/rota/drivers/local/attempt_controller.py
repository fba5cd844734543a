"""Start, watch and stop the attempts of jobs as processes of this machine, and report what becomes of them.

All lasting state is in the tasks' folders. After a restart of the manager, the controller is given the jobs that
should be running and finds their tasks again; a start that was cut short continues where it stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace

from rota.core.engine.driver import ExitDetail
from rota.core.errors import RotaError
from rota.core.messages.decisions import Cause
from rota.core.model.cluster import Node
from rota.core.model.job import JobId
from rota.core.model.placement import Placement
from rota.drivers.local import attempt_events
from rota.drivers.local.attempt import Attempt, AttemptOutcome, Verdict, attempt_of
from rota.drivers.local.confinement.attempt_folders import (
    has_begun,
    open_to_its_user,
    prepare_attempt,
    remove_leftovers,
    rendezvous_port,
    work_at_start,
)
from rota.drivers.local.confinement.private_folders import sweep_memory
from rota.drivers.local.data.fetches import DataFetches
from rota.drivers.local.launch_order import LaunchOrder
from rota.drivers.local.machine import MOST_GRACE_S
from rota.drivers.local.notice_pipe import NoticePipe
from rota.drivers.local.prefork_pool import PreforkPool
from rota.drivers.local.settings import Settings, make_cgroup, task_order
from rota.drivers.local.sliced_work import SLOT_WAIT_S, SideThread, SlicedWork, StartSlots, Steps
from rota.drivers.local.task import TaskHandle, TaskPhase
from rota.drivers.local.time_slicer import TaskPauses, TimeSlicer
from rota.store.run_folder import Json, mark_of

log = logging.getLogger("rota.drivers.local")
RECORDER_S = 10.0
"""How long a recorder may take to write a task's end after its supervisor died."""
GIVEN_UP_GRACE_S, CANCEL_GRACE_S = 5.0, 60.0
"""How long a job may take to end at most that could not be started; that was cancelled or reached its time limit."""
FULL_S = 0.5
"""Between two tries to write to a disk that is full."""


class AttemptController:
    """All attempts that are under way."""

    def __init__(
        self,
        nodes: Sequence[Node],
        settings: Settings,
        answer: attempt_events.Answer,
        *,
        overlaps: bool = False,
        noticed: Callable[[Attempt], None] | None = None,
    ) -> None:
        self._nodes = nodes
        self._settings = settings
        self._answer = answer
        self._overlaps, self._noticed = overlaps, noticed
        """Whether to report when a job only saves, so that its devices can be given to others."""
        self._attempts: dict[JobId, Attempt] = {}
        self._failures: dict[JobId, int] = {}
        self._by_token: dict[str, tuple[Attempt, TaskHandle]] = {}
        self._mark = mark_of(settings.home)
        self._loop = asyncio.get_running_loop()
        self._busy: set[asyncio.Task[None]] = set()
        self.pauses = TaskPauses(self._attempts)
        self._slicer = TimeSlicer(self.pauses, self._loop.call_later)
        self._prefork = PreforkPool(self._loop.call_later, confined=settings.confinement.mounts)
        self._sliced, self._slots = SlicedWork(self._loop.call_later), StartSlots()
        self._side = SideThread(waits=settings.limits.waits)
        self._fetches = DataFetches(settings.home, settings.data_cache_bytes)
        self._notices = NoticePipe(settings.pipe, self._loop, self._read_notices)
        self._has_settled = False

    # -- orders ----------------------------------------------------------------------------------

    def start(self, order: LaunchOrder, restore: Json | None = None) -> None:
        """Start the tasks of a job, or `restore` its only one from disk. A repeated call starts none of them twice."""
        attempt = self._attempt(order)
        if restore is not None:  # answered as one that is resumed
            attempt.restore, attempt.work_s = restore, work_at_start(self._settings.home, order)
            attempt.announced = attempt.turned = True
        if order.launch.data:
            self._sliced.add(self._fetches.before(attempt, order, self._loop, self._start_prepared))
        else:
            self._start_prepared(attempt, order)

    def _start_prepared(self, attempt: Attempt, order: LaunchOrder) -> None:
        port = 0
        try:
            if not (attempt.given_up or attempt.ending):
                prepare_attempt(attempt, order, self._settings)
                port = rendezvous_port(self._settings.home, order)
        except OSError as error:
            attempt.given_up = f"its folder can't be made: {error.strerror}"
        except RotaError as error:
            attempt.given_up = str(error)
        attempt.note_sharing()
        self._sliced.add(self._start_tasks(attempt, port))

    def resize(self, order: LaunchOrder, before: Placement) -> None:
        """Run a job with another number of tasks or on other devices: stop the attempt, then start the next."""
        attempt = self._attempts.get(order.job.id)
        if attempt is None and self._has_settled:  # it has just ended, and its event is under way
            return
        if attempt is None:  # after a restart of the manager: continue the resize
            if has_begun(self._settings.home, order):
                self.start(order)
                return
            attempt = self._found(replace(order, placement=before, resizes=False, moves=False), earlier=order.moves)
        attempt.successor = order
        attempt.ordered = Cause.MOVED
        self._end(attempt, attempt.launch.grace_s)
        self._look(attempt)

    def find(self, order: LaunchOrder, stopping: Cause | None = None) -> None:
        """Find the tasks of a running job, or of one that is being stopped, after a restart of the manager."""
        attempt = self._found(order)
        attempt.ordered = stopping or attempt.cancelled  # known before its tasks are looked at: it may have ended them
        if not any(task.has_ended for task in attempt.tasks):
            self._slicer.add(order.job.id, order.placement)
        self._look(attempt)

    def find_held(self, order: LaunchOrder) -> None:
        """No job of this controller has tasks while it waits."""

    def share(self, job_id: JobId, placement: Placement) -> None:
        """Give a job another fraction of its devices."""
        attempt = self._attempts.get(job_id)
        if attempt is not None:
            attempt.placement = placement
            self._slicer.add(job_id, placement)
            attempt.note_sharing()

    def suspend(self, job_id: JobId, swap: Json | None = None) -> None:
        """Suspend the tasks of a job until they are resumed or stopped; `swap`: with their GPU memory on the host."""
        self._slicer.leave(job_id)
        self._turn(job_id, rests=True, swap=swap)

    def resume(self, job_id: JobId, swap: Json | None = None) -> None:
        """Resume the tasks of a job; `swap` names the GPUs that its memory returns to, if they are others."""
        self._turn(job_id, rests=False, swap=swap)

    def attempt(self, job_id: JobId) -> Attempt | None:
        """Return the attempt of a job, if one is under way."""
        return self._attempts.get(job_id)

    def _turn(self, job_id: JobId, *, rests: bool, swap: Json | None) -> None:
        attempt = self._attempts.get(job_id)
        if attempt is None or attempt.ending:
            return
        attempt.rests, attempt.turned, attempt.swap = rests, True, swap
        for task in attempt.tasks:
            if task.phase is not TaskPhase.ENDED:
                self._order_rest(attempt, task)
        self._look(attempt)

    def _order_rest(self, attempt: Attempt, task: TaskHandle) -> None:
        try:
            task.order_rest(attempt.rests, swap=attempt.swap)
        except OSError:  # the disk is full; there may be room soon
            if self._attempts.get(attempt.job.id) is attempt:
                self._loop.call_later(FULL_S, self._order_rest, attempt, task)

    def _found(self, order: LaunchOrder, *, earlier: bool = False) -> Attempt:
        """Return the running attempt; of a job that was being resized or moved it may be the previous one."""
        if (earlier or order.job.elastic is not None) and not has_begun(self._settings.home, order):
            order = replace(order, attempt=order.attempt - 1)
        attempt = self._attempt(order)
        attempt.announced, attempt.work_s = True, work_at_start(self._settings.home, order)
        for task in attempt.tasks:
            task.find()
            self._watch(attempt, task)
        attempt.rests = all(task.is_to_rest for task in attempt.tasks)
        return attempt

    def stop(self, job_id: JobId, cause: Cause, *, force: bool = False) -> None:
        """End a job's tasks: its stop signal, its grace period (none with `force`), then a kill."""
        attempt = self._attempts.get(job_id)
        if attempt is None:
            return
        attempt.ordered, attempt.successor = cause, None
        most_s = CANCEL_GRACE_S if cause in (Cause.CANCELLED, Cause.TIME_LIMIT) else MOST_GRACE_S
        self._end(attempt, 0.0 if force else min(attempt.launch.grace_s, most_s))

    def settle(self) -> None:
        """Remove what is left of unknown tasks, after all jobs that should run were started or found."""
        self._has_settled = True
        self._settings.limits.sweep(list(self._by_token))
        self._fetches.keep_only([(job_id, each.number) for job_id, each in self._attempts.items()])
        if self._settings.confinement.mounts:
            sweep_memory(self._settings.home, {(job_id, each.number) for job_id, each in self._attempts.items()})

    def close(self) -> None:
        """Stop listening; the tasks run on."""
        self.settle()
        for part in (self._slicer, self._prefork, self._sliced, self._side, self._notices):
            part.close()
        for work in self._busy:
            work.cancel()
        for _, task in self._by_token.values():
            if task.pidfd >= 0:
                self._loop.remove_reader(task.pidfd)

    # -- starting --------------------------------------------------------------------------------

    def _attempt(self, order: LaunchOrder) -> Attempt:
        attempt = attempt_of(order, self._nodes, self._settings.home, self._mark, self._settings.guide, self._attempts)
        attempt.causes = self._settings.causes
        for task in attempt.tasks:
            self._by_token[task.token] = (attempt, task)
        self._attempts[order.job.id] = attempt
        self._failures[order.job.id] = order.failures
        return attempt

    def _start_tasks(self, attempt: Attempt, port: int) -> Steps[None]:
        """Start the tasks of an attempt one by one; those that are left when it is stopped are never started."""
        for task in attempt.tasks:
            while self._slots.is_full and not attempt.ending and not attempt.given_up:
                yield SLOT_WAIT_S
            task.find()
            if task.claimed:
                self._watch(attempt, task)
            elif attempt.given_up:
                self._loop.call_soon(self._spawn_failed, attempt, task)
            elif attempt.ending:
                self._do(self._find_out(attempt, task))
            else:
                yield from self._spawn(attempt, task, port)
            yield 0.0
        if attempt.is_gang:
            self._loop.call_later(self._settings.barrier_s, self._barrier_is_over, attempt)
        self._look(attempt)

    def _spawn(self, attempt: Attempt, task: TaskHandle, port: int) -> Steps[None]:
        try:
            open_to_its_user(attempt, task)
            with self._slots.taken(lambda: task.is_starting):
                cgroup = yield from self._side.call(make_cgroup, attempt, task, self._settings)
            if attempt.ending or attempt.given_up:  # it was stopped meanwhile
                self._do(self._find_out(attempt, task))
                return
            order = task_order(attempt, task, port, self._settings, cgroup)
            task.spawn(order if attempt.restore is None else {**order, "restore": attempt.restore}, self._prefork)
        except OSError as error:
            attempt.given_up = f"task {task.slot.rank} could not be started: {error.strerror}"
            self._loop.call_soon(self._spawn_failed, attempt, task)
            return
        self._watch(attempt, task)

    def _spawn_failed(self, attempt: Attempt, task: TaskHandle) -> None:
        task.give_up()
        if not attempt.ending:
            self._end(attempt, GIVEN_UP_GRACE_S)
        self._look(attempt)

    def _barrier_is_over(self, attempt: Attempt) -> None:
        if not attempt.all_ready and self._attempts.get(attempt.job.id) is attempt:
            late = sum(task.phase is TaskPhase.NEW for task in attempt.tasks)
            attempt.given_up = f"{late} of {len(attempt.tasks)} tasks did not reach the barrier in time"
            self._end(attempt, GIVEN_UP_GRACE_S)

    def _read_notices(self, tokens: Sequence[str]) -> None:
        """Read what changed, and look once at each attempt that has progressed."""
        moved: list[Attempt] = []
        for token in (each for each in dict.fromkeys(tokens) if each in self._by_token):
            attempt, task = self._by_token[token]
            try:
                if task.phase is not TaskPhase.ENDED and task.refresh():
                    moved.append(attempt)
            except OSError:  # no descriptor is free; there may be one soon
                self._loop.call_later(FULL_S, self._read_notices, [token])
        for attempt in dict.fromkeys(moved):
            self._look(attempt)

    def _watch(self, attempt: Attempt, task: TaskHandle) -> None:
        """Watch for the exit of the supervisor; if it has exited already, act on that."""
        if task.pidfd >= 0:
            self._loop.add_reader(task.pidfd, self._supervisor_died, attempt, task)
        elif not task.has_ended:
            task.refresh()  # its supervisor has exited: the files are final
            self._do(self._find_out(attempt, task))

    def _supervisor_died(self, attempt: Attempt, task: TaskHandle) -> None:
        self._loop.remove_reader(task.pidfd)
        task.let_go()
        if task.phase is TaskPhase.ENDED:
            return
        task.find()
        moved = task.refresh()
        if task.pidfd >= 0 or not task.has_ended:
            # Either it left because an earlier one has the claim, or it died with work to do.
            self._watch(attempt, task)
        if attempt.ending:
            task.nudge()  # the order went to the one that left
        if moved:
            self._look(attempt)

    async def _find_out(self, attempt: Attempt, task: TaskHandle) -> None:
        """Wait for the recorder's result, after the supervisor died before it recorded one."""
        deadline = self._loop.time() + RECORDER_S
        if task.has_ended:
            self._look(attempt)
            return
        if task.phase is TaskPhase.NEW and not task.claimed and not await self._forbid(task):
            task.find()
            self._watch(attempt, task)
            return
        while not task.has_word_of_recorder():
            if self._loop.time() > deadline or not task.recorder_lives:
                if not task.has_word_of_recorder():
                    if task.phase is not TaskPhase.NEW:
                        about = {"job": attempt.job.id, "attempt": attempt.number, "task": task.slot.rank}
                        log.warning("the result of a task is unknown", extra=about)
                    await task.end()
                break
            await asyncio.sleep(0.02)
        self._look(attempt)

    async def _forbid(self, task: TaskHandle) -> bool:
        """Keep supervisors from claiming the task, as soon as the disk has room for that."""
        while True:
            try:
                return task.forbid()
            except OSError:
                await asyncio.sleep(FULL_S)

    def _do(self, work: Coroutine[None, None, None]) -> None:
        self._busy.add(running := self._loop.create_task(work))
        running.add_done_callback(self._busy.discard)

    def _look(self, attempt: Attempt) -> None:
        """Act on a change of an attempt: open the barrier, report events, end or conclude it."""
        if self._attempts.get(attempt.job.id) is not attempt:
            return
        if attempt.is_gang and attempt.all_ready and not attempt.ending:
            try:
                attempt.open_barrier()
            except OSError:  # the disk is full; there may be room soon
                self._loop.call_later(FULL_S, self._look, attempt)
        if not attempt.announced and attempt.all_running:
            attempt.announced = True
            self._slicer.add(attempt.job.id, attempt.placement)
            self._answer(attempt_events.begun(attempt), ExitDetail())
        if self._noticed is not None:
            self._noticed(attempt)
        if attempt.turned and attempt.has_turned and not attempt.ending and not attempt.all_ended:
            attempt.turned = False
            self._answer(attempt_events.turned(attempt), ExitDetail())
        if self._overlaps and not attempt.saves and not attempt.ending and attempt.announced and attempt.all_save:
            attempt.saves = True
            if not attempt.all_ended:
                self._answer(attempt_events.saves(attempt), ExitDetail())
        if attempt.all_ended:
            self._conclude(attempt)
        elif not attempt.ending and attempt.is_decided():
            self._end(attempt, attempt.launch.grace_s)

    def _end(self, attempt: Attempt, grace_s: float) -> None:
        attempt.ending = True
        self._slicer.leave(attempt.job.id)
        self._sliced.add(self._order_stops(attempt, grace_s))

    def _order_stops(self, attempt: Attempt, grace_s: float) -> Steps[None]:
        cause = attempt.ordered.value if attempt.ordered else ""
        for task in attempt.tasks:
            if task.phase is not TaskPhase.ENDED:
                task.order_stop(attempt.launch.signal, grace_s, cause)
                yield 0.0

    def _conclude(self, attempt: Attempt) -> None:
        if not attempt.concludes:
            self._sliced.add(self._conclusion(attempt, attempt.conclude()))

    def _conclusion(self, attempt: Attempt, outcome: AttemptOutcome) -> Steps[None]:
        """Remove what is left of an attempt, then report its end: its devices are free only then."""
        job_id = attempt.job.id
        for task in attempt.tasks:
            yield from self._side.run(self._settings.limits.removal(task.token))
            self._by_token.pop(task.token, None)  # only now: a sweep removes the cgroups of unknown tasks
            yield 0.0
        if self._settings.confinement.mounts or attempt.launch.image is not None or attempt.launch.data:
            self._do(asyncio.to_thread(remove_leftovers, self._settings, attempt))
        self._slicer.leave(job_id)
        del self._attempts[job_id]
        failures = self._failures.pop(job_id)
        if attempt.successor is not None and outcome.verdict is Verdict.STOPPED:
            self.start(replace(attempt.successor, work_s=attempt_events.kept_s(attempt)))
            return
        for event in attempt_events.at_end(attempt, outcome, failures):
            self._answer(event, attempt_events.detail_of(outcome))
