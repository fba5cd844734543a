"""Time slicing of devices: of jobs with fractions of the same devices, one runs at a time, each for its fraction.

The job that is furthest behind its fraction goes next, by the time in which its tasks were not stopped. A stop expires
by itself, so that tasks continue if the manager dies; a longer stop is renewed. A job that loads, which has not opened
its GPUs yet, needs no turn: it runs, and its time counts from when it has.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rota.core.model.job import WHOLE, JobId
from rota.core.model.placement import Placement
from rota.drivers.local.attempt import Attempt
from rota.store import clock

QUANTUM_S = 0.3
"""Length of a time slice: that of KubeShare's token (Yeh et al., HPDC 2020)."""
LAPSE_S = 10.0
"""How long a pause lasts that is not renewed."""

DeviceSet = tuple[tuple[int, int], ...]


class Hand(Protocol):
    """What the time slicer needs of the attempts."""

    def ran_s(self, job_id: JobId) -> float:
        """Return how long a job's tasks have run, without the time in which they were paused."""

    def loads(self, job_id: JobId) -> bool:
        """Return whether none of a job's tasks has opened its GPUs yet."""

    def let_run(self, job_id: JobId, until_s: float | None) -> None:
        """Let a job's tasks run (None), or pause them until then."""


class TaskPauses:
    """Pauses the tasks of attempts that are under way, and tells how long they ran."""

    def __init__(self, attempts: Mapping[JobId, Attempt]) -> None:
        self._attempts = attempts

    def ran_s(self, job_id: JobId) -> float:
        """Return how long a job's tasks have run, without the time in which they were paused."""
        attempt = self._attempts.get(job_id)
        return 0.0 if attempt is None else max(task.ran_s(clock.now_s()) for task in attempt.tasks)

    def loads(self, job_id: JobId) -> bool:
        """Return whether none of a job's tasks has opened its GPUs yet."""
        attempt = self._attempts.get(job_id)
        return attempt is not None and all(task.loads for task in attempt.tasks)

    def let_run(self, job_id: JobId, until_s: float | None) -> None:
        """Let a job's tasks run (None), or pause them until then; a job that is suspended or ending is left alone."""
        attempt = self._attempts.get(job_id)
        if attempt is None or attempt.rests or attempt.ending:
            return
        for task in attempt.tasks:
            with contextlib.suppress(OSError):  # the disk is full: tried again in the next time slice
                task.order_rest(until_s is not None, until_s)


@dataclass(slots=True)
class _Group:
    """The jobs on the same devices."""

    parts: dict[JobId, int] = field(default_factory=dict)
    loading: dict[JobId, int] = field(default_factory=dict)
    """The parts of jobs that have not opened the devices yet."""
    base_s: dict[JobId, float] = field(default_factory=dict)
    since_s: float = 0.0
    turn: JobId | None = None
    renewed_s: float = 0.0


class TimeSlicer:
    """All devices that are time-sliced."""

    def __init__(self, hand: Hand, later: Callable[[float, Callable[[], None]], asyncio.TimerHandle]) -> None:
        self._attempts = hand
        self._later = later
        self._groups: dict[DeviceSet, _Group] = {}
        self._devices_by_job: dict[JobId, DeviceSet] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, job_id: JobId, placement: Placement) -> None:
        """Take in a job with its fraction; a job that holds whole devices is not time-sliced."""
        self.leave(job_id)
        parts = [slot for slot in placement if slot.in_turn and slot.milli < WHOLE]
        if not parts:
            return
        devices = tuple(sorted((slot.node, slot.devices) for slot in parts))
        self._devices_by_job[job_id] = devices
        group = self._groups.setdefault(devices, _Group())
        (group.loading if self._attempts.loads(job_id) else group.parts)[job_id] = parts[0].milli
        self._begin(group)

    def leave(self, job_id: JobId) -> None:
        """Remove a job; its tasks run on."""
        devices = self._devices_by_job.pop(job_id, None)
        if devices is None:
            return
        group = self._groups[devices]
        group.parts.pop(job_id, None)
        group.loading.pop(job_id, None)
        self._attempts.let_run(job_id, None)
        if group.parts or group.loading:
            self._begin(group)
        else:
            del self._groups[devices]

    def close(self) -> None:
        """End time slicing."""
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self, group: _Group) -> None:
        """Reset the time used, after fractions changed."""
        group.base_s = {job_id: self._attempts.ran_s(job_id) for job_id in group.parts}
        group.since_s = clock.now_s()
        group.turn, group.renewed_s = None, 0.0
        if self._timer is None:
            self._timer = self._later(0.0, self._tick)

    def _tick(self) -> None:
        self._timer = self._later(QUANTUM_S, self._tick) if self._groups else None
        for group in self._groups.values():
            self._take_in(group)
            if group.parts:
                self._turn_over(group, clock.now_s())

    def _take_in(self, group: _Group) -> None:
        """Give a part of the time to jobs that have opened the devices since."""
        loaded = [job_id for job_id in group.loading if not self._attempts.loads(job_id)]
        for job_id in loaded:
            group.parts[job_id] = group.loading.pop(job_id)
        if loaded:
            self._begin(group)

    def _turn_over(self, group: _Group, now_s: float) -> None:
        chosen = self._furthest_behind(group, now_s)
        renews = now_s - group.renewed_s > LAPSE_S / 2
        if chosen == group.turn and not renews:
            return
        for job_id in group.parts:
            if job_id == chosen or not (renews or job_id == group.turn or group.turn is None):
                continue
            self._attempts.let_run(job_id, now_s + LAPSE_S)
        if chosen is not None and (chosen != group.turn or renews):
            self._attempts.let_run(chosen, None)
        if renews:
            group.renewed_s = now_s
        group.turn = chosen

    def _furthest_behind(self, group: _Group, now_s: float) -> JobId | None:
        """Return the job with the least time for its fraction; None for the time that the fractions leave idle."""
        had_s = {job_id: self._attempts.ran_s(job_id) - group.base_s[job_id] for job_id in group.parts}
        first = min(group.parts, key=lambda job_id: (had_s[job_id] / group.parts[job_id], job_id))
        spare = WHOLE - sum(group.parts.values())
        idle_s = now_s - group.since_s - sum(had_s.values())
        if spare > 0 and idle_s / spare < had_s[first] / group.parts[first]:
            return None
        return first
