"""The section of a report about failures: what each cause cost under each policy, as tables and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rota.health.lost_time import HOUR_S, CauseLoss, FailureReport
from rota.report.page import Plot, Section
from rota.report.runs import RunReport
from rota.report.summary_table import SummaryTable, TableCell, TableHead

if TYPE_CHECKING:
    import plotly.graph_objects as go

CAUSES_DRAWN = 12
_KINDS = (("work_s", "work done again"), ("undetected_s", "not yet noticed"), ("restart_s", "restart"))


def failure_section(runs: Sequence[RunReport]) -> Section | None:
    """The section; None where no machine of any run could fail."""
    known = [(run.name, run.failures) for run in runs if run.failures is not None]
    if not known:
        return None
    text = (
        "ETTR, the effective training time ratio, is the productive part of the device time of jobs from their first "
        "start to their end. Goodput is the productive part of all device time. Lost device-hours were held by jobs: "
        "work since the last checkpoint, the time until a failure was noticed, and restarts."
    )
    plot = Plot(
        name="lost-by-cause",
        figure=_figure(known),
        caption="Device-hours that jobs held in vain, by cause; the causes that cost most.",
    )
    return Section(title="Failures", text=text, tables=[_by_cause(known), _by_size(known)], plots=[plot])


def _by_cause(known: Sequence[tuple[str, FailureReport]]) -> SummaryTable:
    heads = ("policy", "cause", "breakdowns", "interruptions", "work lost", "unnoticed", "restarts", "in repair")
    rows = []
    for name, report in known:
        for cause, loss in report.causes.items():
            hours = (loss.work_s, loss.undetected_s, loss.restart_s, loss.repair_s)
            rows.append(
                (
                    TableCell(text=name),
                    TableCell(text=cause),
                    *(_number(f"{value:,}") for value in (loss.breakdowns, loss.interruptions)),
                    *(_number(f"{value / HOUR_S:,.1f}") for value in hours),
                )
            )
    return SummaryTable(heads=_heads(heads, unit_from=4), rows=tuple(rows), title="Lost device-hours by cause")


def _by_size(known: Sequence[tuple[str, FailureReport]]) -> SummaryTable:
    heads = ("policy", "GPUs up to", "jobs", "interruptions", "MTTF (h)", "ETTR")
    rows = []
    for name, report in known:
        for size in report.sizes:
            mttf = "-" if size.mttf_s is None else f"{size.mttf_s / HOUR_S:,.1f}"
            ettr = "-" if size.ettr is None else f"{size.ettr:.3f}"
            numbers = (f"{size.up_to_gpus:,}", f"{size.jobs:,}", f"{size.failures:,}", mttf, ettr)
            rows.append((TableCell(text=name), *(_number(text) for text in numbers)))
    return SummaryTable(heads=_heads(heads), rows=tuple(rows), title="By job size")


def _heads(names: Sequence[str], unit_from: int | None = None) -> tuple[TableHead, ...]:
    return tuple(
        TableHead(lines=(name,), is_number=at > 0, unit="h" if unit_from is not None and at >= unit_from else "")
        for at, name in enumerate(names)
    )


def _number(text: str) -> TableCell:
    return TableCell(text=text, is_number=True)


def _figure(known: Sequence[tuple[str, FailureReport]]) -> go.Figure:
    import plotly.graph_objects as go

    from rota.report.look import colour, safe, styled

    worst: dict[str, float] = {}
    for _, report in known:
        for cause, loss in report.causes.items():
            worst[cause] = worst.get(cause, 0.0) + loss.of_jobs_s
    causes = sorted(worst, key=lambda cause: (-worst[cause], cause))[:CAUSES_DRAWN]
    figure = go.Figure()
    labels = [[safe(cause) for _ in known for cause in causes], [safe(name) for name, _ in known for _ in causes]]
    for place, (field, title) in enumerate(_KINDS):
        hours = [
            getattr(report.causes.get(cause, CauseLoss()), field) / HOUR_S for _, report in known for cause in causes
        ]
        figure.add_bar(x=labels, y=hours, name=title, marker_color=colour(place))
    styled(figure, "Device-hours lost by cause", height=420, showlegend=True, barmode="stack")
    figure.update_yaxes(title_text="device-hours")
    return figure
