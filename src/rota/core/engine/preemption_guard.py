"""The preemption guard: which running jobs a plan must not stop, and until when.

A draft carries one guard. A mechanism asks `draft.may_preempt(job)` wherever it chooses a job to stop, to move or to
resize; tenancy does not ask when it reclaims what a tenant only borrowed. The guard of a simulation protects no job
unless it is asked for, so that published policies behave as published. One thing every guard ensures: jobs that start
over do not displace each other for ever.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.core.model.job import OPPORTUNISTIC, Job
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import Phase

_BEGUN = frozenset(range(Phase.STARTING, Phase.MOVING + 1))
"""Phases of a job that has tasks and no order to leave: from its start, suspended or not."""
FREE_LOSSES = 4
"""How often work of a job may be undone before it is protected for the sake of progress."""
_MOST_DOUBLINGS = 40
"""Beyond this the protected time exceeds any life of a cluster, and powers of it any float."""


def can_resume(job: Job) -> bool:
    """Return whether a job that is stopped goes on from what it saved; one without checkpoints starts over."""
    return job.checkpoint is not None and job.checkpoint.interval_s < math.inf


def accepts_preemption(job: Job) -> bool:
    """Return whether a job was submitted with the consent that it may be stopped and start over."""
    return job.preemptible or job.priority == OPPORTUNISTIC


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionGuard:
    """Rules of protection. The default protects no job, as long as all make progress.

    A job that loses its work when it is stopped is protected for `min_run_s * growth ** n` seconds after its n-th
    preemption. It is therefore stopped at most `1 + log(T / min_run_s, growth)` times, where T is its run time. A job
    that saves its work is protected for `min_run_s * (1 + n)` seconds, which exceeds any cost of a restart in the end.

    With every guard, a job whose work was undone more than `FREE_LOSSES` times is protected for as long as it ran
    before, twice as long after each further loss. It therefore ends, whatever the policy does.
    """

    protects_unsaved: bool = False
    """Whether a job that can't resume is never stopped, unless it was submitted as preemptible."""
    min_run_s: float = 0.0
    """How long a job holds its devices at least before it is stopped."""
    growth: float = 2.0
    """By how much that time grows with each attempt whose work was lost."""

    def __post_init__(self) -> None:
        if not 0 <= self.min_run_s < math.inf:
            raise RotaError(f"min_run_s is {self.min_run_s:g}; it must be a number of seconds of 0 or more")
        if not 1 < self.growth < math.inf:
            raise RotaError(f"min_run_growth is {self.growth:g}; it must be above 1")

    @property
    def is_open(self) -> bool:
        """Whether it protects no job that makes progress."""
        return not self.protects_unsaved and not self.min_run_s

    def protected_until_s(self, live: LiveJob) -> float:
        """Return until when a job must not be stopped: -inf if it may be now, inf if it must never be."""
        if live.phase not in _BEGUN:
            return -math.inf
        progress_s = live.since_s + _for_progress_s(live) if live.undone > FREE_LOSSES else -math.inf
        return progress_s if self.is_open else max(self._asked_for_s(live), progress_s)

    def _asked_for_s(self, live: LiveJob) -> float:
        """Return until when the rules protect a job that has begun."""
        job = live.job
        saves = can_resume(job)
        if self.protects_unsaved and not saves and not accepts_preemption(job):
            return math.inf
        times = live.preemptions
        grown = 1.0 + times if saves else self.growth ** min(times, _MOST_DOUBLINGS)
        return live.since_s + self.min_run_s * grown


def _for_progress_s(live: LiveJob) -> float:
    """Return for how long a job whose work was undone must run: as long as before, twice with each further loss."""
    lost_s = live.lost_work / live.nominal_rate / live.undone
    return lost_s * 2.0 ** min(live.undone - FREE_LOSSES, _MOST_DOUBLINGS)


OPEN = PreemptionGuard()
"""The guard that protects only what makes no progress otherwise."""
