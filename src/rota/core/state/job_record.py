"""The engine's record of a job: its request, its phase and its usage so far."""

from __future__ import annotations

from typing import Any, Protocol

from rota.core.errors import InvariantBroken
from rota.core.messages.decisions import Cause, Lease
from rota.core.messages.reasons import ReasonCode
from rota.core.model.job import OPPORTUNISTIC, WHOLE, Job, JobState
from rota.core.model.placement import Placement, held_milli, is_suspended_claim
from rota.core.state.phases import IS_IN_TRANSITION, IS_RESERVATION, PHASE_AFTER, STATE_BY_PHASE, Order, Phase


class JobView(Protocol):
    """What a policy may read of a job."""

    @property
    def job(self) -> Job:
        """What was asked for."""

    @property
    def seq(self) -> int:
        """Order of submission: the final tie-break in every comparison."""

    @property
    def submitted_s(self) -> float:
        """When it was submitted."""

    @property
    def holds(self) -> bool:
        """Whether devices are claimed for it, running or about to."""

    @property
    def since_s(self) -> float:
        """When it last began to wait, or to hold its devices."""

    @property
    def memo(self) -> Any:
        """What the policy wants to remember of this job."""

    @property
    def reported(self) -> float | None:
        """The fraction of its steps that the job last said it had done."""

    @property
    def gpus(self) -> float:
        """Devices that it holds, or would at full size."""

    @property
    def progress_rate(self) -> float:
        """Work done per second at present: 0 unless it runs."""

    @property
    def nominal_rate(self) -> float:
        """Work done per second at its best."""

    def attained_gpu_s(self, now_s: float) -> float:
        """Device-seconds used so far."""

    def run_s(self, now_s: float) -> float:
        """Seconds that it has run so far."""

    def waited_s(self, now_s: float) -> float:
        """Seconds since submission in which it did not run."""

    def work_done(self, now_s: float) -> float:
        """Work done so far, whether or not it is in a checkpoint."""

    def remaining_s(self, now_s: float) -> float:
        """Seconds of running still to go at its present speed where it runs, otherwise at its best."""

    def left_s(self, now_s: float) -> float:
        """Seconds of running still to go at its best speed, wherever it runs: what is left of the job itself."""

    def pace(self, now_s: float) -> tuple[float, float]:
        """By how much `left_s` falls per second now, and until when that holds."""


