"""The simulated run of one job: the work done so far, and its speed."""

from __future__ import annotations

import heapq
import math

from rota.core.messages.decisions import Lease
from rota.core.messages.events import End
from rota.core.model.job import Job
from rota.core.model.placement import Placement
from rota.traces.workload import OrderDelays, Outcome

_ENDS = {Outcome.SUCCEEDED: End.SUCCEEDED, Outcome.FAILED: End.FAILED, Outcome.CANCELLED: End.CANCELLED}

SLACK = 1e-12
"""Relative difference by which two ways to add up the same time may differ."""


class JobRun:
    """Work done, work to do, and the present run of a job."""

    __slots__ = (
        "busy_by_work",
        "busy_s",
        "delays",
        "end_s",
        "ever_ran",
        "interval_s",
        "is_starting",
        "job",
        "lapsed",
        "lease",
        "metered",
        "outcome",
        "owed_s",
        "placement",
        "rate",
        "rests",
        "saved",
        "saved_s",
        "saves_result",
        "saves_until_s",
        "spent_s",
        "starts",
        "startup_s",
        "stops",
        "target",
        "work",
        "work_from_s",
    )

    def __init__(
        self, job: Job, target: float, outcome: Outcome, interval_s: float, delays: OrderDelays | None = None
    ) -> None:
        self.job = job
        self.delays = delays
        self.starts = 0
        self.stops = 0
        self.startup_s = 0.0
        """How long after the order its present start is answered, if it is known for the job itself."""
        self.is_starting = False
        """Whether it was ordered to start, and that is not answered yet."""
        self.spent_s = 0.0
        """How much of the start or stop that it is ordered next is over: of a job that was taken over."""
        self.interval_s = interval_s if job.checkpoint is None else job.checkpoint.interval_s
        """Time between its checkpoints; with 0 no work is ever lost, without end it is never saved."""
        self.outcome = _ENDS[outcome]
        self.target = target
        self.work = 0.0
        self.work_from_s = 0.0
        self.rate = 0.0
        self.saved = 0.0
        """Work that is in the last checkpoint, which was made at `saved_s`."""
        self.saved_s = 0.0
        self.placement: Placement | None = None
        self.end_s = math.inf
        """Time of its next event: its end, or the end of its lease."""
        self.ever_ran = False
        self.lease: Lease | None = None
        self.lapsed = False
        """Whether its lease is over and it waits, holding its devices."""
        self.saves_until_s: float | None = None
        """Until when it saves its state, if it was ordered to stop."""
        self.saves_result = False
        """Whether its work is done and it saves the result, until `end_s`."""
        self.rests = False
        """Whether it is suspended."""
        self.owed_s = 0.0
        """Restart time that was left when it was suspended."""
        self.busy_s = 0.0
        """Device-seconds in which it kept devices busy, up to the work `metered`."""
        self.metered = 0.0
        self.busy_by_work = 0.0
        """Busy device-seconds per unit of work at its present speed."""

    def work_at(self, now_s: float) -> float:
        """Return the work done by now."""
        if now_s <= self.work_from_s:
            return self.work
        return min(self.work + (now_s - self.work_from_s) * self.rate, self.target)

    def work_leased(self, lease: Lease, now_s: float) -> float:
        """Return the work done under a lease: all of it, or what its time allowed."""
        goal = min(lease.work, self.target)
        return goal if self.goal_s(goal) <= now_s + SLACK * max(now_s, 1.0) else self.work_at(now_s)

    def goal_s(self, goal: float) -> float:
        """Return when it reaches an amount of work at its present speed."""
        left = goal - self.work
        if left <= 0:
            return self.work_from_s
        return self.work_from_s + left / self.rate if self.rate > 0 else math.inf

    def meter(self, now_s: float) -> None:
        """Add up how busy it kept its devices, before its speed or its work changes."""
        if self.busy_by_work:
            done = self.work_at(now_s)
            self.busy_s += (done - self.metered) * self.busy_by_work
            self.metered = done

    def begin_start(self, usual_s: float, restart_s: float) -> float:
        """Count a start; return how long it does no work from now on: it loads, or its memory comes back."""
        spent_s, self.spent_s = self.spent_s, 0.0
        if usual_s and self.delays is not None:
            usual_s = self.startup_s = max(self.delays.start_s(self.starts, usual_s) - spent_s, 0.0)
            spent_s = 0.0
            self.is_starting = usual_s > 0 and self.lease is None
            self.rate = 0.0 if self.is_starting else self.rate
        self.starts += 1
        ran_before, self.ever_ran = self.ever_ran, True
        found = None if self.job.checkpoint is None else self.job.checkpoint.resume_s
        if ran_before:
            usual_s = usual_s + restart_s if found is None else found
        return max(usual_s - spent_s, 0.0)

    def begin_stop(self, usual_s: float) -> float:
        """Count a stop; return how long it takes: as usual, or until its memory is away."""
        found = None if self.job.checkpoint is None else self.job.checkpoint.suspend_s
        if usual_s and self.delays is not None:
            usual_s = self.delays.stop_s(self.stops, usual_s)
        self.stops += 1
        spent_s, self.spent_s = self.spent_s, 0.0
        return max((usual_s if found is None or found == math.inf else found) - spent_s, 0.0)

    @property
    def is_idle(self) -> bool:
        """Whether it does no work on the devices that it holds: it starts, saves, rests or waits for a lease."""
        return self.is_starting or self.lapsed or self.rests or self.saves_until_s is not None or self.saves_result

    @property
    def starts_over(self) -> bool:
        """Whether it never saves its progress, so that a stop undoes all of it."""
        return self.interval_s == math.inf

    def kept(self, now_s: float) -> float:
        """Return the work that survives a fault."""
        if self.interval_s == 0:
            return self.work_at(now_s)
        self.save(now_s)
        return self.saved

    def save(self, now_s: float) -> None:
        """Bring the last checkpoint up to date: progress is saved at each full interval of a run."""
        ran_s = now_s - self.saved_s
        if self.interval_s == 0 or ran_s < self.interval_s or self.rests or self.saves_until_s is not None:
            return
        self.saved_s += math.floor(ran_s / self.interval_s) * self.interval_s
        self.saved = self.work_at(self.saved_s)


class EndQueue:
    """The moments at which runs end, earliest first; a moment that no longer holds is passed over."""

    __slots__ = ("_ends", "_pushed")

    def __init__(self) -> None:
        self._ends: list[tuple[float, int, JobRun]] = []
        self._pushed = 0

    @property
    def due_s(self) -> float:
        """The time at which the next run ends."""
        ends = self._ends
        while ends:
            at_s, _, run = ends[0]
            if run.end_s == at_s:
                return at_s
            heapq.heappop(ends)
        return math.inf

    def pop(self, now_s: float) -> JobRun | None:
        """Remove and return a run that ends by now; None when there are no more."""
        ends = self._ends
        while ends and ends[0][0] <= now_s:
            at_s, _, run = heapq.heappop(ends)
            if run.end_s == at_s:
                return run
        return None

    def push(self, run: JobRun, at_s: float) -> None:
        """Set the end of a run."""
        run.end_s = at_s
        if at_s < math.inf:
            heapq.heappush(self._ends, (at_s, self._pushed, run))
            self._pushed += 1
