"""Contention between tasks on the same server, from first principles.

A step is computation, then communication; the slowest task sets the pace of both. Computation waits for cores, which
are shared by max-min fairness in proportion to requests (as containers are), and for memory and PCIe bandwidth, which
slow all tasks equally once demand exceeds capacity. Traffic crosses the server's network interface, shared by max-min
fairness between all tasks there; tasks on one server exchange nothing over it. A throttled task demands proportionally
less of everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from rota.perf.speed.contention_constants import (
    KINDS,
    SERVER_BYTES_S,
    UPDATE_PASSES,
    Exchange,
    ServerCapacity,
    TaskDemands,
)


class TaskOnServer(NamedTuple):
    """A job's tasks on one server, and their total number."""

    kind: str
    workers: int
    servers: int
    """Parameter servers here."""
    all_workers: int
    all_servers: int
    nodes: int
    """Number of servers of the cluster that the job spans."""
    worker_cores: float
    """Cores requested per worker: its weight where cores are short."""
    server_cores: float
    duty: float = 1.0
    """Fraction of its work that the job may do."""


class StepTimes(NamedTuple):
    """Parts of a step's time of the tasks on one server."""

    compute_s: float
    exchange_s: float


def sent_bytes(tenant: TaskOnServer) -> float:
    """Return the bytes that a job's tasks on a server send to others in a step; as many come in."""
    needs = KINDS[tenant.kind]
    here, away = tenant.workers, tenant.all_workers - tenant.workers
    if tenant.nodes < 2:
        return 0.0
    if needs.exchange is Exchange.SHUFFLE:
        return needs.bytes * here * away / tenant.all_workers
    if not tenant.all_servers:
        return needs.bytes * 2.0 * (tenant.nodes - 1) / tenant.nodes
    remote = tenant.all_servers - tenant.servers
    return needs.bytes * (here * remote + tenant.servers * away) / tenant.all_servers


def update_s(tenant: TaskOnServer) -> float:
    """Return the seconds that a parameter server alone needs to receive the gradients of a step."""
    if not tenant.servers:
        return 0.0
    return KINDS[tenant.kind].bytes * tenant.all_workers / tenant.all_servers / SERVER_BYTES_S


def alone_s(kind: str, workers: int, servers: int) -> float:
    """Return the step time of a job alone on a server of any size."""
    needs = KINDS[kind]
    return needs.step_s + (needs.bytes * workers / servers / SERVER_BYTES_S if servers else 0.0)


def fill(wants: Sequence[float], weights: Sequence[float], capacity: float) -> list[float]:
    """Return max-min fair fractions of a capacity: none above its demand, none below its weighted share of the rest."""
    parts = [0.0] * len(wants)
    left, weight = capacity, sum(weights)
    for index in sorted(range(len(wants)), key=lambda i: wants[i] / weights[i]):
        parts[index] = min(wants[index], left * weights[index] / weight)
        left -= parts[index]
        weight -= weights[index]
        if weight <= 0:
            break
    return parts


def left_to(index: int, wants: Sequence[float], weights: Sequence[float], capacity: float) -> float:
    """Return the max-min fair fraction of a user with unlimited demand, next to others with bounded demands."""
    left, weight = capacity, sum(weights)
    others = sorted((i for i in range(len(wants)) if i != index), key=lambda i: wants[i] / weights[i])
    for other in others:
        level = left / weight
        if wants[other] >= level * weights[other]:
            return level * weights[index]
        left -= wants[other]
        weight -= weights[other]
    return left


@lru_cache(maxsize=200_000)
def server_times(tenants: tuple[TaskOnServer, ...], server: ServerCapacity) -> tuple[StepTimes, ...]:
    """Return the parts of a step's time for each job on a server."""
    cores = _core_stretch(tenants, server)
    memory = max(1.0, sum(map(_memory_bytes_s, tenants)) / server.memory_bytes_s)
    pcie = max(1.0, sum(t.duty * t.workers * KINDS[t.kind].pcie_bytes_s for t in tenants) / server.pcie_bytes_s)
    network = _network_s(tenants, server)
    return tuple(
        StepTimes(
            _compute_s(tenant, KINDS[tenant.kind], by_worker, memory * pcie),
            max(network_s, update_s(tenant) * by_server * memory),
        )
        for tenant, (by_worker, by_server), network_s in zip(tenants, cores, network, strict=True)
    )


def _compute_s(tenant: TaskOnServer, needs: TaskDemands, cores: float, shared: float) -> float:
    return needs.step_s * ((1.0 - needs.host) * cores + needs.host * shared) if tenant.workers else 0.0


def _server_load(tenant: TaskOnServer) -> float:
    """Return the fraction of a step in which a parameter server is busy."""
    return update_s(tenant) / alone_s(tenant.kind, tenant.all_workers, tenant.all_servers) if tenant.servers else 0.0


def _memory_bytes_s(tenant: TaskOnServer) -> float:
    serving = tenant.servers * _server_load(tenant) * SERVER_BYTES_S * UPDATE_PASSES / 2
    return tenant.duty * (tenant.workers * KINDS[tenant.kind].memory_bytes_s + serving)


def _core_stretch(tenants: Sequence[TaskOnServer], server: ServerCapacity) -> list[tuple[float, float]]:
    """Return the slowdown of workers and parameter servers by core contention; each server keeps 2 cores busy."""
    wants, weights = [], []
    for tenant in tenants:
        busy = (tenant.workers * KINDS[tenant.kind].cores, tenant.servers * 2.0 * _server_load(tenant))
        wants += [tenant.duty * cores for cores in busy]
        weights += [tenant.workers * tenant.worker_cores or 1e-9, tenant.servers * tenant.server_cores or 1e-9]
    parts = fill(wants, weights, server.cores)
    stretch = [want / part if want > part > 0 else 1.0 for want, part in zip(wants, parts, strict=True)]
    return list(zip(stretch[::2], stretch[1::2], strict=True))


def _network_s(tenants: Sequence[TaskOnServer], server: ServerCapacity) -> list[float]:
    """Return the seconds each job needs for the traffic of a step, with the others' demand as when alone."""
    sent = [sent_bytes(tenant) for tenant in tenants]
    active = [index for index, amount in enumerate(sent) if amount]
    wants, weights = [], []
    for index in active:
        tenant = tenants[index]
        step_s = alone_s(tenant.kind, tenant.all_workers, tenant.all_servers) + sent[index] / server.nic_bytes_s
        wants.append(tenant.duty * sent[index] / step_s)
        weights.append(float(tenant.workers + tenant.servers))
    times = [0.0] * len(tenants)
    for at, index in enumerate(active):
        times[index] = sent[index] / left_to(at, wants, weights, server.nic_bytes_s)
    return times
