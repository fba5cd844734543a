"""What decisions mean for a driver, and how a driver takes up after a restart what was under way before."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from rota.core.messages.decisions import Cause, Decision, Move, Renew, Resize, Resume, Start, Stop, Suspend
from rota.core.messages.events import Event, Resized
from rota.core.model.job import JobId, JobState
from rota.core.model.placement import Placement, is_suspended_claim
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.drivers.local.launch_order import ExitDetail, LaunchOrder
from rota.files.job import job_file, launch_of
from rota.live.loop.leases import Leases
from rota.live.loop.record import Record


class Driver(Protocol):
    """What the loop asks of a driver."""

    def start(self, order: LaunchOrder) -> None:
        """Start a job's tasks, each exactly once however often this is asked."""

    def find(self, order: LaunchOrder) -> None:
        """Take a running job on again."""

    def resize(self, order: LaunchOrder, before: Placement) -> None:
        """Let a running job go on with another number of tasks than it had, or elsewhere."""

    def share(self, job_id: JobId, placement: Placement) -> None:
        """Let a running job have another part of its devices."""

    def suspend(self, job_id: JobId) -> None:
        """Let a job's tasks rest where they are."""

    def resume(self, job_id: JobId) -> None:
        """Let tasks that rest go on."""

    def stop(self, job_id: JobId, cause: Cause) -> None:
        """End a job's tasks."""

    def settle(self) -> None:
        """Every job that should run was handed over: whatever else runs is nobody's."""

    def close(self) -> None:
        """Let go; the tasks run on."""


class Carrier(Protocol):
    """Who carries decisions out, whatever its way."""

    def carry_out(self, decisions: Sequence[Decision]) -> None:
        """Do as ordered; the answers come later."""

    def take_up(self) -> None:
        """After a restart: whatever was under way goes on."""


class Dispatcher:
    """Carries decisions out, one driver's way."""

    def __init__(
        self,
        state: State,
        kept: dict[JobId, Record],
        leases: Leases,
        driver: Driver,
        answer: Callable[[Event, ExitDetail], None],
    ) -> None:
        self._state = state
        self._kept = kept
        self._leases = leases
        self._driver = driver
        self._answer = answer

    def carry_out(self, decisions: Sequence[Decision]) -> None:
        """Do as ordered."""
        for decision in decisions:
            live = self._state.jobs[decision.job_id]
            match decision:
                case Start():
                    self._driver.start(self._order(live))
                case Stop(job_id, cause):
                    self._driver.stop(job_id, cause)
                case Resize() | Move():
                    self._resize(live)
                case Suspend(job_id):
                    self._driver.suspend(job_id)
                case Resume(job_id):
                    self._driver.resume(job_id)
                case Renew():
                    self._leases.renewed(live)

    def take_up(self) -> None:
        """After a restart: whatever was starting, running, resting or stopping goes on doing that."""
        for live in list(self._state.jobs.values()):
            if live.state is JobState.STARTING and live.stopping is None:
                self._driver.start(self._order(live))
            elif live.stopping is None and live.suspended_on is None and live.job.id in self._state.vacating:
                self._resize(live)
            elif live.state in (JobState.STARTING, JobState.RUNNING, JobState.SUSPENDED):
                self._driver.find(self._order(live))
            if live.stopping is not None:
                self._driver.stop(live.job.id, live.stopping)
            elif live.suspended_on is not None:
                self._take_up_resting(live)
            self._leases.take_up(live)
        self._driver.settle()

    def _take_up_resting(self, live: LiveJob) -> None:
        """One that was told to rest, or to go on, and has not said that it does."""
        if live.job.id in self._state.vacating:
            self._driver.suspend(live.job.id)
        elif live.placement is not None and not is_suspended_claim(live.placement) and not live.reserved:
            self._driver.resume(live.job.id)

    def _resize(self, live: LiveJob) -> None:
        """Another size or place is a new attempt; another part of the same devices is no work at all."""
        vacating = self._state.vacating.get(live.job.id)
        if vacating is None:
            now_s = time.time()
            self._driver.share(live.job.id, live.placement or ())
            self._answer(Resized(live.job.id, live.work_done(now_s), live.rate, now_s), ExitDetail())
            return
        order = replace(self._order(live), resizes=True, moves=live.job.elastic is None)
        self._driver.resize(order, vacating[1])

    def _order(self, live: LiveJob) -> LaunchOrder:
        record = self._kept[live.job.id]
        held = self._state.vacating.get(live.job.id)
        placement = live.placement if live.stopping is None else (held or (live, ()))[1]
        if live.suspended_on is not None:
            placement = live.suspended_on
        return LaunchOrder(
            job=live.job,
            launch=launch_of(job_file(json.loads(record.spec)), live.job.id),
            placement=placement or (),
            attempt=record.attempt,
            failures=record.failures,
            work_s=live.work,
        )
