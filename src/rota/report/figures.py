"""The figures that compare runs; each function makes one Plotly figure of all runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from rota.report.look import colour, line, log_time_axis, safe, size_classes, styled, unit_for
from rota.report.runs import JobColumns, RunReport, first_submit_s
from rota.report.series import Floats, Series, cdf, thin

CDF_POINTS = 1000
SERIES_POINTS = 600
TENANTS_SHOWN = 12


def jct_cdf(columns: Sequence[JobColumns]) -> go.Figure:
    """The cumulative share of jobs by completion time."""
    figure = go.Figure()
    # Earlier lines are thicker, so that they are visible below later ones that coincide.
    for index, jobs in enumerate(columns):
        positive = jobs.jct_s[jobs.jct_s > 0]
        floor_s = float(positive.min()) if positive.size else 1.0
        x, y = cdf(np.maximum(jobs.jct_s, floor_s), CDF_POINTS)
        figure.add_scatter(
            x=x.astype(np.float32),
            y=(100 * y).astype(np.float32),
            name=safe(jobs.name),
            line=line(index) | {"width": 1.5 + min(len(columns) - 1 - index, 4)},
            mode="lines",
            line_shape="hv",
            hovertemplate="%{y:.1f} % of jobs within %{x:,.0f} s",
        )
    styled(figure, "Job completion time", height=420, showlegend=True)
    figure.update_xaxes(**log_time_axis("completion time, end - submit (log scale)"))
    figure.update_yaxes(title_text="cumulative share of jobs (%)", range=[0, 101])
    return figure


def over_time(runs: Sequence[RunReport]) -> go.Figure:
    """Allocated devices, waiting jobs and running jobs, one below the other on one time axis."""
    origin_s = first_submit_s(list(runs))
    unit = unit_for(max(run.timeline.last_s for run in runs) - origin_s)
    figure = make_subplots(rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.05)
    for index, run in enumerate(runs):
        capacity = max(run.history.devices, 1)
        curves = (
            (_percent(run.timeline.devices_in_use(), capacity), "%{y:.1f} %"),
            (run.timeline.waiting(run.history), "%{y:,.0f} waiting"),
            (run.timeline.running(), "%{y:,.0f} running"),
        )
        for row, (series, shown) in enumerate(curves, start=1):
            few = thin(series, SERIES_POINTS)
            figure.add_scatter(
                x=((few.times_s - origin_s) / unit.seconds).astype(np.float32),
                y=few.values.astype(np.float32),
                row=row,
                col=1,
                name=safe(run.name),
                legendgroup=str(index),
                showlegend=row == 1,
                line=line(index) | {"width": 1.2},
                mode="lines",
                line_shape="hv",
                hovertemplate=shown + " at %{x:.2f} " + unit.name,
            )
    _add_capacity(figure, max(runs, key=lambda run: run.timeline.last_s), origin_s, unit.seconds)
    styled(figure, "The cluster over time", height=720, showlegend=True)
    figure.update_xaxes(title_text=f"time since the first submission ({unit.name})", row=3, col=1)
    for row, title in enumerate(("devices allocated (%)", "jobs waiting", "jobs running"), start=1):
        figure.update_yaxes(title_text=title, rangemode="tozero", row=row, col=1)
    return figure


def _add_capacity(figure: go.Figure, run: RunReport, origin_s: float, unit_s: float) -> None:
    """Add the devices in service, where nodes failed or joined."""
    series = thin(_percent(run.timeline.capacity(), max(run.history.devices, 1)), SERIES_POINTS)
    if series.times_s.size < 2:
        return
    figure.add_scatter(
        x=((np.append(series.times_s, run.timeline.last_s) - origin_s) / unit_s).astype(np.float32),
        y=np.append(series.values, series.values[-1]).astype(np.float32),
        row=1,
        col=1,
        name="devices in service",
        line={"color": "#888888", "width": 1, "dash": "dot"},
        mode="lines",
        line_shape="hv",
        hovertemplate="%{y:.1f} %",
    )


def _percent(series: Series, whole: float) -> Series:
    return Series(times_s=series.times_s, values=100 * series.values / whole)


def slowdown_by_size(columns: Sequence[JobColumns]) -> go.Figure:
    """The slowdown of jobs of each size: completion time over uninterrupted run time."""
    names, places = size_classes([jobs.gpus for jobs in columns])
    figure = go.Figure()
    for index, (jobs, place) in enumerate(zip(columns, places, strict=True)):
        _add_boxes(figure, index, jobs.name, names, place, jobs.slowdown)
    styled(figure, "Slowdown by job size", height=420, boxmode="group", showlegend=True)
    figure.update_xaxes(title_text="job size (devices)", type="category", showgrid=False)
    figure.update_yaxes(title_text="completion time / uninterrupted run time", type="log", dtick=1)
    return figure


def fairness_by_size(columns: Sequence[JobColumns]) -> go.Figure:
    """Finish-time fairness of jobs of each size."""
    names, places = size_classes([jobs.gpus for jobs in columns])
    figure = go.Figure()
    for index, (jobs, place) in enumerate(zip(columns, places, strict=True)):
        _add_boxes(figure, index, jobs.name, names, place, jobs.fairness)
    styled(figure, "Finish-time fairness by job size", height=420, boxmode="group", showlegend=True)
    figure.update_xaxes(title_text="job size (devices)", type="category", showgrid=False)
    _fairness_axis(figure)
    return figure


def fairness_by_tenant(columns: Sequence[JobColumns]) -> go.Figure:
    """Finish-time fairness of each tenant's jobs; of many tenants, only those with most jobs."""
    jobs_by_tenant = Counter(columns[0].tenants)
    shown = [tenant for tenant, _ in jobs_by_tenant.most_common(TENANTS_SHOWN)]
    place_by_tenant = {tenant: place for place, tenant in enumerate(shown)}
    figure = go.Figure()
    for index, jobs in enumerate(columns):
        place = np.array([place_by_tenant.get(tenant, -1) for tenant in jobs.tenants], dtype=np.intp)
        _add_boxes(figure, index, jobs.name, [safe(tenant, 24) for tenant in shown], place, jobs.fairness)
    title = "tenant"
    if len(jobs_by_tenant) > len(shown):
        title += f" (the {len(shown)} with most jobs, of {len(jobs_by_tenant)})"
    styled(figure, "Finish-time fairness by tenant", height=420, boxmode="group", showlegend=True)
    figure.update_xaxes(title_text=title, type="category", showgrid=False)
    _fairness_axis(figure)
    return figure


