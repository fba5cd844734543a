"""The family of learned policies: jobs start in order of arrival, a chooser places the tasks of each."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

from rota.core.engine.protocols import Policy
from rota.core.errors import RotaError
from rota.core.state.job_record import JobView, LiveJob
from rota.mechanisms.declare import NEVER_STOPS
from rota.mechanisms.family import Build, Family
from rota.mechanisms.learned.checked import CheckedChooser
from rota.mechanisms.learned.interval_placement import Chooser, IntervalPlacement
from rota.mechanisms.ordering.list_scheduler import ListScheduler
from rota.mechanisms.ordering.rule import Backfill, SimpleRule, Turn
from rota.mechanisms.user_code import as_number, shown


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
    return IntervalPlacement(order, chooser, interval_of(build.values, build.name), records_reasons=True)


@runtime_checkable
class IntervalParams(Protocol):
    """Parameters of a policy that places the jobs of an interval together."""

    @property
    def interval_s(self) -> float | None:
        """Seconds between two batches of placements; 0 or None: each job is placed at once."""


def interval_of(values: object, policy: str) -> float:
    """Seconds between two batches of placements: the parameter `interval_s`, 0 for a policy without it."""
    if not isinstance(values, IntervalParams) or values.interval_s is None:
        return 0.0
    seconds = as_number(values.interval_s)
    if seconds is None or not 0 <= seconds < math.inf:
        raise RotaError(
            f"policy {policy!r}: interval_s is {shown(values.interval_s)}; "
            "it must be a finite number of seconds, 0 or more"
        )
    return seconds


learned = Family(schedule=_schedule, check=CheckedChooser, emits=NEVER_STOPS)
