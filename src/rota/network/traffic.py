"""The traffic of one job on its placement: the load of each link, and the time of an iteration alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rota.core.model.job import WHOLE, Job
from rota.core.model.placement import Placement, device_indexes
from rota.network.collectives import CollectiveKind, CollectivePhase, phases_of
from rota.network.demand import IterationDemand
from rota.network.model import MemoryInterference, NetworkModel
from rota.network.routing import Path, Router

SERVERS = frozenset({"ps", "server", "parameter-server"})
"""Names of roles whose tasks are parameter servers."""

PathOf = Callable[[int, int], Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """Where a rank of a job runs: its node, its device there, and whether it serves parameters."""

    node: int
    device: int | None = None
    serves: bool = False


def requested_ranks(job: Job) -> int:
    """Return the ranks of a job of one role at its requested size: one for each device, or each task without any."""
    role = job.roles[0]
    return role.count * max(role.device_milli // WHOLE, 1)


def ranks_of(job: Job, placement: Placement) -> list[RankPlace]:
    """Return the ranks of a placement, in the order of its slots: one for each device, or each task without devices."""
    alone = len(job.roles) == 1
    found = []
    for slot in placement:
        serves = not alone and job.roles[slot.role].name in SERVERS
        devices: Sequence[int | None] = device_indexes(slot.devices) or [None] * slot.tasks
        found += [RankPlace(node=slot.node, device=device, serves=serves) for device in devices]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTraffic:
    """What a job does to links in one iteration.

    `loads` is the load of each link for one unit of the job's level, which is the rate of one of its flows;
    `unit_bytes` is what such a flow sends in an iteration.
    """

    demand: IterationDemand
    loads: Mapping[int, float]
    unit_bytes: float
    alone_level: float
    moving_s: float
    """Seconds in which bytes move, alone on the network."""
    fixed_s: float
    """Seconds of latency, and of exchanges inside nodes that no other job slows down."""
    devices: int = 1

    @property
    def comm_s(self) -> float:
        """The time of the exchange alone."""
        return self.fixed_s + self.moving_s

    def exchange_s(self, level: float) -> float:
        """Return the time of the exchange at a level of sharing."""
        return self.fixed_s + (self.moving_s * self.alone_level / level if self.moving_s else 0.0)


def iteration_s(demand: IterationDemand, comm_s: float, by: MemoryInterference) -> float:
    """Return the time of an iteration whose exchange would take `comm_s` with nothing beside it.

    What overlaps with computing is slower by the memory pressure, and slows computing down.
    """
    hidden_s = min(comm_s, demand.overlap * demand.compute_s)
    if not hidden_s or not demand.memory_pressure:
        return demand.compute_s + comm_s - hidden_s
    window_s = demand.overlap * demand.compute_s
    left = 1.0 - by.on_communication * demand.memory_pressure
    moved_s = min(comm_s, window_s * left)
    beside_s = moved_s / left
    slowed_s = demand.compute_s + by.on_computing * demand.memory_pressure * beside_s
    return slowed_s + comm_s - moved_s


def traffic_of(
    demand: IterationDemand, ranks: Sequence[RankPlace], model: NetworkModel, router: Router, key: int
) -> JobTraffic:
    """Return the traffic of ranks that stand in this order around the ring, or in the tree."""

    def path(source: int, target: int) -> Path:
        return router.route(source, target, key)

    return traffic_on(demand, ranks, model, path)


def traffic_on(demand: IterationDemand, ranks: Sequence[RankPlace], model: NetworkModel, path_of: PathOf) -> JobTraffic:
    """Return the traffic of ranks whose flows take the paths of a function."""
    inside_s = 0.0
    if model.inside is not None and demand.collective is not CollectiveKind.ALL_TO_ALL:
        groups: dict[int, int] = {}
        for rank in ranks:
            groups[rank.node] = groups.get(rank.node, 0) + 1
        inside_s = max((model.inside.time_s(count, demand.bytes) for count in groups.values()), default=0.0)
    phases = _phases(demand, ranks)
    walked = [_walked(phase, ranks, model, path_of) for phase in phases]
    loads: dict[int, float] = {}
    moving_s = fixed_s = 0.0
    capacity = model.topology.capacity
    for phase, (by_link, latency_s) in zip(phases, walked, strict=True):
        for link, size in by_link.items():
            loads[link] = loads.get(link, 0.0) + size
        moving_s += max((size / capacity[link] for link, size in by_link.items()), default=0.0) / model.efficiency
        fixed_s += phase.steps * latency_s
    unit = _unit_bytes(phases, walked)
    busiest_s = max((size / capacity[link] for link, size in loads.items()), default=0.0)
    return JobTraffic(
        demand=demand,
        loads={link: size / unit for link, size in loads.items()},
        unit_bytes=unit,
        alone_level=unit / busiest_s if busiest_s else 0.0,
        moving_s=float(moving_s),
        fixed_s=float(fixed_s) + inside_s,
        devices=len(ranks),
    )


def _phases(demand: IterationDemand, ranks: Sequence[RankPlace]) -> list[CollectivePhase]:
    servers = [number for number, rank in enumerate(ranks) if rank.serves]
    kind = CollectiveKind.PARAMETER_SERVER if servers else demand.collective
    return phases_of(kind, [rank.node for rank in ranks], demand.bytes, servers)


def _walked(
    phase: CollectivePhase, ranks: Sequence[RankPlace], model: NetworkModel, path_of: PathOf
) -> tuple[dict[int, float], float]:
    """Return the bytes on each link in a phase, and the longest latency of its messages.

    Links inside a node are left out where a table of measurements stands in for them.
    """
    topology = model.topology
    by_link: dict[int, float] = {}
    latency_s = 0.0
    for source, target, size in phase.transfers:
        one, other = ranks[source], ranks[target]
        if one.node == other.node and model.inside is not None:
            continue
        start, end = topology.vertex(one.node, one.device), topology.vertex(other.node, other.device)
        path = path_of(start, end)
        if not path:
            continue
        latency_s = max(latency_s, model.message_s + sum(float(topology.latency_s[link]) for link in path))
        for link in path:
            by_link[link] = by_link.get(link, 0.0) + size
    return by_link, latency_s


def _unit_bytes(phases: Sequence[CollectivePhase], walked: Sequence[tuple[dict[int, float], float]]) -> float:
    """Return the bytes of one flow: what the busiest rank sends, over the flows that it has at the same time."""
    sent: dict[int, float] = {}
    most = 1
    for phase, (by_link, _) in zip(phases, walked, strict=True):
        if not by_link:
            continue
        flows: dict[int, int] = {}
        for source, _, size in phase.transfers:
            sent[source] = sent.get(source, 0.0) + size
            flows[source] = flows.get(source, 0) + 1
        most = max(most, *flows.values()) if flows else most
    return (max(sent.values()) / most if sent else 0.0) or 1.0
