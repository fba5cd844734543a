"""The load of links over time, from a journal: which links were busy when, as series, a figure and a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.core.messages.decisions import Move, Resize, Resume, Start, Stop, Suspend
from rota.core.messages.events import Interrupted, JobArrived, JobEnded, NodeAdded, StartFailed
from rota.core.model.cluster import Node
from rota.core.model.job import Job, JobId
from rota.core.model.placement import Placement
from rota.network.load import NetworkLoad
from rota.network.model import NetworkModel
from rota.store.journal import JournalReader, Step

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_MOMENTS = 4000
LINKS_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSeries:
    """The mean rate on a link over time, relative to its capacity."""

    link: str
    bytes_per_s: float
    at_s: tuple[float, ...]
    load: tuple[float, ...]

    @property
    def peak(self) -> float:
        """The highest load."""
        return max(self.load, default=0.0)

    @property
    def mean(self) -> float:
        """The mean load over the whole time."""
        steps = zip(self.at_s, self.at_s[1:], self.load, strict=False)
        area = sum((after - before) * value for before, after, value in steps)
        length_s = self.at_s[-1] - self.at_s[0] if len(self.at_s) > 1 else 0.0
        return area / length_s if length_s else self.peak


def link_series(journal: JournalReader, network: NetworkModel) -> list[LinkSeries]:
    """Return the load of each link that was ever used, the busiest first."""
    return series_of_steps(journal.steps(), network, journal.header.cluster.nodes)


def series_of_steps(
    steps: Iterable[Step],
    network: NetworkModel,
    nodes: Sequence[Node],
    known: Mapping[JobId, Job] | None = None,
    placed: Mapping[JobId, Placement] | None = None,
    *,
    since_s: float | None = None,
    every_s: float = 0.0,
) -> list[LinkSeries]:
    """Return the load of each link from some steps on, with the jobs that are known and placed before them.

    They are so from `since_s` on, if given. Of each interval of `every_s` only the last load counts.
    """
    load = NetworkLoad(network, nodes)
    jobs: dict[JobId, Job] = dict(known or {})
    for job_id, placement in (placed or {}).items():
        load.enter(jobs[job_id], placement)
    at_s: list[float] = []
    rates: list[dict[int, float]] = []
    last_s = since_s

    def keep() -> None:
        if last_s is not None:
            at_s.append(last_s)
            rates.append(load.link_bytes_per_s())

    for step in steps:
        if last_s is not None and _interval(last_s, every_s) != _interval(step.now_s, every_s):
            keep()
        _happen(load, jobs, step.events)
        _decide(load, jobs, step.decisions)
        last_s = step.now_s
    keep()
    every = max(len(at_s) // MOST_MOMENTS, 1)
    kept, times = rates[::every], tuple(at_s[::every])
    links = network.topology.links
    used = sorted({link for some in kept for link in some})
    series = [
        LinkSeries(
            link=str(links[number]),
            bytes_per_s=links[number].bytes_per_s,
            at_s=times,
            load=tuple(some.get(number, 0.0) / links[number].bytes_per_s for some in kept),
        )
        for number in used
    ]
    return sorted(series, key=lambda each: (-each.mean, each.link))


def _interval(at_s: float, every_s: float) -> float:
    return at_s // every_s if every_s else at_s


def _happen(load: NetworkLoad, jobs: dict[JobId, Job], events: Iterable[object]) -> None:
    for event in events:
        match event:
            case JobArrived():
                jobs[event.job.id] = event.job
            case JobEnded() | Interrupted() | StartFailed():
                load.leave(event.job_id)
            case NodeAdded():
                load.add_node(event.node)


def _decide(load: NetworkLoad, jobs: dict[JobId, Job], decisions: Iterable[object]) -> None:
    for decision in decisions:
        match decision:
            case Stop() | Suspend():
                load.leave(decision.job_id)
            case Start() | Resume() | Resize() | Move() if decision.job_id in jobs:
                load.leave(decision.job_id)
                load.enter(jobs[decision.job_id], decision.placement)


def load_figure(series: Sequence[LinkSeries]) -> go.Figure:
    """Return the load of the busiest links over time."""
    import plotly.graph_objects as go

    from rota.report.look import safe, styled

    figure = go.Figure()
    for each in series[:LINKS_SHOWN]:
        figure.add_scatter(
            x=[moment / 3600 for moment in each.at_s],
            y=[100 * value for value in each.load],
            name=safe(each.link),
            mode="lines",
            line_shape="hv",
            hovertemplate="%{y:.1f} % at %{x:.2f} h",
        )
    styled(figure, "Load of the busiest links", height=480, showlegend=True)
    figure.update_xaxes(title_text="time (h)")
    figure.update_yaxes(title_text="mean rate over capacity (%)", rangemode="tozero")
    return figure


def load_page(series: Sequence[LinkSeries], title: str) -> str:
    """Return a page of its own with the figure and a table of all used links."""
    from rota.report.look import safe

    head = "<tr><th>link</th><th>rate (Gbit/s)</th><th>mean load</th><th>peak load</th></tr>"
    rows = "".join(
        f"<tr><td>{safe(each.link)}</td><td>{8e-9 * each.bytes_per_s:.4g}</td><td>{each.mean:.1%}</td>"
        f"<td>{each.peak:.1%}</td></tr>"
        for each in series
    )
    drawn = load_figure(series).to_html(full_html=False, include_plotlyjs=True)
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{safe(title)}</title></head>"
        f"<body><h1>{safe(title)}</h1>{drawn}<table>{head}{rows}</table></body></html>"
    )
