"""The input of a report: runs, and the figures of their jobs as columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from rota.core.state.history import History
from rota.health.lost_time import FailureReport
from rota.report.metrics import Metrics, finish_time_fairness
from rota.report.series import Floats
from rota.report.timeline import Timeline
from rota.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """One run under the name that the report shows it by."""

    name: str
    scenario: Scenario
    metrics: Metrics
    tenants: Mapping[str, Metrics]
    history: History
    timeline: Timeline
    more: Mapping[str, float | None] = field(default_factory=dict)
    """Metrics of the user's own, by name."""
    failures: FailureReport | None = None
    """What failures cost, where machines fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobColumns:
    """The jobs of a run that ran and ended, in columns; NaN where a job has no such value."""

    name: str
    jct_s: Floats
    slowdown: Floats
    """Completion time over the time that the job's work takes without interruption."""
    fairness: Floats
    gpus: Floats
    preemptions: Floats
    tenants: tuple[str, ...]


def columns_of(run: RunReport) -> JobColumns:
    """The ended jobs of a run in columns."""
    ratios = finish_time_fairness(run.history)
    jobs = run.history.jobs
    done = [index for index, row in enumerate(jobs) if row.end_s is not None and row.start_s is not None]
    rows = [jobs[index] for index in done]
    jct_s = np.array([(row.end_s or 0.0) - row.submit_s for row in rows], dtype=np.float64)
    ideal_s = np.array([row.ideal_s or np.nan for row in rows], dtype=np.float64)
    return JobColumns(
        name=run.name,
        jct_s=jct_s,
        slowdown=jct_s / ideal_s,
        fairness=ratios[done],
        gpus=np.array([row.gpus for row in rows], dtype=np.float64),
        preemptions=np.array([row.preemptions for row in rows], dtype=np.float64),
        tenants=tuple(row.tenant for row in rows),
    )


def first_submit_s(runs: list[RunReport]) -> float:
    """The earliest submission of all runs: where their time axis begins."""
    return min((row.submit_s for run in runs for row in run.history.jobs), default=0.0)
