"""Journals as traces: what was submitted when, and how long each job really ran.

The answer to "what would another policy have done": the jobs of a live manager, or of a simulation, again.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from rota.core.codec.values import decode_cluster, decode_event, decode_job
from rota.core.errors import RotaError
from rota.core.messages import events as ev
from rota.core.messages.events import End, Event
from rota.core.model.job import Job, JobId
from rota.traces.source import TraceSource
from rota.traces.workload import OrderDelays, Outcome, Submission, Workload

JOURNAL = "journal"
"""The name of the format."""
_OUTCOMES = {End.SUCCEEDED: Outcome.SUCCEEDED, End.FAILED: Outcome.FAILED, End.CANCELLED: Outcome.CANCELLED}
_BROKEN = (ValueError, KeyError, TypeError, AttributeError)


@dataclass(slots=True)
class _Course:
    """What a journal holds about one job.

    Work is the time that it ran, in seconds of the devices that it ran on. That of an elastic job is in seconds at its
    full size, by the speeds that the journal has.
    """

    job: Job
    submit_s: float
    kept_s: float = 0.0
    """Work that was safe when it last started."""
    since_s: float | None = None
    rate: float = 1.0
    """Work per second since then."""
    outcome: Outcome | None = None
    work_s: float = 0.0
    start_ordered_s: float | None = None
    stop_ordered_s: float | None = None
    """When it was ordered to start and to stop, until that is answered."""
    starts_s: list[float] = field(default_factory=list)
    stops_s: list[float] = field(default_factory=list)
    """How long each start and stop took from the order to the answer."""
    suspensions_s: list[float] = field(default_factory=list)
    """How long it took to suspend it in place of a stop, each time."""
    resumptions_s: list[float] = field(default_factory=list)
    longest_s: float = 0.0
    """The most work that it had done when a run of it was over, whether or not that was kept."""
    is_held: bool = False

    def ran(self, until_s: float) -> float:
        """Work done by now."""
        return self.kept_s + (0.0 if self.since_s is None else max(until_s - self.since_s, 0.0) * self.rate)

    def runs(self, since_s: float, rate: float) -> None:
        """Run at a speed from a moment on."""
        self.since_s, self.rate = since_s, 1.0 if self.job.elastic is None else rate

    def goes_on(self, now_s: float, work: float) -> None:
        """Count what it has done by now: as the journal has it, or by its own time."""
        self.kept_s = self.ran(now_s) if self.job.elastic is None else work

    def started(self, now_s: float, from_s: float) -> None:
        """Take note of how long a start took, or a resumption in its place."""
        ordered_s, self.start_ordered_s = self.start_ordered_s, None
        if ordered_s is not None:
            self.starts_s.append(max(now_s - ordered_s, 0.0))
            if self.suspensions_s and _is_suspended(self.job):
                self.resumptions_s.append(max(max(now_s, from_s) - ordered_s, 0.0))

    def stopped(self, now_s: float, kept_s: float) -> None:
        """Take note of how long a stop took, or a suspension in its place, and of the work that is left.

        A simulated job does no work from the order to stop on. What drivers count after it is no work here either.
        """
        if self.start_ordered_s is not None:  # it was called back before it had started
            self.starts_s.append(max(now_s - self.start_ordered_s, 0.0))
        ordered_s, self.start_ordered_s, self.stop_ordered_s = self.stop_ordered_s, None, None
        if ordered_s is not None:
            self.stops_s.append(max(now_s - ordered_s, 0.0))
            if _is_suspended(self.job):
                self.suspensions_s.append(self.stops_s[-1])
            kept_s = min(kept_s, self.ran(ordered_s))
        self.kept_s, self.since_s = kept_s, None

    @property
    def waits_for_others(self) -> bool:
        """Whether it has never run, and may wait for more than devices: it is held, or depends on other jobs."""
        has_run = self.since_s is not None or self.longest_s > 0 or self.kept_s > 0
        return not has_run and (self.is_held or bool(self.job.depends_on))

    @property
    def delays(self) -> OrderDelays | None:
        """How long each start and stop took; None where none was seen."""
        if not self.starts_s and not self.stops_s:
            return None
        return OrderDelays(starts_s=tuple(self.starts_s), stops_s=tuple(self.stops_s))

    def with_prices(self) -> Job:
        """Return the job with what its suspensions and resumptions took, where there were any."""
        checkpoint = self.job.checkpoint
        if checkpoint is None or not self.suspensions_s:
            return self.job
        suspend_s = fmean(self.suspensions_s)
        resume_s = fmean(self.resumptions_s) if self.resumptions_s else checkpoint.resume_s
        return replace(self.job, checkpoint=replace(checkpoint, suspend_s=suspend_s, resume_s=resume_s))


def _is_suspended(job: Job) -> bool:
    """Return whether a job is suspended in place of a stop."""
    return job.checkpoint is not None and job.checkpoint.resume_s is not None and job.checkpoint.interval_s == 0


def detects(source: TraceSource) -> bool:
    """Whether the first line is a journal's header."""
    return source.first_line.startswith("{") and '"rota_journal"' in source.first_line[:200]


