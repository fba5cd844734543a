"""A workload: submissions in order of time, with true run times that a scheduler does not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from statistics import fmean

from rota.core.model.cluster import Cluster
from rota.core.model.job import Job, JobId


class Outcome(Enum):
    """How a job ends if it is not interrupted."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderDelays:
    """How long the starts and the stops of a job really took, in order; after the last known one, their mean."""

    starts_s: tuple[float, ...] = ()
    stops_s: tuple[float, ...] = ()

    def start_s(self, number: int, usual_s: float) -> float:
        """Return how long a start takes, by number from 0; as usual where none is known."""
        return _in_turn(self.starts_s, number, usual_s)

    def stop_s(self, number: int, usual_s: float) -> float:
        """Return how long a stop takes, by number from 0; as usual where none is known."""
        return _in_turn(self.stops_s, number, usual_s)


def _in_turn(known_s: tuple[float, ...], number: int, usual_s: float) -> float:
    if number < len(known_s):
        return known_s[number]
    return fmean(known_s) if known_s else usual_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job, the moment of its submission, and its true outcome.

    `job.work` is what the job says of itself; it really ends with `outcome` once the fraction `ends_at` of
    that work is done (a job cancelled early, or one that fails on the way, ends below 1). `hidden_work` is the
    true work of a job that does not say it. `delays` are known of a job that has run before; a simulation in which
    starts or stops take no time ignores them.
    """

    job: Job
    submit_s: float
    outcome: Outcome = Outcome.SUCCEEDED
    ends_at: float = 1.0
    hidden_work: float | None = None
    delays: OrderDelays | None = None

    @property
    def target(self) -> float:
        """Work after which the job really ends."""
        work = self.job.work if self.hidden_work is None else self.hidden_work
        return (work or 0.0) * self.ends_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Submissions sorted by time (ties keep file order), where they came from, and what was left out.

    `skipped` counts lines that were wrong, `left_out` jobs that are right but have no whole run to replay
    (never started, or not ended when the file was written). `cluster` is set where the format brings its
    own nodes. `counts_steps` says that `work` is in steps, so that a speed profile is needed to run it.
    """

    submissions: tuple[Submission, ...]
    source: str
    format: str
    skipped: int = 0
    counts_steps: bool = False
    cluster: Cluster | None = None
    left_out: int = 0
    unfinished: tuple[Submission, ...] = ()
    """Of a journal: jobs that had not ended when it did, each with the work that it is known to exceed.

    Some may have been submitted before the first of the others.
    """
    contention_removed: bool = False
    """Whether the slowdown by neighbours was taken out of the work of a journal's jobs."""
    began_s: float = 0.0
    """The moment of the journal's own clock that is 0 here."""
    time_limits: Mapping[JobId, float] = field(default_factory=dict)
    """The time limits that a journal's jobs had; these run to their end."""