class LiveJob:
    """The engine's record of one job. Changed only by the transitions of `State` and by its own methods."""

    __slots__ = (
        "attained_milli_s",
        "demoted",
        "ended_s",
        "first_start_s",
        "gpu_milli",
        "has_turn",
        "job",
        "lease",
        "lost_work",
        "memo",
        "moves",
        "nominal_rate",
        "overhead_s",
        "phase",
        "placement",
        "preemptions",
        "ran_s",
        "rate",
        "reported",
        "restarts",
        "retry_s",
        "run_milli",
        "run_since_s",
        "scattered_s",
        "seq",
        "since_s",
        "state",
        "stopping",
        "submitted_s",
        "suspended_on",
        "suspensions",
        "undone",
        "unmet",
        "wait_code",
        "work",
        "work_from_s",
    )

    def __init__(self, job: Job, seq: int, now_s: float, nominal_rate: float) -> None:
        self.job = job
        self.seq = seq
        """Order of submission: the final tie-break in every comparison."""
        self.submitted_s = now_s
        self.phase = Phase.WAITING
        """Where it is in its life; see `core/state/phases.py`."""
        self.state = JobState.WAITING
        """What users see of its phase."""
        self.since_s = now_s
        """When it last began to wait, or to hold its devices."""
        self.placement: Placement | None = None
        """The devices that it claims: held when starting or running, reserved otherwise."""
        self.suspended_on: Placement | None = None
        """Its former devices if it is suspended or being suspended: where it can be resumed."""
        self.stopping: Cause | None = None
        """Why a stop was ordered that is not answered yet; decides what becomes of the job then."""
        self.unmet = 0
        """Unmet dependencies, one more during its pause after a failure, and one while it waits for a turn."""
        self.has_turn = False
        """Whether it may run as one of its array, where that has a limit."""
        self.retry_s: float | None = None
        """When it contends again after a failure; None if it does not pause."""
        self.demoted = False
        """Whether the guarantees can't hold it any more: it was admitted under others."""
        self.lease: Lease | None = None
        """Its lease under a policy that plans in rounds; None once that is over."""
        self.gpu_milli = job.gpu_milli
        self.nominal_rate = nominal_rate
        self.rate = 0.0
        self.work = 0.0
        self.work_from_s = now_s
        self.run_since_s: float | None = None
        self.run_milli = 0
        """Thousandths of devices that it runs on; its claim differs while it is resized, moved or stopped."""
        self.ran_s = 0.0
        self.attained_milli_s = 0.0
        self.first_start_s: float | None = None
        self.ended_s: float | None = None
        self.preemptions = 0
        self.suspensions = 0
        self.moves = 0
        self.restarts = 0
        self.undone = 0
        """Preemptions that undid work."""
        self.overhead_s = 0.0
        self.lost_work = 0.0
        self.scattered_s = 0.0
        """Seconds that it waited while enough devices were free, but not together."""
        self.memo: Any = None
        """What the policy remembers of this job."""
        self.reported: float | None = None
        """The fraction of its steps that the job last said it had done."""
        self.wait_code: ReasonCode | None = None
        """The obstacle that was journaled last."""

    @property
    def holds(self) -> bool:
        """Whether devices are claimed for it, running or about to."""
        return self.placement is not None

    @property
    def reserved(self) -> bool:
        """Whether it claims devices that are still to be vacated."""
        return IS_RESERVATION[self.phase]

    @property
    def is_contending(self) -> bool:
        """Whether it waits for devices, with or without a reservation, and nothing else keeps it from running."""
        return self.phase is Phase.WAITING or self.phase is Phase.RESERVED

    @property
    def is_leaving(self) -> bool:
        """Whether a stop was ordered and is not answered yet."""
        return self.stopping is not None

    @property
    def is_settled(self) -> bool:
        """Whether it runs on what it claims, in a draft too, with no order that is still to be answered."""
        if self.phase is not Phase.RUNNING and self.phase is not Phase.SAVING:
            return False
        return self.placement is not None and self.run_milli == self.gpu_milli

    @property
    def is_in_transition(self) -> bool:
        """Whether an order for it is outstanding, or will be when the draft at hand is carried out."""
        return IS_IN_TRANSITION[self.phase] or (self.phase is Phase.RUNNING and self.run_milli != self.gpu_milli)

    @property
    def is_suspended(self) -> bool:
        """Whether it is suspended, keeps no devices, in a draft too, and no order for it is outstanding."""
        return self.phase is Phase.SUSPENDED and self.placement is not None and is_suspended_claim(self.placement)

    @property
    def held(self) -> Placement:
        """What it claims and need not wait for; empty for a job that only has a reservation."""
        return () if self.placement is None or IS_RESERVATION[self.phase] else self.placement

    @property
    def gpus(self) -> float:
        """Devices that it holds, or would at full size."""
        return self.gpu_milli / WHOLE

    @property
    def standing(self) -> int:
        """Its priority, or that of a job without a guarantee if it was demoted."""
        return OPPORTUNISTIC if self.demoted else self.job.priority

    @property
    def progress_rate(self) -> float:
        """Work done per second at present: 0 unless it runs."""
        return self.rate if self.run_since_s is not None else 0.0

    def attained_gpu_s(self, now_s: float) -> float:
        """Device-seconds used so far."""
        attained = self.attained_milli_s
        if self.run_since_s is not None:
            attained += (now_s - self.run_since_s) * self.run_milli
        return attained / WHOLE

    def run_s(self, now_s: float) -> float:
        """Seconds that it has run so far."""
        return self.ran_s if self.run_since_s is None else self.ran_s + now_s - self.run_since_s

    def waited_s(self, now_s: float) -> float:
        """Seconds since submission in which it did not run."""
        return now_s - self.submitted_s - self.run_s(now_s)

    def work_done(self, now_s: float) -> float:
        """Work done so far, whether or not it is in a checkpoint."""
        if self.run_since_s is None or now_s <= self.work_from_s:
            return self.work
        work = self.work + (now_s - self.work_from_s) * self.rate
        return work if self.lease is None else max(min(work, self.lease.work), self.work)

    def remaining_s(self, now_s: float) -> float:
        """Seconds of running still to go at its present or nominal speed; the user's estimate if that is all."""
        total = self.job.work
        if total is None:
            estimate = self.job.estimate_s
            return float("inf") if estimate is None else max(estimate - self.run_s(now_s), 0.0)
        if self.run_since_s is None:
            return (total - self.work) / self.nominal_rate
        if self.work >= total:
            return 0.0
        wait = self.work_from_s - now_s
        if wait > 0:
            return wait + (total - self.work) / self.rate if self.rate else float("inf")
        return (total - self.work) / self.rate + wait if self.rate else float("inf")

    def left_s(self, now_s: float) -> float:
        """Seconds of running still to go at its best speed; the user's estimate if that is all that is known.

        Unlike `remaining_s` it does not change when the job is put elsewhere, so that jobs can be ordered by it
        without preempting each other for ever.
        """
        total = self.job.work
        if total is None:
            estimate = self.job.estimate_s
            return float("inf") if estimate is None else max(estimate - self.run_s(now_s), 0.0)
        return (total - self.work_done(now_s)) / self.nominal_rate

    def pace(self, now_s: float) -> tuple[float, float]:
        """By how much `left_s` falls per second now, and until when that holds."""
        if self.run_since_s is None:
            return 0.0, float("inf")
        if self.job.work is None:
            return (1.0 if self.left_s(now_s) < float("inf") else 0.0), float("inf")
        if now_s < self.work_from_s:
            return 0.0, self.work_from_s
        return self.rate / self.nominal_rate, float("inf")

    def settle(self, now_s: float) -> None:
        """Bring the counters up to date while it runs."""
        if self.run_since_s is None:
            return
        self.attained_milli_s += (now_s - self.run_since_s) * self.run_milli
        self.ran_s += now_s - self.run_since_s
        self.run_since_s = now_s
        if now_s > self.work_from_s:
            self.work = self.work_done(now_s)
            self.work_from_s = now_s

    def go_on_with(self, work: float, now_s: float) -> None:
        """Continue on other devices with what is kept of its work; without any of it, it has started again."""
        if not work and self.work > 0:
            self.lost_work += self.work
            self.undone += 1
            self.since_s = now_s
        self.work = work

    def enter(self, phase: Phase) -> None:
        """Go on to another phase."""
        self.phase = phase
        self.state = STATE_BY_PHASE[phase]

    def follow(self, order: Order) -> None:
        """Go on to the phase that follows an order."""
        after = PHASE_AFTER[order][self.phase]
        if after is None:
            raise InvariantBroken(f"job {self.job.id} is {self.phase.label}: {order.label!r} can't be ordered")
        self.enter(after)

    def set_placement(self, placement: Placement | None) -> None:
        """Claim devices, or none."""
        self.placement = placement
        if placement is None and self.run_since_s is None:
            self.lease = None
        self.gpu_milli = self.job.gpu_milli if placement is None else held_milli(placement)

    def remember(self, memo: Any) -> None:
        """Keep what the policy remembers of this job."""
        self.memo = memo

    def count_scattered(self, seconds: float) -> None:
        """Add time in which it waited while enough devices were free, but not together."""
        self.scattered_s += seconds

    def restore_end(self, phase: Phase, first_start_s: float | None, ended_s: float) -> None:
        """Take over the end of a job that ended while no manager ran."""
        self.enter(phase)
        self.first_start_s = first_start_s
        self.ended_s = ended_s

    def fork(self) -> LiveJob:
        """An independent copy."""
        copy = LiveJob(self.job, self.seq, self.submitted_s, self.nominal_rate)
        copy.phase = self.phase
        copy.state = self.state
        copy.since_s = self.since_s
        copy.placement = self.placement
        copy.suspended_on = self.suspended_on
        copy.stopping = self.stopping
        copy.unmet = self.unmet
        copy.has_turn = self.has_turn
        copy.retry_s = self.retry_s
        copy.demoted = self.demoted
        copy.lease = self.lease
        copy.gpu_milli = self.gpu_milli
        copy.rate = self.rate
        copy.work = self.work
        copy.work_from_s = self.work_from_s
        copy.run_since_s = self.run_since_s
        copy.run_milli = self.run_milli
        copy.ran_s = self.ran_s
        copy.attained_milli_s = self.attained_milli_s
        copy.first_start_s = self.first_start_s
        copy.ended_s = self.ended_s
        copy.preemptions = self.preemptions
        copy.suspensions = self.suspensions
        copy.moves = self.moves
        copy.restarts = self.restarts
        copy.undone = self.undone
        copy.overhead_s = self.overhead_s
        copy.lost_work = self.lost_work
        copy.scattered_s = self.scattered_s
        copy.memo = self.memo
        copy.reported = self.reported
        copy.wait_code = self.wait_code
        return copy
