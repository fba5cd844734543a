"""The report of one or more runs: one page that compares them."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from rota import __version__
from rota.core.errors import RotaError
from rota.report.facts import scenario_facts
from rota.report.failure_section import failure_section
from rota.report.look import slug
from rota.report.page import Plot, Section, page
from rota.report.runs import JobColumns, RunReport, columns_of, first_submit_s
from rota.report.summary_table import summary_table, tenant_table

__all__ = ["RunReport", "write_report"]

BARS_PER_RUN = 2000
BARS_IN_ALL = 12_000
RUNS_IN_HALF_A_PAGE = 6
"""With more runs, boxes and bars need the page's full width."""

_BOXES = "Boxes are quartiles, whiskers reach from the 5th to the 95th percentile; log scale."


def write_report(
    path: Path | None,
    runs: Sequence[RunReport],
    command: str,
    notes: Mapping[str, str],
    *,
    figures: Path | None = None,
) -> None:
    """Write the page to `path` and its figures for papers into `figures`; None leaves one of them out.

    `command` repeats it; the footer lists the runs' scenarios and the caller's `notes`.
    """
    if not runs:
        raise RotaError("a report needs at least one run")
    columns = [columns_of(run) for run in runs]
    failures = failure_section(runs)
    sections = [_summary(runs), *_comparison(runs, columns), *([failures] if failures else []), _devices(runs)]
    if figures is not None:
        from rota.report.paper import write_figures

        write_figures(figures, [plot for section in sections for plot in section.plots])
    if path is None:
        return
    facts = {
        **scenario_facts([run.scenario for run in runs]),
        **notes,
        "Rota": __version__,
        "Python": platform.python_version(),
    }
    title = f"Rota: {runs[0].name}" if len(runs) == 1 else f"Rota: {len(runs)} policies compared"
    path.write_text(page(title, _lead(runs), sections, facts, command), encoding="utf-8")


def _lead(runs: Sequence[RunReport]) -> str:
    first = runs[0]
    return (
        f"{_some(first.metrics.jobs, 'job')} of {_some(len(first.tenants), 'tenant')} on "
        f"{_some(first.history.devices, 'device')} in {_some(len(first.timeline.node_ids), 'node')}."
    )


def _some(count: int, thing: str) -> str:
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def _summary(runs: Sequence[RunReport]) -> Section:
    text = (
        "JCT is the time from submission to end. FTF, finish-time fairness, is JCT over the JCT that a 1/n "
        "share of the cluster would give; Jain's index is over those ratios (1: all are equal). GPU allocation: the "
        "fraction of device time that running jobs held. "
        "Fragmented: the fraction of free device time on nodes with other jobs. Overhead: the fraction of run time "
        "spent on restarts and lost work."
    )
    if len(runs) > 1:
        text += " ★ marks the best value of a column."
    tenants = tenant_table(runs)
    tables = [summary_table(runs)] if tenants is None else [summary_table(runs), tenants]
    return Section(title="Summary", text=text, tables=tables)


def _comparison(runs: Sequence[RunReport], columns: Sequence[JobColumns]) -> list[Section]:
    from rota.report import figures

    times = Plot(
        name="completion-time",
        figure=figures.jct_cdf(columns),
        caption="The cumulative share of jobs by completion time; further left is better.",
    )
    slowdown = Plot(
        name="slowdown-by-size",
        figure=figures.slowdown_by_size(columns),
        caption=f"Completion time over the time that the work takes uninterrupted; 1 is no wait. {_BOXES}",
    )
    preemptions = Plot(
        name="preemptions-by-size",
        figure=figures.preemptions_by_size(columns),
        caption="Mean number of preemptions per job.",
    )
    by_size = Plot(
        name="fairness-by-size",
        figure=figures.fairness_by_size(columns),
        caption=f"Below the dotted line a job ended sooner than with a 1/n share of the cluster. {_BOXES}",
    )
    by_tenant = Plot(
        name="fairness-by-tenant",
        figure=figures.fairness_by_tenant(columns),
        caption=f"The same ratio by tenant: similar boxes mean that tenants are treated equally. {_BOXES}",
    )
    over_time = Plot(
        name="over-time",
        figure=figures.over_time(runs),
        caption=(
            "Devices held by running jobs, jobs submitted but not running, and jobs running. "
            f"Long runs are drawn as means over {figures.SERIES_POINTS} equal intervals."
        ),
    )
    pairs = len(runs) <= RUNS_IN_HALF_A_PAGE
    return [
        Section(title="Completion times", plots=[times]),
        Section(title="Job sizes", plots=[slowdown, preemptions], pairs=pairs),
        Section(title="Fairness", plots=[by_size, by_tenant], pairs=pairs),
        Section(title="Over time", plots=[over_time]),
    ]


def _devices(runs: Sequence[RunReport]) -> Section:
    from rota.report.gantt import NEARLY_ALL, Clock, gantt

    origin_s = first_submit_s(list(runs))
    last_s = max(run.timeline.last_s for run in runs)
    clock = Clock(origin_s=origin_s, span_s=max(last_s - origin_s, 1e-9))
    limit = min(BARS_PER_RUN, BARS_IN_ALL // len(runs))
    plots = []
    for place, run in enumerate(runs, start=1):
        chart = gantt(run, clock, limit=limit)
        caption = "Each bar is a job on devices of a node, coloured by the job's size; hover to see which."
        if chart.nodes < chart.of_nodes:
            caption += f" {chart.nodes} of {chart.of_nodes} nodes are shown."
        if chart.shown < NEARLY_ALL:
            part = f"{100 * chart.shown:.1f}%"
            caption += f" The {chart.bars:,} largest bars are drawn, {part} of the allocated device time; "
            caption += "the rest is a grey shade of the node's row."
        plots.append(Plot(name=f"devices-{place}-{slug(run.name)}", figure=chart.figure, caption=caption))
    return Section(title="Devices", plots=plots, folds=[run.name for run in runs])
