"""What policies expect of links: how fast a job is on the nodes of one device type, with the network to itself."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.model.cluster import Node
from rota.core.model.job import WHOLE, DeviceType, Job
from rota.network.demand import IterationDemand, demand_of
from rota.network.load import NetworkLoad
from rota.network.model import NetworkModel
from rota.network.traffic import RankPlace, iteration_s, requested_ranks, traffic_of


class LinkEstimates:
    """Speeds relative to the reference of work in seconds: the consolidated placement on the first nodes, alone."""

    def __init__(self, model: NetworkModel, nodes: Sequence[Node]) -> None:
        self._load = NetworkLoad(model, nodes)
        self._places: dict[DeviceType, list[tuple[int, int]]] = {}
        """The nodes of each type, by their number in the network, and how many ranks each holds."""
        place = {name: number for number, name in enumerate(model.topology.nodes)}
        for node in nodes:
            here = (place[str(node.id)], max(node.devices, 1))
            self._places.setdefault(node.device_type, []).append(here)
        self._known: dict[tuple[IterationDemand, DeviceType, int, bool], float] = {}
        self._demands: dict[tuple[str | None, tuple[tuple[str, str], ...]], IterationDemand | None] = {}

    def factor(
        self, job: Job, kind: DeviceType, tasks: int, *, by_request: bool = False, several_nodes: bool = False
    ) -> float:
        """Return the speed of a job with that many tasks on as few nodes of a type as will do; 1 if it is not known.

        It is relative to the consolidated placement of the same size, or with `by_request` of the requested size. Jobs
        of several roles are not judged.
        """
        demand = self._demand(job)
        if demand is None or len(job.roles) > 1 or kind not in self._places:
            return 1.0
        ranks = tasks * max(job.roles[0].device_milli // WHOLE, 1)
        wanted = requested_ranks(job) if by_request else ranks
        now_s = self._alone_s(demand, kind, ranks, several_nodes)
        return self._load.reference_s(demand, wanted) / now_s if now_s > 0 else 1.0

    def _demand(self, job: Job) -> IterationDemand | None:
        key = (job.model, job.labels)
        if key not in self._demands:
            model = self._load.model
            self._demands[key] = demand_of(job, model.models, model.usual)
        return self._demands[key]

    def _alone_s(self, demand: IterationDemand, kind: DeviceType, ranks: int, several_nodes: bool) -> float:
        """Return the time of an iteration on the first nodes of a type."""
        key = (demand, kind, ranks, several_nodes)
        found = self._known.get(key)
        if found is None:
            load = self._load
            places = self._ranks(kind, ranks, several_nodes)
            traffic = traffic_of(demand, places, load.model, load.router, 0)
            found = self._known[key] = iteration_s(demand, traffic.comm_s, load.model.interference)
        return found

    def _ranks(self, kind: DeviceType, ranks: int, several_nodes: bool) -> list[RankPlace]:
        """Return as many ranks on the nodes of a type; with `several_nodes` on two of them at least."""
        nodes = self._places[kind]
        if several_nodes and len(nodes) > 1 and 1 < ranks <= nodes[0][1]:
            nodes = [(nodes[0][0], ranks - ranks // 2), (nodes[1][0], ranks // 2)]
        places: list[RankPlace] = []
        for node, devices in nodes:
            places += [RankPlace(node=node, device=device) for device in range(devices)]
            if len(places) >= ranks:
                break
        while len(places) < ranks:
            places.append(places[len(places) % len(nodes)])
        return places[:ranks]
