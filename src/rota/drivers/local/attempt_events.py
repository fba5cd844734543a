"""Events that report the progress and the end of an attempt to the engine."""

from __future__ import annotations

from collections.abc import Callable

from rota.core.engine.driver import ExitDetail
from rota.core.messages.decisions import Cause
from rota.core.messages.events import (
    End,
    Event,
    Interrupted,
    JobEnded,
    JobRequeued,
    Moved,
    Resized,
    Resumed,
    Started,
    StartFailed,
    Stopped,
    Suspended,
    WorkDone,
)
from rota.core.messages.failures import pause_s
from rota.drivers.local.attempt import Attempt, AttemptOutcome, Verdict
from rota.drivers.local.failure import tries_again
from rota.store import clock

Answer = Callable[[Event, ExitDetail], None]
"""Takes the driver's events."""


def begun(attempt: Attempt) -> Event:
    """Return the event after the start of all tasks."""
    now_s = clock.now_s()
    if attempt.resizes:
        kind = Moved if attempt.moves else Resized
        return kind(attempt.job.id, attempt.work_s, attempt.rate, now_s)
    return Started(attempt.job.id, attempt.rate, now_s)


def saves(attempt: Attempt) -> Event:
    """Return the event for an attempt whose tasks only save."""
    return WorkDone(attempt.job.id, done_s(attempt))


def turned(attempt: Attempt) -> Event:
    """Return the event after all tasks were suspended or resumed."""
    if attempt.rests:
        return Suspended(attempt.job.id, done_s(attempt))
    return Resumed(attempt.job.id, attempt.rate, clock.now_s())


def at_end(attempt: Attempt, outcome: AttemptOutcome, failures: int) -> list[Event]:
    """Return the events for the end of an attempt; the engine has not ordered the stop of one that left by itself."""
    event = ended(attempt, outcome, failures)
    return [JobRequeued(attempt.job.id), event] if attempt.left and isinstance(event, Stopped) else [event]


def ended(attempt: Attempt, outcome: AttemptOutcome, failures: int) -> Event:
    """Return the event for the end of an attempt."""
    job_id = attempt.job.id
    kept = kept_s(attempt)
    stops_for_good = attempt.ordered in (Cause.CANCELLED, Cause.TIME_LIMIT)
    match outcome.verdict:
        case Verdict.SUCCEEDED:
            return JobEnded(job_id, End.SUCCEEDED, done_s(attempt))
        case Verdict.STOPPED:
            return Stopped(job_id, kept)
        case Verdict.NEVER_STARTED:
            if attempt.ordered is not None:
                return Stopped(job_id, attempt.work_s)
            if attempt.is_hopeless:
                return JobEnded(job_id, End.FAILED, attempt.work_s)
            if attempt.resizes:
                return Interrupted(job_id, attempt.work_s, clock.now_s() + pause_s(1))
            return StartFailed(job_id, outcome.message, clock.now_s() + pause_s(1))
        case Verdict.LOST:
            return Stopped(job_id, kept) if stops_for_good else Interrupted(job_id, kept)
        case Verdict.FAILED:
            failures += 1
            assert outcome.failure is not None
            if tries_again(outcome.failure, failures, attempt.launch.max_restarts):
                return Interrupted(job_id, kept, clock.now_s() + pause_s(failures))
            return JobEnded(job_id, End.FAILED, done_s(attempt))


def detail_of(outcome: AttemptOutcome) -> ExitDetail:
    """Return what is known about the end of an attempt beside its event."""
    failure = outcome.failure
    if failure is None:
        lost = outcome.verdict is Verdict.LOST
        return ExitDetail(exit_code=outcome.exit_code, message=outcome.message, failure="lost" if lost else None)
    return ExitDetail(
        exit_code=outcome.exit_code,
        message=outcome.message,
        failure=str(failure.code),
        evidence=failure.evidence,
        blame=failure.blame.value,
        remedy=failure.remedy.value,
    )


def kept_s(attempt: Attempt) -> float:
    """Return the work that a checkpoint keeps: all of it, for a job that saves its progress."""
    return done_s(attempt) if attempt.launch.checkpoint else 0.0


def done_s(attempt: Attempt) -> float:
    """Return the work done by now, proportional to the time in which its tasks ran unsuspended."""
    ran_s = max((task.ran_s(clock.now_s()) for task in attempt.tasks), default=0.0)
    return attempt.work_s + ran_s * attempt.rate
