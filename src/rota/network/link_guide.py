"""What drivers tell jobs about links: the order of their ranks, interfaces to use, and when their iterations start.

The terms of a job are settled when it starts and stay as they are; a later job is fitted to those that run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field

from rota.core.model.cluster import Node
from rota.core.model.job import Job, JobId
from rota.core.model.placement import Placement, Slot, device_indexes
from rota.network.cassini import JobCircle, joining_shift
from rota.network.collectives import CollectiveKind
from rota.network.demand import demand_of
from rota.network.model import LinkMechanism, NetworkModel
from rota.network.phases import PhasedJob
from rota.network.rank_order import task_order
from rota.network.routing import Path, Router, mixed
from rota.network.traffic import SERVERS, RankPlace, traffic_on
from rota.network.turns import phased_job

NodeAt = Callable[[int], Node]

NCCL_ALGORITHMS = {CollectiveKind.RING.value: "Ring", CollectiveKind.DOUBLE_TREE.value: "Tree"}
"""What NCCL calls the collectives that it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTerms:
    """What a job is told: its tasks in the order of their ranks, environment variables, and its turn on the links."""

    order: tuple[int, ...] = ()
    """Tasks by rank, numbered as its placement has them; empty: as they are there."""
    variables: Mapping[str, str] = field(default_factory=dict)
    shift_s: float = 0.0
    period_s: float = 0.0
    """The time of an iteration that keeps its turn; 0: it has none to keep."""

    @property
    def environment(self) -> dict[str, str]:
        """All of it as environment variables."""
        turn = {"ROTA_SHIFT_S": f"{self.shift_s:.6f}", "ROTA_PERIOD_S": f"{self.period_s:.6f}"} if self.period_s else {}
        return {**self.variables, **turn}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sender:
    """A job that runs: what it sends, and its turn."""

    job: PhasedJob
    shift_s: float
    period_s: float


