"""All jobs on a network at one moment: what each of them gets of the links, and how fast it runs with that."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rota.core.model.cluster import Node
from rota.core.model.job import Job, JobId
from rota.core.model.placement import Placement
from rota.network.crux import least_congested
from rota.network.demand import IterationDemand, demand_of
from rota.network.model import LinkMechanism, NetworkModel, PhaseAlignment
from rota.network.rank_order import task_order
from rota.network.routing import Path, Router, mixed
from rota.network.sharing import LinkUse, max_min
from rota.network.topology import Floats, Ints
from rota.network.traffic import JobTraffic, RankPlace, iteration_s, ranks_of, requested_ranks, traffic_on
from rota.network.turns import settled

SAME = 1e-9
"""Relative change of a speed that is none."""
ROUNDS = 12
"""Steps towards the fixed point of random phases."""
MOST_PHASED = 24
"""Jobs that meet on links up to which a mechanism is simulated phase by phase; more of them share by level."""


@dataclass(slots=True)
class _Entry:
    traffic: JobTraffic
    reference_s: float
    links: Ints
    loads: Floats
    speed: float = 1.0
    told: float = 1.0


class NetworkLoad:
    """The jobs that communicate, with their shares, kept up to date as jobs come and go."""

    def __init__(
        self, model: NetworkModel, nodes: Sequence[Node], *, by_request: Callable[[Job], bool] | None = None
    ) -> None:
        """`by_request`: whether the speed of a job is relative to its requested size, and not to its present one."""
        model.topology.check_nodes((str(node.id) for node in nodes), model.source)
        self.model = model
        self.router = Router(model.topology, ecmp=model.ecmp, seed=model.seed)
        self._place = {name: index for index, name in enumerate(model.topology.nodes)}
        self._node = [self._place[str(node.id)] for node in nodes]
        self._devices = [node.devices for node in nodes]
        self._by_request = by_request
        self._entries: dict[JobId, _Entry] = {}
        self._is_dirty = False
        self._references: dict[tuple[IterationDemand, int], float] = {}
        self._unknown: dict[JobId, None] = {}

    def add_node(self, node: Node) -> None:
        """Take in a node that joins the cluster, as the last of its nodes."""
        self.model.topology.check_nodes([str(node.id)], self.model.source)
        self._node.append(self._place[str(node.id)])
        self._devices.append(node.devices)

    @property
    def unknown_jobs(self) -> int:
        """Jobs on several devices whose traffic is not known; they are modelled without any."""
        return len(self._unknown)

    def enter(self, job: Job, placement: Placement) -> None:
        """Add a job on its placement; one without traffic has no effect."""
        traffic = self.traffic(job, placement)
        if traffic is None:
            return
        links = np.fromiter(traffic.loads, dtype=np.int64, count=len(traffic.loads))
        loads = np.fromiter(traffic.loads.values(), dtype=np.float64, count=len(traffic.loads))
        ranks = requested_ranks(job) if self._is_by_request(job) else traffic.devices
        reference_s = self.reference_s(traffic.demand, ranks)
        self._entries[job.id] = _Entry(traffic, reference_s, links, loads)
        self._is_dirty = True

    def leave(self, job_id: JobId) -> None:
        """Remove a job, if it is present."""
        if self._entries.pop(job_id, None) is not None:
            self._is_dirty = True

    def traffic(self, job: Job, placement: Placement) -> JobTraffic | None:
        """Return the traffic of a job on a placement; None where it has none or it is not known."""
        ranks = self.ranks(job, placement)
        if len(ranks) < 2 and not self._is_by_request(job):
            return None
        demand = demand_of(job, self.model.models, self.model.usual)
        if demand is None:
            if len(ranks) > 1:
                self._unknown[job.id] = None
            return None
        key = mixed(*job.id.encode())
        return self.traffic_among(demand, self._ordered(job, placement, ranks, demand, key), key)

    def _is_by_request(self, job: Job) -> bool:
        return self._by_request is not None and len(job.roles) == 1 and self._by_request(job)

    def _ordered(
        self, job: Job, placement: Placement, ranks: Sequence[RankPlace], demand: IterationDemand, key: int
    ) -> Sequence[RankPlace]:
        """Return ranks in the order that drivers give their tasks."""
        if len(job.roles) > 1:
            return ranks
        per_task = max(len(ranks) // sum(slot.tasks for slot in placement), 1)
        tasks = [ranks[first : first + per_task] for first in range(0, len(ranks), per_task)]
        order = task_order(
            demand.collective, tasks, self.model.topology, lambda one, other: self.router.route(one, other, key)
        )
        return [rank for task in order for rank in tasks[task]]

    def ranks(self, job: Job, placement: Placement) -> list[RankPlace]:
        """Return the ranks of a job with the numbers that nodes have in the network."""
        return [
            RankPlace(node=self._node[rank.node], device=rank.device, serves=rank.serves)
            for rank in ranks_of(job, placement)
        ]

    def traffic_among(self, demand: IterationDemand, ranks: Sequence[RankPlace], key: int) -> JobTraffic:
        """Return the traffic of ranks in this order; under Crux on the least congested paths."""
        if self.model.mechanism is not LinkMechanism.CRUX:
            return traffic_on(demand, ranks, self.model, lambda one, other: self.router.route(one, other, key))
        load = self.link_bytes_per_s()

        def path(source: int, target: int) -> Path:
            found = least_congested(self.router, source, target, load, self.model.topology.capacity)
            for link in found:
                load[link] = load.get(link, 0.0) + 1.0
            return found

        return traffic_on(demand, ranks, self.model, path)

    def reference_s(self, demand: IterationDemand, ranks: int) -> float:
        """Return the time of an iteration alone on the first nodes of the network, as few of them as will do."""
        found = self._references.get((demand, ranks))
        if found is None:
            places: list[RankPlace] = []
            for node, devices in zip(self._node, self._devices, strict=True):
                places += [RankPlace(node=node, device=device) for device in range(max(devices, 1))]
                if len(places) >= ranks:
                    break
            while len(places) < ranks:
                places.append(places[len(places) % len(self._node)])
            traffic = traffic_on(
                demand, places[:ranks], self.model, lambda one, other: self.router.route(one, other, 0)
            )
            found = iteration_s(demand, traffic.comm_s, self.model.interference)
            self._references[demand, ranks] = found
        return found

    def alone_s(self, traffic: JobTraffic) -> float:
        """Return the time of an iteration with the network to itself."""
        return iteration_s(traffic.demand, traffic.comm_s, self.model.interference)

    def iteration_s(self, job_id: JobId) -> float | None:
        """Return the present time of an iteration of a job; None for a job without traffic."""
        entry = self._entries.get(job_id)
        if entry is None:
            return None
        self._reshare()
        return entry.reference_s / entry.speed

    def speed(self, job_id: JobId) -> float:
        """Return the speed of a job relative to its consolidated placement alone; 1 for a job without traffic."""
        entry = self._entries.get(job_id)
        if entry is None:
            return 1.0
        self._reshare()
        entry.told = entry.speed
        return entry.speed

    def pop_affected(self) -> list[JobId]:
        """Return the jobs whose speed changed since it was last asked for."""
        self._reshare()
        return [job_id for job_id, entry in self._entries.items() if abs(entry.speed - entry.told) > SAME * entry.told]

    def link_bytes_per_s(self) -> dict[int, float]:
        """Return the mean rate on each link, over whole iterations."""
        self._reshare()
        rates: dict[int, float] = {}
        for entry in self._entries.values():
            per_s = entry.traffic.unit_bytes * entry.speed / entry.reference_s if entry.reference_s else 0.0
            for link, load in entry.traffic.loads.items():
                rates[link] = rates.get(link, 0.0) + load * per_s
        return rates

    def _reshare(self) -> None:
        """Bring the speeds of all jobs up to date."""
        if not self._is_dirty:
            return
        self._is_dirty = False
        entries = [entry for entry in self._entries.values() if len(entry.links)]
        for entry in self._entries.values():
            if not len(entry.links):
                self._set_speed(entry, self.alone_s(entry.traffic))
        if not entries:
            return
        levels = self._levels(entries)
        if self.model.mechanism is LinkMechanism.FAIR:
            for entry, level in zip(entries, levels.tolist(), strict=True):
                comm_s = entry.traffic.exchange_s(level)
                self._set_speed(entry, iteration_s(entry.traffic.demand, comm_s, self.model.interference))
            return
        for group in self._components(entries):
            self._set_group([entries[number] for number in group], levels[group])

    def _set_speed(self, entry: _Entry, now_s: float) -> None:
        entry.speed = float(entry.reference_s / now_s) if now_s > 0 else 1.0

    def _levels(self, entries: Sequence[_Entry]) -> Floats:
        """Return the share of each job: of all at the same time, or of those that meet it by chance."""
        sizes = [len(entry.links) for entry in entries]
        use = LinkUse(
            flow=np.repeat(np.arange(len(entries)), sizes),
            link=np.concatenate([entry.links for entry in entries]),
            load=np.concatenate([entry.loads for entry in entries]),
            flows=len(entries),
        )
        capacity = self.model.topology.capacity
        crowded = max_min(use, capacity)
        if self.model.alignment is PhaseAlignment.ALIGNED or self.model.mechanism is not LinkMechanism.FAIR:
            return crowded
        alone = np.array([entry.traffic.alone_level for entry in entries])
        levels = crowded
        for _ in range(ROUNDS):
            sends = np.array([_sends(entry, level, self.model) for entry, level in zip(entries, levels, strict=True)])
            meeting = np.bincount(use.link, use.load * sends[use.flow], minlength=len(capacity))
            # A job meets itself fully and the others for the fraction of time in which they send.
            seen = meeting[use.link] + use.load * (1.0 - sends[use.flow])
            offered = np.full(len(entries), np.inf)
            np.minimum.at(offered, use.flow, capacity[use.link] / seen)
            after = np.clip(offered, crowded, alone)
            if np.allclose(after, levels, rtol=1e-6):
                break
            levels = 0.5 * (levels + after)
        return levels

    def _components(self, entries: Sequence[_Entry]) -> list[list[int]]:
        """Return groups of jobs that meet on links which they would fill together."""
        capacity = self.model.topology.capacity
        wanted = np.zeros(len(capacity))
        for entry in entries:
            wanted[entry.links] += entry.loads * entry.traffic.alone_level
        tight = wanted > capacity * (1 + 1e-9)
        parent = list(range(len(entries)))

        def root(number: int) -> int:
            while parent[number] != number:
                parent[number] = parent[parent[number]]
                number = parent[number]
            return number

        first: dict[int, int] = {}
        for number, entry in enumerate(entries):
            for link in entry.links[tight[entry.links]].tolist():
                parent[root(number)] = root(first.setdefault(link, number))
        groups: dict[int, list[int]] = {}
        for number in range(len(entries)):
            groups.setdefault(root(number), []).append(number)
        return list(groups.values())

    def _set_group(self, group: Sequence[_Entry], levels: Floats) -> None:
        """Set the speeds of jobs that meet, as the mechanism has them send."""
        if len(group) == 1:
            self._set_speed(group[0], self.alone_s(group[0].traffic))
            return
        if len(group) > MOST_PHASED:
            for entry, level in zip(group, levels.tolist(), strict=True):
                comm_s = entry.traffic.exchange_s(level)
                self._set_speed(entry, iteration_s(entry.traffic.demand, comm_s, self.model.interference))
            return
        for entry, now_s in zip(group, settled([entry.traffic for entry in group], self.model), strict=True):
            self._set_speed(entry, now_s if math.isfinite(now_s) else self.alone_s(entry.traffic))


def _sends(entry: _Entry, level: float, model: NetworkModel) -> float:
    """Return the fraction of time in which a job sends, at a level."""
    comm_s = entry.traffic.exchange_s(level)
    moving_s = comm_s - entry.traffic.fixed_s
    return min(moving_s / max(iteration_s(entry.traffic.demand, comm_s, model.interference), 1e-12), 1.0)
