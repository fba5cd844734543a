"""The true course of one job in the simulated world: how much of its work is done, and how fast it goes."""

from __future__ import annotations

import math

from rota.core.messages.decisions import Lease
from rota.core.messages.events import End
from rota.core.model.job import Job
from rota.core.model.placement import Placement
from rota.traces.workload import Outcome, Submission

_ENDS = {Outcome.SUCCEEDED: End.SUCCEEDED, Outcome.FAILED: End.FAILED, Outcome.CANCELLED: End.CANCELLED}

SLACK = 1e-12
"""How far two ways to add up the same time may differ, as a part of it."""


class JobRun:
    """One job's true course: work done, work to do, and the run that is going on if any."""

    __slots__ = (
        "busy_by_work",
        "busy_s",
        "end_s",
        "ever_ran",
        "interval_s",
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
        "target",
        "work",
        "work_from_s",
    )

    def __init__(self, submission: Submission, interval_s: float) -> None:
        self.job: Job = submission.job
        checkpoint = submission.job.checkpoint
        self.interval_s = interval_s if checkpoint is None else checkpoint.interval_s
        """Between its checkpoints; with 0 nothing is ever lost."""
        self.outcome = _ENDS[submission.outcome]
        self.target = (submission.job.work or 0.0) * submission.ends_at
        self.work = 0.0
        self.work_from_s = 0.0
        self.rate = 0.0
        self.saved = 0.0
        """Work that is in the last checkpoint, which was made at `saved_s`."""
        self.saved_s = 0.0
        self.placement: Placement | None = None
        self.end_s = math.inf
        """When the world has to speak of it next: its end, or that of its lease."""
        self.ever_ran = False
        self.lease: Lease | None = None
        self.lapsed = False
        """Its lease is over and it waits on its devices."""
        self.saves_until_s: float | None = None
        """Until when it saves its state, if it was told to stop."""
        self.saves_result = False
        """Whether it has done its work and saves what came of it, until `end_s`."""
        self.rests = False
        """Whether it is suspended."""
        self.owed_s = 0.0
        """What was left of a restart when it was suspended."""
        self.busy_s = 0.0
        """Device-seconds in which it kept devices busy, while it did the work that was `metered`."""
        self.metered = 0.0
        self.busy_by_work = 0.0
        """The same for each unit of work at its present speed."""

    def work_at(self, now_s: float) -> float:
        """Work done by now."""
        if now_s <= self.work_from_s:
            return self.work
        return min(self.work + (now_s - self.work_from_s) * self.rate, self.target)

    def work_leased(self, lease: Lease, now_s: float) -> float:
        """What a lease came to: all of it, or what was done in its time."""
        goal = min(lease.work, self.target)
        return goal if self.goal_s(goal) <= now_s + SLACK * max(now_s, 1.0) else self.work_at(now_s)

    def goal_s(self, goal: float) -> float:
        """When it has done so much work at its present speed."""
        left = goal - self.work
        if left <= 0:
            return self.work_from_s
        return self.work_from_s + left / self.rate if self.rate > 0 else math.inf

    def meter(self, now_s: float) -> None:
        """Count how busy it kept its devices, before its speed or its work changes."""
        if self.busy_by_work:
            done = self.work_at(now_s)
            self.busy_s += (done - self.metered) * self.busy_by_work
            self.metered = done

    def kept(self, now_s: float) -> float:
        """What a fault leaves of its work."""
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
