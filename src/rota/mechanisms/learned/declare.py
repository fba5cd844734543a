"""The family of learned policies: jobs start in order of arrival, a chooser places the tasks of each."""

from __future__ import annotations

from rota.core.engine.protocols import Policy
from rota.core.state.job_record import JobView, LiveJob
from rota.mechanisms.declare import NEVER_STOPS
from rota.mechanisms.family import Build, Family
from rota.mechanisms.learned.checked import CheckedChooser
from rota.mechanisms.learned.interval_placement import Chooser, IntervalPlacement
from rota.mechanisms.ordering.list_scheduler import ListScheduler
from rota.mechanisms.ordering.rule import Backfill, SimpleRule, Turn


class DefaultChooser:
    """What choosers do unless they override it: tell no kinds of jobs apart, and learn nothing from running jobs."""

    kinds: tuple[str, ...] = ()

    def observe(self, running: dict[int, LiveJob], now_s: float) -> None:
        """Nothing is learned."""


def _by_arrival(job: JobView, now_s: float) -> Turn:
    return Turn((job.seq,))


def _schedule(chooser: Chooser, build: Build) -> Policy:
    """First in, first out with backfill; parameters with an `interval_s` collect the jobs of an interval."""
    order = ListScheduler(SimpleRule(of=_by_arrival, backfill=Backfill.ANY), build.allocator)
    return IntervalPlacement(order, chooser, interval_of(build.values), records_reasons=True)


def interval_of(values: object) -> float:
    """Seconds between two batches of placements: the parameter `interval_s`, 0 for a policy without it."""
    interval_s = getattr(values, "interval_s", 0.0)
    return float(interval_s) if isinstance(interval_s, float | int) else 0.0


learned = Family(schedule=_schedule, check=CheckedChooser, emits=NEVER_STOPS)
