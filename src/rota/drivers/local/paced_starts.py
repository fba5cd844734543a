"""Starts of attempts, a few at a time: many jobs that may all start now neither hold the loop nor fill the machine.

A job without devices is limited by nothing but the CPUs and memory that it asks for, which may be none. So the tasks
of such jobs that run at once are limited; the others wait in the state `starting`. Jobs with devices never wait for
them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rota.core.engine.driver import ExitDetail
from rota.core.errors import RotaError
from rota.core.messages.decisions import Cause
from rota.core.messages.events import Event, Interrupted, JobEnded, StartFailed, Stopped
from rota.core.model.job import JobId
from rota.core.model.placement import Placement
from rota.drivers.local.driver import Attempts
from rota.drivers.local.launch_order import LaunchOrder
from rota.files.job_shape import JobFile
from rota.store.run_folder import attempt_folder

TURN_S = 0.02
"""How long attempts are started before other work is done."""
REST_S = 0.005
"""How long other work is done before more attempts are started."""
USERS_SHARE = 0.75
"""The part of the limit that one user's tasks may take, so that others' jobs need not wait for theirs to end."""
Later = Callable[[float, Callable[[], None]], Any]
FirstCheck = Callable[[LaunchOrder, Callable[[str], None]], bool]
"""Checks the nodes of an attempt before it starts: returns whether it does; then it answers why not to start, or ""."""


def usual_most_tasks() -> int:
    """Return the number of tasks without devices that this machine runs at once unless a setting says otherwise."""
    return max(256, 16 * (os.cpu_count() or 1))


def refuse_too_many_tasks(file: JobFile, most_tasks: int) -> None:
    """Raise a `RotaError` for a job whose tasks start together and are more than may run at once."""
    tasks = sum(role.count for role in file.roles.values()) or file.full_size
    if file.gang and tasks > most_tasks:
        raise RotaError(
            f"job: its {tasks} tasks start together; this machine starts at most {most_tasks} tasks together "
            "(limits.tasks); ask for fewer, or write gang: false"
        )


class PacedStarts:
    """Attempts whose starts are spread over time; everything else is passed on."""

    def __init__(
        self, home: Path, answer: Callable[[Event, ExitDetail], None], later: Later, most_tasks: int | None = None
    ) -> None:
        """`check_first`, if it is set, holds attempts back until their nodes were checked."""
        self._home = home
        self._answer = answer
        self._later = later
        self._most_tasks = most_tasks or usual_most_tasks()
        self._inner: Attempts
        self._queue: dict[JobId, LaunchOrder] = {}
        self._timer: Any = None
        self.check_first: FirstCheck = lambda order, answer: False
        self._unchecked: set[JobId] = set()
        """Attempts that wait for the checks of their nodes."""
        self._without_devices: dict[JobId, tuple[str, int]] = {}
        """The user and the number of tasks of each started job that has no devices."""
        self._by_user: dict[str, int] = {}
        self._tasks = 0
        self._begun_s: float | None = None
        """When the first attempt of this turn of the event loop was started."""

    def attach(self, inner: Attempts) -> None:
        """Start attempts with this controller, whose events go to `answered`."""
        self._inner = inner

    # -- from the controller ---------------------------------------------------------------------

    def answered(self, event: Event, detail: ExitDetail) -> None:
        """Pass an event on; the end of an attempt makes room for others."""
        if isinstance(event, JobEnded | Stopped | Interrupted | StartFailed):
            self._forget(event.job_id)
        self._answer(event, detail)

    # -- orders ----------------------------------------------------------------------------------

    def start(self, order: LaunchOrder) -> None:
        """Start an attempt when it is its turn; one that was begun before a restart, at once."""
        if attempt_folder(self._home, order.job.id, order.attempt).exists():
            self._start(order)
            return
        self._queue[order.job.id] = order
        if self.check_first(order, partial(self._checked, order)):
            self._unchecked.add(order.job.id)
            return
        if self._timer is None and self._has_time():
            self._turn()
        elif self._timer is None:
            self._timer = self._later(REST_S, self._turn)

    def _checked(self, order: LaunchOrder, why: str) -> None:
        """Let an attempt start whose nodes were checked; one whose nodes failed goes back to the queue."""
        job_id = order.job.id
        self._unchecked.discard(job_id)
        if self._queue.get(job_id) is not order:
            return
        if why:
            del self._queue[job_id]
            self._answer(StartFailed(job_id, why), ExitDetail(message=why))
        elif self._timer is None:
            self._turn()

    def find(self, order: LaunchOrder, stopping: Cause | None = None) -> None:
        """Find the tasks of a running job again."""
        self._count(order)
        self._inner.find(order, stopping)

    def find_held(self, order: LaunchOrder) -> None:
        """Find the tasks of a job that waits suspended."""
        self._inner.find_held(order)

    def resize(self, order: LaunchOrder, before: Placement) -> None:
        """Run a job with another number of tasks or on other devices."""
        self._start_now(order.job.id)
        self._inner.resize(order, before)

    def share(self, job_id: JobId, placement: Placement) -> None:
        """Give a job another fraction of its devices."""
        self._start_now(job_id)
        self._inner.share(job_id, placement)

    def suspend(self, job_id: JobId) -> None:
        """Suspend the tasks of a job."""
        self._start_now(job_id)
        self._inner.suspend(job_id)

    def resume(self, job_id: JobId) -> None:
        """Resume the tasks of a job."""
        self._start_now(job_id)
        self._inner.resume(job_id)

    def stop(self, job_id: JobId, cause: Cause) -> None:
        """End the tasks of a job; one that has not started has ended."""
        order = self._queue.pop(job_id, None)
        if order is None:
            self._inner.stop(job_id, cause)
        else:
            self._later(0.0, partial(self._answer, Stopped(job_id, order.work_s), ExitDetail()))

    def settle(self) -> None:
        """Remove tasks of no known job."""
        self._inner.settle()

    def close(self) -> None:
        """Start nothing more; the tasks continue to run."""
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._inner.close()

    # -- turns -----------------------------------------------------------------------------------

    def _has_time(self) -> bool:
        """Whether more attempts may be started in this turn of the event loop."""
        now_s = time.perf_counter()
        if self._begun_s is None:
            self._begun_s = now_s
            self._later(0.0, self._end_turn)
        return now_s - self._begun_s <= TURN_S

    def _end_turn(self) -> None:
        self._begun_s = None

    def _turn(self) -> None:
        self._timer = None
        for job_id in self._in_turn():
            if job_id in self._unchecked or not self._fits(self._queue[job_id]):
                continue
            self._start_now(job_id)
            if self._queue and not self._has_time():
                self._timer = self._later(REST_S, self._turn)
                return

    def _in_turn(self) -> list[JobId]:
        """Return the attempts that wait: the first of each user, then the second of each, and so on."""
        by_user: dict[str, list[JobId]] = {}
        for job_id, order in self._queue.items():
            by_user.setdefault(order.job.user, []).append(job_id)
        rounds = zip_longest(*by_user.values())
        return [job_id for each in rounds for job_id in each if job_id is not None]

    def _fits(self, order: LaunchOrder) -> bool:
        """Whether an attempt may start; a job that is larger than the limit starts when it would be alone."""
        if order.job.gpu_milli or not self._tasks:
            return True
        own = self._by_user.get(order.job.user, 0) + _tasks(order)
        is_its_share = own <= self._most_tasks * USERS_SHARE or own == _tasks(order)
        return is_its_share and self._tasks + _tasks(order) <= self._most_tasks

    def _start_now(self, job_id: JobId) -> None:
        order = self._queue.pop(job_id, None)
        if order is not None:
            self._start(order)

    def _start(self, order: LaunchOrder) -> None:
        self._unchecked.discard(order.job.id)
        self._count(order)
        self._inner.start(order)

    def _count(self, order: LaunchOrder) -> None:
        if not order.job.gpu_milli and order.job.id not in self._without_devices:
            user, tasks = order.job.user, _tasks(order)
            self._without_devices[order.job.id] = (user, tasks)
            self._by_user[user] = self._by_user.get(user, 0) + tasks
            self._tasks += tasks

    def _forget(self, job_id: JobId) -> None:
        self._queue.pop(job_id, None)
        self._unchecked.discard(job_id)
        user, tasks = self._without_devices.pop(job_id, ("", 0))
        self._tasks -= tasks
        if tasks:
            self._by_user[user] -= tasks
            if not self._by_user[user]:
                del self._by_user[user]
        if self._queue and self._timer is None:
            self._timer = self._later(REST_S, self._turn)


def _tasks(order: LaunchOrder) -> int:
    return sum(slot.tasks for slot in order.placement)
