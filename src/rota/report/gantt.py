"""The Gantt chart: which job held which devices when. A node is a row, its devices are lanes within the row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from rota.core.state.history import JobRow
from rota.report.look import FAINT, SIZE_COLOURS, Unit, safe, size_classes, styled, unit_for
from rota.report.runs import RunReport
from rota.report.series import Floats, from_intervals, means
from rota.report.timeline import Segments, lanes

NODES_SHOWN = 32
ROW_PX = 18
SHADE_BINS = 400
NEARLY_ALL = 0.9995
"""The fraction of allocated device time that counts as all of it: what a caption rounds to 100%."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A run's chart, and the fraction of the device time of its nodes that the bars show."""

    figure: go.Figure
    bars: int
    nodes: int
    of_nodes: int
    shown: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The axis of time: where it begins and how long it is. The same for all runs of a report."""

    origin_s: float
    span_s: float

    @property
    def unit(self) -> Unit:
        """The unit of the axis."""
        return unit_for(self.span_s)

    def read(self, at_s: float) -> float:
        """A moment in the unit of the axis."""
        return (at_s - self.origin_s) / self.unit.seconds


@dataclass(slots=True)
class _Bars:
    """Bars of one size class, in columns."""

    y: list[float]
    height: list[float]
    base: list[float]
    length: list[float]
    text: list[str]


def gantt(run: RunReport, clock: Clock, *, limit: int) -> Chart:
    """At most about `limit` bars: nodes spread evenly over the cluster, and of their bars the largest.

    Where bars are left out, the node's row is shaded grey by how much of the node they held.
    """
    timeline = run.timeline
    segments = timeline.segments()
    rows = _rows(timeline.node_devices)
    area = segments.devices() * (segments.end_s - segments.start_s)
    picked = _pick(segments, area, rows, limit)
    used = float(area[np.isin(segments.nodes, list(rows))].sum())
    shown = float(area[picked].sum()) / used if used else 1.0
    figure = go.Figure()
    if shown < NEARLY_ALL:
        _add_shade(figure, segments, picked, rows, timeline.node_devices, clock)
    names, columns = _bars(run, segments, picked, rows, clock)
    for index, (name, bars) in enumerate(zip(names, columns, strict=True)):
        if bars.y:
            _add_bars(figure, name, bars, SIZE_COLOURS[index * (len(SIZE_COLOURS) - 1) // max(len(names) - 1, 1)])
    _set_axes(figure, run.name, [safe(timeline.node_ids[node], 20) for node in rows], clock)
    return Chart(
        figure=figure,
        bars=sum(len(bars.y) for bars in columns),
        nodes=len(rows),
        of_nodes=sum(1 for count in timeline.node_devices if count),
        shown=shown,
    )


def _bars(
    run: RunReport, segments: Segments, picked: list[int], rows: dict[int, int], clock: Clock
) -> tuple[list[str], list[_Bars]]:
    """The bars of the picked segments by the size of their job, with the names of the sizes."""
    jobs = run.history.jobs
    names, (classes,) = size_classes([np.array([row.gpus for row in jobs], dtype=np.float64)])
    columns = [_Bars([], [], [], [], []) for _ in names]
    wanted = {segments.job_ids[index] for index in picked}
    job_by_id = {row.id: (row, int(size)) for row, size in zip(jobs, classes, strict=True) if row.id in wanted}
    for index in picked:
        job, size = job_by_id[segments.job_ids[index]]
        bars = columns[size]
        start, end = clock.read(float(segments.start_s[index])), clock.read(float(segments.end_s[index]))
        text = _hover_text(job, start, end, clock.unit.name)
        node = int(segments.nodes[index])
        lane = 0.9 / run.timeline.node_devices[node]
        for low, count in lanes(segments.masks[index]):
            bars.y.append(rows[node] + 0.05 + (low + count / 2) * lane)
            bars.height.append(count * lane)
            bars.base.append(start)
            bars.length.append(end - start)
            bars.text.append(text)
    return names, columns


def _rows(node_devices: list[int]) -> dict[int, int]:
    """Which nodes are shown, and in which row."""
    nodes = [index for index, devices in enumerate(node_devices) if devices]
    if len(nodes) > NODES_SHOWN:
        nodes = [nodes[i] for i in np.linspace(0, len(nodes) - 1, NODES_SHOWN).round().astype(int)]
    return {node: row for row, node in enumerate(nodes)}


def _pick(segments: Segments, area: Floats, rows: dict[int, int], limit: int) -> list[int]:
    """Of the segments on shown nodes, the largest by device time, in order of time."""
    here = np.flatnonzero(np.isin(segments.nodes, list(rows)) & (area > 0))
    if here.size > limit:
        here = here[np.argsort(-area[here], kind="stable")[:limit]]
    return [int(index) for index in np.sort(here)]


def _hover_text(job: JobRow, start: float, end: float, unit: str) -> str:
    named = f"{safe(job.id, 40)}" + (f" ({safe(job.name, 40)})" if job.name and job.name != job.id else "")
    return f"{named}<br>{job.gpus:g} devices, tenant {safe(job.tenant, 30)}<br>{start:.4g} to {end:.4g} {unit}"


def _add_shade(
    figure: go.Figure,
    segments: Segments,
    picked: list[int],
    rows: dict[int, int],
    node_devices: list[int],
    clock: Clock,
) -> None:
    """Shade each shown node by the allocation that is not drawn as bars, in bins of time."""
    undrawn = np.ones(len(segments), dtype=np.bool_)
    undrawn[picked] = False
    edges_s = np.linspace(clock.origin_s, clock.origin_s + clock.span_s, SHADE_BINS + 1)
    held = segments.devices()
    use = np.zeros((len(rows), SHADE_BINS))
    for node, row in rows.items():
        here = undrawn & (segments.nodes == node)
        if here.any():
            series = from_intervals(segments.start_s[here], segments.end_s[here], held[here])
            use[row] = means(series, edges_s) / node_devices[node]
    figure.add_heatmap(
        z=(100 * use).round().clip(0, 100).astype(np.uint8),
        x=np.array([clock.read(edge_s) for edge_s in edges_s], dtype=np.float32),
        y=np.arange(len(rows)) + 0.5,
        ygap=2,
        zmin=0,
        zmax=100,
        colorscale=[[0, "#ffffff"], [1, "#cfcfcf"]],
        showscale=False,
        hoverinfo="skip",
    )


def _add_bars(figure: go.Figure, name: str, bars: _Bars, shade: str) -> None:
    figure.add_bar(
        orientation="h",
        y=np.array(bars.y, dtype=np.float32),
        width=np.array(bars.height, dtype=np.float32),
        base=np.array(bars.base, dtype=np.float32),
        x=np.array(bars.length, dtype=np.float32),
        name=name,
        hovertext=bars.text,
        hoverinfo="text",
        marker={"color": shade, "line": {"color": "white", "width": 0.4}},
    )


def _set_axes(figure: go.Figure, name: str, labels: list[str], clock: Clock) -> None:
    styled(
        figure,
        f"Devices under {safe(name)}",
        height=130 + ROW_PX * max(len(labels), 4),
        barmode="overlay",
        showlegend=True,
        legend_title_text="job size (devices)",
    )
    figure.update_xaxes(
        title_text=f"time since the first submission ({clock.unit.name})",
        range=[0, clock.span_s / clock.unit.seconds],
    )
    figure.update_yaxes(
        title_text="node",
        tickvals=[row + 0.5 for row in range(len(labels))],
        ticktext=labels,
        range=[len(labels), 0],
        showgrid=False,
        ticks="",
    )
    between = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": {"color": FAINT, "width": 0.5}}
    figure.update_layout(shapes=[{**between, "y0": row, "y1": row} for row in range(1, len(labels))])
