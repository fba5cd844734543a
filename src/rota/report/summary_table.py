"""The summary tables of a report: a row per run, with the best value of each column marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from rota.report.look import unit_for
from rota.report.metrics import Metrics
from rota.report.runs import RunReport

TENANT_ROWS = 200


class Better(Enum):
    """Whether low or high values of a column are better."""

    LOW = "low"
    HIGH = "high"
    NEITHER = "neither"


class ColumnKind(Enum):
    """How a column's numbers are formatted."""

    COUNT = "count"
    TIME = "time"
    PERCENT = "percent"
    RATIO = "ratio"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHead:
    """The head of a column: the lines of its title, and its unit."""

    lines: tuple[str, ...]
    unit: str = ""
    is_number: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCell:
    """A value as it is shown."""

    text: str
    is_number: bool = False
    is_best: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryTable:
    """A table as it is shown; with `fold`, under that label."""

    heads: tuple[TableHead, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    fold: str = ""
    title: str = ""
    """A caption above it."""

    def with_column(self, head: TableHead, cells: Sequence[TableCell]) -> SummaryTable:
        """The table with another column at its right."""
        rows = tuple((*row, cell) for row, cell in zip(self.rows, cells, strict=True))
        return replace(self, heads=(*self.heads, head), rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryColumn:
    """One of the `Metrics` as a column; `|` breaks the title into lines."""

    key: str
    title: str
    kind: ColumnKind
    better: Better
    if_any: str = ""
    """The metric that must be above 0 in some row; otherwise the column is left out."""


def _column(key: str, title: str, kind: ColumnKind, better: Better, *, if_any: str = "") -> SummaryColumn:
    return SummaryColumn(key=key, title=title, kind=kind, better=better, if_any=if_any)


_FRAGMENTED = "avg_fragmentation_delay_s"

COLUMNS = (
    _column("jobs", "jobs", ColumnKind.COUNT, Better.NEITHER),
    _column("finished", "finished", ColumnKind.COUNT, Better.HIGH),
    _column("avg_jct_s", "average|JCT", ColumnKind.TIME, Better.LOW),
    _column("median_jct_s", "median|JCT", ColumnKind.TIME, Better.LOW),
    _column("p99_jct_s", "p99|JCT", ColumnKind.TIME, Better.LOW),
    _column("makespan_s", "makespan", ColumnKind.TIME, Better.LOW),
    _column("avg_wait_s", "average|wait", ColumnKind.TIME, Better.LOW),
    _column("gpu_allocation", "GPU|allocation", ColumnKind.PERCENT, Better.HIGH),
    _column("gpu_busy", "GPU|busy", ColumnKind.PERCENT, Better.HIGH, if_any="gpu_busy"),
    _column("fragmentation", "fragmented", ColumnKind.PERCENT, Better.LOW),
    _column("preemptions", "preemptions", ColumnKind.COUNT, Better.LOW),
    _column("preemption_overhead", "overhead", ColumnKind.PERCENT, Better.LOW),
    _column("worst_finish_time_fairness", "worst|FTF", ColumnKind.RATIO, Better.LOW),
    _column("jain_fairness", "Jain", ColumnKind.RATIO, Better.HIGH),
    _column("avg_fair_share_delay_s", "fair-share|delay", ColumnKind.TIME, Better.LOW, if_any=_FRAGMENTED),
    _column(_FRAGMENTED, "fragmentation|delay", ColumnKind.TIME, Better.LOW, if_any=_FRAGMENTED),
    _column("deadlines", "deadlines", ColumnKind.COUNT, Better.NEITHER, if_any="deadlines"),
    _column("deadlines_met", "deadlines|met", ColumnKind.COUNT, Better.HIGH, if_any="deadlines"),
)
_TENANT_COLUMNS = tuple(
    column for column in COLUMNS if column.key not in ("fragmentation", "makespan_s", "preemption_overhead")
)


def summary_table(runs: Sequence[RunReport]) -> SummaryTable:
    """The table of all runs; metrics of the user's own come last."""
    labels = [[run.name, run.scenario.placement or "-"] for run in runs]
    table = _table(("policy", "placement"), labels, [run.metrics for run in runs], COLUMNS, mark=True)
    for name in runs[0].more:
        column = _column(name, name, ColumnKind.RATIO, Better.NEITHER)
        table = table.with_column(*_write(column, [run.more.get(name) for run in runs], mark=False))
    return table


def tenant_table(runs: Sequence[RunReport]) -> SummaryTable | None:
    """The same by tenant; None where there is only one. Tenants with most jobs come first."""
    largest = sorted(
        {tenant for run in runs for tenant in run.tenants},
        key=lambda tenant: (-max(run.tenants[tenant].jobs for run in runs if tenant in run.tenants), tenant),
    )
    if len(largest) < 2:
        return None
    labels, metrics = [], []
    for tenant in largest[: max(TENANT_ROWS // len(runs), 1)]:
        for run in runs:
            if tenant in run.tenants:
                labels.append([tenant, run.name])
                metrics.append(run.tenants[tenant])
    table = _table(("tenant", "policy"), labels, metrics, _TENANT_COLUMNS, mark=False)
    return replace(table, fold="By tenant")


def _table(
    heads: Sequence[str],
    labels: Sequence[Sequence[str]],
    metrics: Sequence[Metrics],
    columns: Sequence[SummaryColumn],
    *,
    mark: bool,
) -> SummaryTable:
    table = SummaryTable(
        heads=tuple(TableHead(lines=(head,)) for head in heads),
        rows=tuple(tuple(TableCell(text=name) for name in names) for names in labels),
    )
    for column in columns:
        if not column.if_any or any(getattr(row, column.if_any) for row in metrics):
            table = table.with_column(*_write(column, [getattr(row, column.key) for row in metrics], mark))
    return table


def _write(column: SummaryColumn, values: Sequence[float | None], mark: bool) -> tuple[TableHead, list[TableCell]]:
    """A column's head with its unit, and its cells; all times of a column are in one unit."""
    unit, scale = "", 1.0
    match column.kind:
        case ColumnKind.TIME:
            time = unit_for(max((value for value in values if value is not None), default=0.0))
            unit, scale = time.name, 1 / time.seconds
        case ColumnKind.PERCENT:
            unit, scale = "%", 100.0
        case ColumnKind.RATIO | ColumnKind.COUNT:
            pass
    shown = ["-" if value is None else _digits(value * scale, column.kind) for value in values]
    best = _best(column.better, values, shown) if mark else None
    head = TableHead(lines=tuple(column.title.split("|")), unit=unit, is_number=True)
    return head, [TableCell(text=text, is_number=True, is_best=text == best) for text in shown]


def _digits(value: float, kind: ColumnKind) -> str:
    """Three significant digits, and always all digits before the point."""
    if kind is ColumnKind.COUNT or value == 0:
        return f"{value:,.0f}"
    places = min(max(2 - math.floor(math.log10(abs(value))), 0), 6)
    return f"{value:,.{places}f}"


def _best(better: Better, values: Sequence[float | None], shown: Sequence[str]) -> str | None:
    """The best value as shown; None where no value is better than another."""
    known = [(value, text) for value, text in zip(values, shown, strict=True) if value is not None]
    if better is Better.NEITHER or len({text for _, text in known}) < 2:
        return None
    choose = min if better is Better.LOW else max
    return choose(known)[1]
