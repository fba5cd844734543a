"""The load of links over time, from the steps of a journal: which links were busy when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rota.core.messages.decisions import Move, Resize, Resume, Start, Stop, Suspend
from rota.core.messages.events import Interrupted, JobArrived, JobEnded, NodeAdded, StartFailed
from rota.core.model.cluster import Node
from rota.core.model.job import Job, JobId
from rota.core.model.placement import Placement
from rota.network.load import NetworkLoad
from rota.network.model import NetworkModel
from rota.store.journal import JournalReader, Step

MOST_MOMENTS = 4000


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
