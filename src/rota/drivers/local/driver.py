"""The local driver: carries decisions out on the processes of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from rota.core.engine.driver import DriverContract
from rota.core.messages.decisions import (
    ALL_KINDS,
    Cause,
    Decision,
    Move,
    Renew,
    Resize,
    Resume,
    Start,
    Stop,
    Suspend,
)
from rota.core.messages.events import Event, Resized, SpeedChanged
from rota.core.model.job import JobId
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import LEAVING, Phase
from rota.core.state.state import State
from rota.drivers.local.launch_order import LaunchOrder
from rota.files.job import launch_of
from rota.files.job_shape import JobFile

CONTRACT = DriverContract(name="local", supports=ALL_KINDS)


class LaunchRecord(Protocol):
    """What the manager keeps about a job beside the engine's state."""

    @property
    def file(self) -> JobFile:
        """The job file, validated when it was accepted."""

    @property
    def attempt(self) -> int:
        """The number of the present attempt."""

    @property
    def failures(self) -> int:
        """How many attempts failed."""

    @property
    def account(self) -> str | None:
        """The Unix account under which its tasks run; None: that of its user or tenant."""


class Attempts(Protocol):
    """What runs the tasks of attempts; `AttemptController` outside of tests."""

    def start(self, order: LaunchOrder) -> None:
        """Start the tasks of a job. A repeated call starts none of them twice."""

    def find(self, order: LaunchOrder, stopping: Cause | None = None) -> None:
        """Find the tasks of a running job again, or of one that is being stopped."""

    def find_held(self, order: LaunchOrder) -> None:
        """Find the tasks of a job that waits for devices, if it waits suspended."""

    def resize(self, order: LaunchOrder, before: Placement) -> None:
        """Stop the tasks of a running job and start it with another number of them, or on other devices."""

    def share(self, job_id: JobId, placement: Placement) -> None:
        """Give a running job another fraction of its devices."""

    def suspend(self, job_id: JobId) -> None:
        """Stop the processes of a job without ending them."""

    def resume(self, job_id: JobId) -> None:
        """Continue the processes of a suspended job."""

    def stop(self, job_id: JobId, cause: Cause) -> None:
        """End the tasks of a job."""

    def settle(self) -> None:
        """Remove tasks of no known job, after all jobs that should run were started or found."""

    def close(self) -> None:
        """Stop watching; the tasks continue to run."""


class LocalDriver:
    """Turns decisions into orders for attempts."""

    contract = CONTRACT

    def __init__(self, attempts: Attempts, state: State, records: Mapping[JobId, LaunchRecord]) -> None:
        self._attempts = attempts
        self._state = state
        self._records = records

    def carry_out(self, decisions: Sequence[Decision], now_s: float) -> list[Event]:
        """Begin to carry out decisions. A changed fraction and a renewed lease are answered at once."""
        answers: list[Event] = []
        for decision in decisions:
            live = self._state.jobs[decision.job_id]
            match decision:
                case Start():
                    self._attempts.start(self._order(live))
                case Stop(job_id, cause):
                    self._attempts.stop(job_id, cause)
                case Resize() | Move():
                    answers.extend(self._resize(live, now_s))
                case Suspend(job_id):
                    self._attempts.suspend(job_id)
                case Resume(job_id):
                    self._attempts.resume(job_id)
                case Renew(job_id):
                    answers.append(SpeedChanged(job_id, live.work, 1.0))
        return answers

    def take_up(self) -> None:
        """Continue after a restart: find the tasks of each job, and repeat the order that was not answered."""
        for live in list(self._state.jobs.values()):
            self._take_up(live)
        self._attempts.settle()

    def _take_up(self, live: LiveJob) -> None:
        match live.phase:
            case Phase.STARTING:
                self._attempts.start(self._order(live))
            case Phase.WAITING | Phase.RESERVED | Phase.HELD | Phase.BLOCKED:
                if self._records[live.job.id].attempt:
                    self._attempts.find_held(self._order(live))
            case Phase.RESIZING | Phase.MOVING:
                self._attempts.resize(*self._resize_order(live))
            case Phase.RUNNING | Phase.SAVING | Phase.SUSPENDED | Phase.RESUME_RESERVED:
                self._attempts.find(self._order(live))
            case Phase.SUSPENDING:
                self._attempts.find(self._order(live))
                self._attempts.suspend(live.job.id)
            case Phase.RESUMING:
                self._attempts.find(self._order(live))
                self._attempts.resume(live.job.id)
            case phase if phase in LEAVING:
                cause = live.stopping or Cause.PREEMPTED
                self._attempts.find(self._order(live), cause)
                self._attempts.stop(live.job.id, cause)

    def close(self) -> None:
        """Stop watching; the tasks continue to run."""
        self._attempts.close()

    def _resize(self, live: LiveJob, now_s: float) -> list[Event]:
        """Start a new attempt for another size or place; another fraction of the same devices needs none."""
        if live.job.id in self._state.vacating:
            self._attempts.resize(*self._resize_order(live))
            return []
        self._attempts.share(live.job.id, live.placement or ())
        return [Resized(live.job.id, live.work_done(now_s), live.rate, now_s)]

    def _resize_order(self, live: LiveJob) -> tuple[LaunchOrder, Placement]:
        """Return the order for the next attempt, and the devices that the job leaves."""
        order = replace(self._order(live), resizes=True, moves=live.job.elastic is None)
        return order, live.suspended_on or self._state.vacating[live.job.id][1]

    def _order(self, live: LiveJob) -> LaunchOrder:
        record = self._records[live.job.id]
        return LaunchOrder(
            job=live.job,
            launch=launch_of(record.file, live.job.id),
            placement=self._devices(live),
            attempt=record.attempt,
            failures=record.failures,
            work_s=live.work,
            account=record.account,
        )

    def _devices(self, live: LiveJob) -> Placement:
        """The devices of the attempt that an order is about: those to come if it is resized or moved."""
        if live.phase in (Phase.RESIZING, Phase.MOVING):
            return live.placement or ()
        if live.suspended_on is not None:
            return live.suspended_on
        if live.phase in LEAVING:
            return self._state.vacating.get(live.job.id, (live, ()))[1]
        return live.placement or ()