class LinkGuide:
    """Settles the terms of jobs as they start, for one network."""

    def __init__(self, model: NetworkModel) -> None:
        self.model = model
        self._router = Router(model.topology, ecmp=model.ecmp, seed=model.seed)
        self._place = {name: index for index, name in enumerate(model.topology.nodes)}
        self._senders: dict[JobId, _Sender] = {}

    def begin(self, job: Job, placement: Placement, node_at: NodeAt, alive: Container[JobId]) -> LinkTerms:
        """Return the terms of a job that starts, beside those that are alive."""
        for gone in [name for name in self._senders if name not in alive or name == job.id]:
            del self._senders[gone]
        demand = demand_of(job, self.model.models, self.model.usual)
        kind = CollectiveKind.RING if demand is None else demand.collective
        order = self.order(job, placement, node_at, kind)
        terms = LinkTerms(order=order, variables=self.variables(kind, placement))
        sender = self._sender(job, in_order(placement, order), node_at)
        if sender is None:
            return terms
        if self.model.mechanism is LinkMechanism.CASSINI:
            shift_s, period_s = self._turn(sender)
            terms = LinkTerms(order=order, variables=terms.variables, shift_s=shift_s, period_s=period_s)
        self._senders[job.id] = _Sender(job=sender, shift_s=terms.shift_s, period_s=terms.period_s or sender.alone_s)
        return terms

    def found(self, job: Job, placement: Placement, terms: LinkTerms, node_at: NodeAt) -> None:
        """Take in a job that runs already, with the terms under which it was started."""
        sender = self._sender(job, in_order(placement, terms.order), node_at)
        if sender is not None:
            period_s = terms.period_s or sender.alone_s
            self._senders[job.id] = _Sender(job=sender, shift_s=terms.shift_s, period_s=period_s)

    def order(self, job: Job, placement: Placement, node_at: NodeAt, kind: CollectiveKind) -> tuple[int, ...]:
        """Return the best order of tasks for a collective; none where that of the placement is as good."""
        tasks = _split(placement)
        places = [self._ranks(slot, node_at) for slot in tasks]
        if len(tasks) < 2 or len(job.roles) > 1 or any(some is None for some in places):
            return ()
        ranks = [some for some in places if some is not None]
        order = task_order(kind, ranks, self.model.topology, lambda one, other: self._path(job.id, one, other))
        return () if order == list(range(len(tasks))) else tuple(order)

    def variables(self, kind: CollectiveKind, placement: Placement) -> dict[str, str]:
        """Return the variables of gloo and NCCL for a job on several devices."""
        if sum(max(slot.devices.bit_count(), slot.tasks) for slot in placement) < 2:
            return {}
        model = self.model
        found = {"NCCL_ALGO": NCCL_ALGORITHMS[kind.value]} if kind.value in NCCL_ALGORITHMS else {}
        if model.interface:
            found |= {"GLOO_SOCKET_IFNAME": model.interface, "NCCL_SOCKET_IFNAME": model.interface}
        if model.adapters:
            found["NCCL_IB_HCA"] = model.adapters
        if model.topology.kind == "rail-optimised":
            found["NCCL_CROSS_NIC"] = "0"  # each rail is a network of its own
        return found

    def _ranks(self, slot: Slot, node_at: NodeAt) -> list[RankPlace] | None:
        """Return the ranks of a slot; None where its node is not in the network."""
        node = self._place.get(str(node_at(slot.node).id))
        if node is None:
            return None
        devices: Sequence[int | None] = device_indexes(slot.devices) or [None] * slot.tasks
        return [RankPlace(node=node, device=device) for device in devices]

    def _path(self, name: JobId, source: int, target: int) -> Path:
        return self._router.route(source, target, mixed(*name.encode()))

    def _sender(self, job: Job, placement: Placement, node_at: NodeAt) -> PhasedJob | None:
        """Return the phases of a job on its placement; None where it sends nothing that is known."""
        demand = demand_of(job, self.model.models, self.model.usual)
        ranks: list[RankPlace] = []
        for slot in placement:
            some = self._ranks(slot, node_at)
            if demand is None or some is None:
                return None
            serves = len(job.roles) > 1 and job.roles[slot.role].name in SERVERS
            ranks += [RankPlace(node=each.node, device=each.device, serves=serves) for each in some]
        if demand is None or len(ranks) < 2:
            return None
        traffic = traffic_on(demand, ranks, self.model, lambda one, other: self._path(job.id, one, other))
        found = phased_job(traffic)
        return found if found.loads and found.alone_s > 0 else None

    def _turn(self, sender: PhasedJob) -> tuple[float, float]:
        """Return the shift and the period with which a job fits best beside those that it meets on full links."""
        capacity = self.model.topology.capacity
        demands = {link: load * sender.top_level for link, load in sender.loads.items()}
        beside: dict[int, list[JobCircle]] = {}
        for other in self._senders.values():
            for link in demands.keys() & other.job.loads.keys():
                demand = other.job.loads[link] * other.job.top_level
                beside.setdefault(link, []).append(_circle(other.job, other.period_s, other.shift_s, demand))
        full = {
            link: circles
            for link, circles in beside.items()
            if demands[link] + sum(circle.demand for circle in circles) > float(capacity[link]) * (1 + 1e-9)
        }
        own = _circle(sender, sender.alone_s, 0.0, sender.top_level)
        shift_s, period_s = joining_shift(own, demands, full, {link: float(capacity[link]) for link in full})
        return float(shift_s), float(period_s)


def _circle(job: PhasedJob, period_s: float, shift_s: float, demand: float) -> JobCircle:
    return JobCircle(
        period_s=period_s,
        start_s=job.quiet_s + shift_s,
        length_s=min(job.alone_comm_s, period_s),
        demand=demand if math.isfinite(demand) else 0.0,
    )


def in_order(placement: Placement, order: Sequence[int]) -> Placement:
    """Return a placement with its tasks in an order; as it is where the order is not one of its tasks."""
    tasks = _split(placement)
    if sorted(order) != list(range(len(tasks))):
        return placement
    return _joined([tasks[number] for number in order])


def _split(placement: Placement) -> list[Slot]:
    """Return a slot for each task, in the order of ranks."""
    tasks = []
    for slot in placement:
        devices = device_indexes(slot.devices)
        per_task = len(devices) // slot.tasks
        if slot.tasks == 1 or not per_task or len(devices) % slot.tasks:
            tasks += [slot] if per_task or slot.tasks == 1 else [slot._replace(tasks=1)] * slot.tasks
            continue
        for number in range(slot.tasks):
            mine = devices[number * per_task : (number + 1) * per_task]
            tasks.append(slot._replace(devices=sum(1 << device for device in mine), tasks=1))
    return tasks


def _joined(tasks: Sequence[Slot]) -> Placement:
    """Return slots with neighbours on one node put together, where their ranks stay those of ascending devices."""
    found: list[Slot] = []
    for task in tasks:
        last = found[-1] if found else None
        if (
            last is not None
            and last._replace(devices=0, tasks=1) == task._replace(devices=0)
            and last.devices < (task.devices & -task.devices)
        ):
            found[-1] = last._replace(devices=last.devices | task.devices, tasks=last.tasks + 1)
        else:
            found.append(task)
    return tuple(found)