def read(source: TraceSource) -> Workload:
    """Every job that came to its end after it had run; times count from the first submission."""
    courses: dict[JobId, _Course] = {}
    last_s = -math.inf
    with source.text() as lines:
        for number, line in enumerate(lines, start=1):
            try:
                value = json.loads(line)
                if number == 1:
                    cluster = decode_cluster(value["cluster"])
                    _begin(courses, value.get("snapshot"))
                else:
                    _take(courses, value)
                    last_s = float(value["t"])
            except _BROKEN as error:
                raise RotaError(f"{source.path}:{number}: a broken step: {type(error).__name__}: {error}") from error
    ended = [course for course in courses.values() if course.outcome is not None and course.work_s > 0]
    open_ = [course for course in courses.values() if course.outcome is None and not course.waits_for_others]
    if not ended:
        raise RotaError(f"{source.path}: no job of the journal ran to its end; there is nothing to simulate")
    first_s = min(course.submit_s for course in ended)
    for course in open_:
        course.work_s = max(course.ran(last_s), course.longest_s)
    submissions = sorted((_submission(course, first_s) for course in ended), key=lambda each: each.submit_s)
    return Workload(
        submissions=tuple(submissions),
        source=str(source.path),
        format=JOURNAL,
        cluster=cluster,
        left_out=len(courses) - len(ended),
        began_s=first_s,
        time_limits={
            each.job.id: each.job.time_limit_s for each in (*ended, *open_) if each.job.time_limit_s is not None
        },
        unfinished=tuple(_submission(course, first_s) for course in open_),
    )


def _submission(course: _Course, first_s: float) -> Submission:
    job = replace(course.with_prices(), work=course.work_s, depends_on=(), deadline_s=None, time_limit_s=None)
    return Submission(
        job=job,
        submit_s=course.submit_s - first_s,
        outcome=course.outcome or Outcome.SUCCEEDED,
        delays=course.delays,
    )


def _begin(courses: dict[JobId, _Course], snapshot: dict[str, Any] | None) -> None:
    """Jobs that were there when the journal began."""
    for value in () if snapshot is None else snapshot["jobs"]:
        job = decode_job(value["job"])
        courses[job.id] = _Course(
            job, value["submitted_s"], kept_s=value.get("work", 0.0), since_s=value.get("run_since_s")
        )


def _take(courses: dict[JobId, _Course], value: dict[str, Any]) -> None:
    now_s = float(value["t"])
    for each in value["in"]:
        event: Event = decode_event(each)
        if isinstance(event, ev.JobArrived):
            courses[event.job.id] = _Course(event.job, now_s)
            continue
        course = courses.get(getattr(event, "job_id", JobId("")))
        if course is None:
            continue
        match event:
            case ev.Started(rate=rate, work_from_s=from_s):
                course.started(now_s, from_s)
                course.runs(max(now_s, from_s), rate)
            case ev.Stopped(work=kept_s) | ev.Interrupted(work=kept_s):
                course.work_s = course.ran(now_s)
                course.longest_s = max(course.longest_s, course.work_s)
                course.stopped(now_s, kept_s)
            case (
                ev.Resized(work=kept_s, rate=rate, work_from_s=from_s)
                | ev.Moved(work=kept_s, rate=rate, work_from_s=from_s)
            ):
                course.goes_on(now_s, kept_s)
                course.kept_s = course.kept_s if kept_s else 0.0
                course.runs(max(now_s, from_s), rate)
            case ev.SpeedChanged(work=kept_s, rate=rate):
                course.goes_on(now_s, kept_s)
                course.runs(now_s, rate)
            case ev.Lapsed(work=kept_s):
                course.goes_on(now_s, kept_s)
                course.since_s = None
            case ev.Suspended():
                course.kept_s, course.since_s = course.ran(now_s), None
            case ev.Resumed(rate=rate, work_from_s=from_s):
                course.runs(max(now_s, from_s), rate)
            case ev.CheckpointChanged(job=job) if job.checkpoint is not None and job.checkpoint.resume_s is not None:
                course.job = replace(course.job, checkpoint=job.checkpoint)  # what it cost when it could be suspended
            case ev.JobEnded(end=end):
                course.work_s = course.ran(now_s)
                course.outcome, course.since_s = _OUTCOMES[end], None
            case ev.JobHeld():
                course.is_held = True
            case ev.JobReleased():
                course.is_held = False
            case ev.JobCancelled():
                course.outcome = Outcome.CANCELLED
                course.work_s = course.ran(now_s)
            case _:
                pass
    for order in value.get("out", ()):
        if order["order"] in ("start", "stop") and (ordered := courses.get(order["job_id"])) is not None:
            if order["order"] == "start":
                ordered.start_ordered_s = now_s
            else:
                ordered.stop_ordered_s = now_s