def preemptions_by_size(columns: Sequence[JobColumns]) -> go.Figure:
    """Mean preemptions per job, by job size."""
    names, places = size_classes([jobs.gpus for jobs in columns])
    figure = go.Figure()
    for index, (jobs, place) in enumerate(zip(columns, places, strict=True)):
        counts = np.bincount(place, minlength=len(names))
        totals = np.bincount(place, weights=jobs.preemptions, minlength=len(names))
        figure.add_bar(
            x=names,
            y=totals / np.maximum(counts, 1),
            customdata=np.stack([totals, counts], axis=-1).tolist(),
            name=safe(jobs.name),
            marker_color=colour(index),
            hovertemplate="%{y:.2f} per job (%{customdata[0]:,} in %{customdata[1]:,} jobs)",
        )
    styled(figure, "Preemptions by job size", height=420, barmode="group", showlegend=True)
    figure.update_xaxes(title_text="job size (devices)", type="category", showgrid=False)
    figure.update_yaxes(title_text="preemptions per job", rangemode="tozero")
    return figure


def _fairness_axis(figure: go.Figure) -> None:
    figure.update_yaxes(title_text="completion time / that with a 1/n share", type="log", dtick=1)
    figure.add_hline(y=1, line={"color": "#555555", "width": 1, "dash": "dot"})


def _add_boxes(
    figure: go.Figure, index: int, name: str, groups: list[str], place: NDArray[np.intp], values: Floats
) -> None:
    """Add one run's boxes: quartiles of each group, whiskers from its 5th to its 95th percentile."""
    known = np.isfinite(values) & (values > 0) & (place >= 0)
    marks: list[list[float]] = []
    labels: list[str] = []
    for group, label in enumerate(groups):
        inside = values[known & (place == group)]
        if inside.size:
            marks.append([float(x) for x in np.percentile(inside, (5, 25, 50, 75, 95))])
            labels.append(label)
    low, q1, median, q3, high = np.array(marks).T if marks else np.empty((5, 0))
    box: dict[str, Any] = {"lowerfence": low, "q1": q1, "median": median, "q3": q3, "upperfence": high}
    figure.add_box(
        x=labels,
        name=safe(name),
        marker_color=colour(index),
        line_width=1.3,
        **box,
    )
