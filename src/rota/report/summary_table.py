"""The summary tables of a report: one row per run, the best value of each column marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from html import escape

from rota.report.look import unit_for
from rota.report.metrics import Metrics
from rota.report.runs import RunReport

TENANT_ROWS = 200


class Better(Enum):
    """Which way a column is good."""

    LOW = "low"
    HIGH = "high"
    NEITHER = "neither"


class ColumnKind(Enum):
    """How a column's numbers are written."""

    COUNT = "count"
    TIME = "time"
    PERCENT = "percent"
    RATIO = "ratio"


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryColumn:
    """One figure of `Metrics` as a column; the title is HTML."""

    key: str
    title: str
    kind: ColumnKind
    better: Better
    if_any: str = ""
    """A figure that is above 0 in some row where there is such a column."""


def _column(key: str, title: str, kind: ColumnKind, better: Better, *, if_any: str = "") -> SummaryColumn:
    return SummaryColumn(key=key, title=title, kind=kind, better=better, if_any=if_any)


_FRAGMENTED = "avg_fragmentation_delay_s"

COLUMNS = (
    _column("jobs", "jobs", ColumnKind.COUNT, Better.NEITHER),
    _column("finished", "finished", ColumnKind.COUNT, Better.HIGH),
    _column("avg_jct_s", "average<br>JCT", ColumnKind.TIME, Better.LOW),
    _column("median_jct_s", "median<br>JCT", ColumnKind.TIME, Better.LOW),
    _column("p99_jct_s", "p99<br>JCT", ColumnKind.TIME, Better.LOW),
    _column("makespan_s", "makespan", ColumnKind.TIME, Better.LOW),
    _column("avg_wait_s", "average<br>wait", ColumnKind.TIME, Better.LOW),
    _column("gpu_utilization", "GPU<br>use", ColumnKind.PERCENT, Better.HIGH),
    _column("gpu_busy", "GPU<br>busy", ColumnKind.PERCENT, Better.HIGH, if_any="gpu_busy"),
    _column("fragmentation", "fragmented", ColumnKind.PERCENT, Better.LOW),
    _column("preemptions", "pre-<br>emptions", ColumnKind.COUNT, Better.LOW),
    _column("preemption_overhead", "overhead", ColumnKind.PERCENT, Better.LOW),
    _column("worst_finish_time_fairness", "worst<br>FTF", ColumnKind.RATIO, Better.LOW),
    _column("jain_fairness", "Jain", ColumnKind.RATIO, Better.HIGH),
    _column("avg_fair_share_delay_s", "fair-share<br>delay", ColumnKind.TIME, Better.LOW, if_any=_FRAGMENTED),
    _column(_FRAGMENTED, "fragmentation<br>delay", ColumnKind.TIME, Better.LOW, if_any=_FRAGMENTED),
    _column("deadlines", "deadlines", ColumnKind.COUNT, Better.NEITHER, if_any="deadlines"),
    _column("deadlines_met", "deadlines<br>met", ColumnKind.COUNT, Better.HIGH, if_any="deadlines"),
)
_TENANT_COLUMNS = tuple(
    column for column in COLUMNS if column.key not in ("fragmentation", "makespan_s", "preemption_overhead")
)


def summary_table(runs: Sequence[RunReport]) -> str:
    """The table of all runs as HTML."""
    labels = [[run.name, run.scenario.placement or "-"] for run in runs]
    return _table(["policy", "placement"], labels, [run.metrics for run in runs], COLUMNS, mark=True)


def tenant_table(runs: Sequence[RunReport]) -> str:
    """The same by tenant, as HTML; empty where there is but one. Tenants with most jobs come first."""
    largest = sorted(
        {tenant for run in runs for tenant in run.tenants},
        key=lambda tenant: (-max(run.tenants[tenant].jobs for run in runs if tenant in run.tenants), tenant),
    )
    if len(largest) < 2:
        return ""
    labels, metrics = [], []
    for tenant in largest[: max(TENANT_ROWS // len(runs), 1)]:
        for run in runs:
            if tenant in run.tenants:
                labels.append([tenant, run.name])
                metrics.append(run.tenants[tenant])
    return _table(["tenant", "policy"], labels, metrics, _TENANT_COLUMNS, mark=False)


def _table(
    heads: list[str],
    labels: list[list[str]],
    metrics: list[Metrics],
    columns: Sequence[SummaryColumn],
    *,
    mark: bool,
) -> str:
    shown = [column for column in columns if not column.if_any or any(getattr(row, column.if_any) for row in metrics)]
    written = [_write(column, [getattr(row, column.key) for row in metrics], mark) for column in shown]
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    top += "".join(f'<th class="n">{title}</th>' for title, _ in written)
    lines = []
    for index, names in enumerate(labels):
        cells = "".join(f"<td>{escape(name)}</td>" for name in names)
        cells += "".join(column_cells[index] for _, column_cells in written)
        lines.append(f"<tr>{cells}</tr>")
    return f"<table><thead><tr>{top}</tr></thead><tbody>\n" + "\n".join(lines) + "\n</tbody></table>"


def _write(column: SummaryColumn, values: list[float | None], mark: bool) -> tuple[str, list[str]]:
    """A column's title with its unit, and its cells; all times of a column are in one unit."""
    title, scale = column.title, 1.0
    match column.kind:
        case ColumnKind.TIME:
            unit = unit_for(max((value for value in values if value is not None), default=0.0))
            title, scale = f"{title}<br><small>({unit.name})</small>", 1 / unit.seconds
        case ColumnKind.PERCENT:
            title, scale = f"{title}<br><small>(%)</small>", 100.0
        case ColumnKind.RATIO | ColumnKind.COUNT:
            pass
    shown = ["-" if value is None else _digits(value * scale, column.kind) for value in values]
    best = _best(column.better, values, shown) if mark else None
    return title, [
        f'<td class="n best">{text}</td>' if text == best else f'<td class="n">{text}</td>' for text in shown
    ]


def _digits(value: float, kind: ColumnKind) -> str:
    """Three digits that count, but never fewer than stand before the point."""
    if kind is ColumnKind.COUNT or value == 0:
        return f"{value:,.0f}"
    places = min(max(2 - math.floor(math.log10(abs(value))), 0), 6)
    return f"{value:,.{places}f}"


def _best(better: Better, values: list[float | None], shown: list[str]) -> str | None:
    """The best value as written; None where no value is better than another."""
    known = [(value, text) for value, text in zip(values, shown, strict=True) if value is not None]
    if better is Better.NEITHER or len({text for _, text in known}) < 2:
        return None
    choose = min if better is Better.LOW else max
    return choose(known)[1]
