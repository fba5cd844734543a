"""Simulation of a workload with a chooser: jobs start in the same order, only placements differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rota.core.state.history import History
from rota.core.state.job_record import JobView, LiveJob
from rota.drivers.simulator.study import Setting, simulate_with
from rota.learn.workloads import INTERVAL_S, cluster_of
from rota.mechanisms.learned.interval_placement import Chooser, IntervalPlacement, by_arrival
from rota.mechanisms.learned.server_arrays import Chosen, ServerArrays
from rota.mechanisms.ordering.list_scheduler import ListScheduler
from rota.mechanisms.ordering.rule import Backfill, SimpleRule, Turn
from rota.perf.speed.model import SpeedModel
from rota.placement import style
from rota.tenancy import allocator
from rota.traces.workload import Workload


class AsOffered:
    """Chooser that keeps every offered placement."""

    kinds: tuple[str, ...] = ()

    def observe(self, running: dict[int, LiveJob], now_s: float) -> None:
        """Ignore running jobs."""

    def choose(self, arrays: ServerArrays, live: LiveJob, now_s: float) -> Chosen | None:
        """Choose nothing."""
        return None


def play(
    work: Workload,
    servers: int,
    chooser: Chooser,
    *,
    placement: str = "spread",
    interval_s: float = INTERVAL_S,
    first: Callable[[LiveJob], float] = by_arrival,
) -> History:
    """Run a workload on shared servers.

    Where the chooser has no answer, the named placement decides; jobs of an interval are placed in the order of
    `first`.
    """
    cluster = cluster_of(servers)
    alloc = allocator("none", style(placement), cluster)
    inner = ListScheduler(SimpleRule(of=_first_come, backfill=Backfill.ANY, preempts=False), alloc)
    policy = IntervalPlacement(inner, chooser, interval_s, first=first)
    history, _ = simulate_with(work, policy, alloc, Setting(cluster=cluster, speed=SpeedModel(contention=True)))
    return history


def mean_jct_s(history: History) -> float:
    """Return the mean time from submission to end."""
    ends = [row.end_s - row.submit_s for row in history.jobs if row.end_s is not None]
    return sum(ends) / len(ends)


def alone_on_servers(work: Workload) -> Workload:
    """Return the same jobs with exclusive servers."""
    return replace(
        work,
        submissions=tuple(
            replace(submission, job=replace(submission.job, exclusive=True)) for submission in work.submissions
        ),
    )


def _first_come(job: JobView, now_s: float) -> Turn:
    return Turn((job.seq,))
