"""One row per policy: the table that `rota sim` and `rota report` print, and the fields of `-o json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rota.cli import human
from rota.cli.render import Column
from rota.report.metrics import Metrics

# Columns of CSV keep their place: new fields come after these.
_LEADING = (
    "jobs",
    "finished",
    "avg_jct_s",
    "median_jct_s",
    "p99_jct_s",
    "makespan_s",
    "avg_wait_s",
    "gpu_utilization",
    "preemptions",
    "worst_finish_time_fairness",
    "jain_fairness",
)

SUMMARY_COLUMNS: tuple[Column, ...] = (
    Column(key="policy", title="policy"),
    Column(key="jobs", title="jobs", show=human.count, right=True),
    Column(key="finished", title="finished", show=human.count, right=True),
    Column(key="avg_jct_s", title="avg JCT", show=human.duration, right=True),
    Column(key="median_jct_s", title="median JCT", show=human.duration, right=True),
    Column(key="p99_jct_s", title="p99 JCT", show=human.duration, right=True),
    Column(key="makespan_s", title="makespan", show=human.duration, right=True),
    Column(key="avg_wait_s", title="avg wait", show=human.duration, right=True),
    Column(key="gpu_allocation", title="GPU allocation", show=human.percent, right=True),
    Column(key="gpu_busy", title="GPU busy", show=human.percent, right=True, if_known=True),
    Column(key="preemptions", title="preemptions", show=human.count, right=True),
    Column(key="worst_finish_time_fairness", title="worst FTF", show=human.ratio, right=True),
    Column(key="jain_fairness", title="Jain", show=human.ratio, right=True),
    Column(key="avg_fair_share_delay_s", title="fair-share delay", show=human.duration, right=True, wide=True),
    Column(key="avg_fragmentation_delay_s", title="fragmentation delay", show=human.duration, right=True, wide=True),
    Column(key="deadlines", title="deadlines", show=human.count, right=True, wide=True),
    Column(key="deadlines_met", title="met", show=human.count, right=True, wide=True),
    Column(key="events", title="events", show=human.count, right=True),
    Column(key="wall_s", title="took", show=human.duration, right=True),
)
"""The columns of the table; programs get every field of `summary_row`."""


def columns_with(metrics: Iterable[str]) -> list[Column]:
    """The columns, with metrics of the user's own before what the run cost."""
    *figures, events, wall_s = SUMMARY_COLUMNS
    return [
        *figures,
        *(Column(key=name, title=name, show=human.figure, right=True) for name in metrics),
        events,
        wall_s,
    ]


def summary_row(
    name: str,
    metrics: Metrics,
    tenants: Mapping[str, Metrics],
    *,
    events: int | None,
    wall_s: float | None,
) -> dict[str, object]:
    """A run's metrics by name; `events` and `wall_s` are None where they are not known."""
    fields = metrics.encode()
    row: dict[str, object] = {"policy": name}
    for key in _LEADING:
        row[key] = fields.pop(key)
    row["events"] = events
    row["wall_s"] = wall_s
    row.update(fields)
    row["tenants"] = {tenant: figures.encode() for tenant, figures in tenants.items()}
    return row
