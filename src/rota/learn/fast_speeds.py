"""The contention model over many clusters at once, as arrays: the same speeds as `perf.speed.shared_servers`.

Axes: cluster, job, server.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rota.perf.speed.contention_constants import KINDS, SERVER_BYTES_S, UPDATE_PASSES, Exchange, ServerCapacity

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
BUSY_CORES = 2.0
"""Cores that a parameter server keeps busy."""
_NONE = 1e-9

_STEP_S = np.array([needs.step_s for needs in KINDS.values()])
_BYTES = np.array([needs.bytes for needs in KINDS.values()])
_CORES = np.array([needs.cores for needs in KINDS.values()])
_MEMORY = np.array([needs.memory_bytes_s for needs in KINDS.values()])
_PCIE = np.array([needs.pcie_bytes_s for needs in KINDS.values()])
_HOST = np.array([needs.host for needs in KINDS.values()])
_SHUFFLES = np.array([needs.exchange is Exchange.SHUFFLE for needs in KINDS.values()])


def speeds(kind: Ints, workers: Floats, servers: Floats, worker_cores: Floats, server_cores: Floats) -> Floats:
    """Return the speed of each job relative to that alone; 0 for jobs without workers."""
    shared = ServerCapacity()
    all_workers, all_servers = workers.sum(-1), servers.sum(-1)
    per_server = np.maximum(all_servers, 1.0)
    update_s = np.where(all_servers > 0, _BYTES[kind] * all_workers / per_server / SERVER_BYTES_S, 0.0)
    alone_s = _STEP_S[kind] + update_s
    busy = (update_s / alone_s)[..., None] * servers
    memory = ((workers * _MEMORY[kind][..., None]) + busy * SERVER_BYTES_S * UPDATE_PASSES / 2).sum(1)
    memory_stretch = np.maximum(memory / shared.memory_bytes_s, 1.0)[:, None]
    pcie_stretch = np.maximum((workers * _PCIE[kind][..., None]).sum(1) / shared.pcie_bytes_s, 1.0)[:, None]
    by_worker, by_server = _core_stretch(
        workers * _CORES[kind][..., None],
        busy * BUSY_CORES,
        workers * worker_cores[..., None],
        servers * server_cores[..., None],
        shared.cores,
    )
    host = _HOST[kind][..., None]
    compute_s = _STEP_S[kind][..., None] * ((1.0 - host) * by_worker + host * memory_stretch * pcie_stretch)
    exchange_s = np.where(servers > 0, update_s[..., None] * by_server * memory_stretch, 0.0)
    sent = _sent(kind, workers, servers)
    network_s = _network_s(sent, alone_s, workers + servers, shared.nic_bytes_s)
    step_s = np.where(workers > 0, compute_s, 0.0).max(-1) + np.maximum(exchange_s, network_s).max(-1)
    return np.where(all_workers > 0, alone_s / np.maximum(step_s, _NONE), 0.0)


def _sent(kind: Ints, workers: Floats, servers: Floats) -> Floats:
    """Return the bytes that each job's tasks on each server send to others in a step."""
    here = workers + servers > 0
    nodes = here.sum(-1, keepdims=True)
    all_workers, all_servers = workers.sum(-1, keepdims=True), servers.sum(-1, keepdims=True)
    ring = np.where(here, 2.0 * (nodes - 1) / np.maximum(nodes, 1), 0.0)
    away = all_workers - workers
    through = (workers * (all_servers - servers) + servers * away) / np.maximum(all_servers, 1.0)
    shuffled = workers * away / np.maximum(all_workers, 1.0)
    part = np.where(_SHUFFLES[kind][..., None], shuffled, np.where(all_servers > 0, through, ring))
    return np.where(nodes > 1, part * _BYTES[kind][..., None], 0.0)


def _core_stretch(
    worker_wants: Floats, server_wants: Floats, worker_weights: Floats, server_weights: Floats, cores: float
) -> tuple[Floats, Floats]:
    """Return the slowdown of tasks by core contention."""
    wants = np.concatenate([worker_wants, server_wants], axis=1)
    weights = np.maximum(np.concatenate([worker_weights, server_weights], axis=1), _NONE)
    order = np.argsort(wants / weights, axis=1)
    sorted_wants, sorted_weights = np.take_along_axis(wants, order, 1), np.take_along_axis(weights, order, 1)
    before = np.cumsum(sorted_wants, axis=1) - sorted_wants
    weight_left = np.cumsum(sorted_weights[:, ::-1], axis=1)[:, ::-1]
    level = ((cores - before) / weight_left).max(axis=1, keepdims=True)
    parts = np.minimum(wants, weights * level)
    short = (wants.sum(axis=1, keepdims=True) > cores) & (wants > parts)
    stretch = np.where(short, wants / np.maximum(parts, _NONE), 1.0)
    jobs = worker_wants.shape[1]
    return stretch[:, :jobs], stretch[:, jobs:]


def _network_s(sent: Floats, alone_s: Floats, tasks: Floats, capacity: float) -> Floats:
    """Return the seconds of sending for each job on each server, by max-min fair shares of the interface."""
    talks = sent > 0
    found = np.zeros_like(sent)
    if not talks.any():
        return found
    depth = int(min(talks.sum(1).max(), sent.shape[1]))
    slots = np.argsort(~talks, axis=1, kind="stable")[:, :depth]
    amount = np.take_along_axis(sent, slots, 1)
    alone = np.take_along_axis(np.broadcast_to(alone_s[..., None], sent.shape), slots, 1)
    weights = np.where(amount > 0, np.take_along_axis(tasks, slots, 1), _NONE)
    wants = amount / (alone + amount / capacity)
    order = np.argsort(wants / weights, axis=1)
    rank = np.argsort(order, axis=1)
    sorted_wants, sorted_weights = np.take_along_axis(wants, order, 1), np.take_along_axis(weights, order, 1)
    zero = np.zeros_like(sorted_wants[:, :1])
    taken = np.concatenate([zero, np.cumsum(sorted_wants, axis=1)], axis=1)[:, None]
    weight = np.concatenate([zero, np.cumsum(sorted_weights, axis=1)], axis=1)[:, None]
    is_counted = rank[:, :, None] < np.arange(depth + 1)[None, None, :, None]
    taken = taken - np.where(is_counted, wants[:, :, None], 0.0)
    weight_left = weight[:, :, -1:] - weight + np.where(is_counted, weights[:, :, None], 0.0)
    level = ((capacity - taken) / np.maximum(weight_left, _NONE)).max(axis=2)
    times = np.where(amount > 0, amount / np.maximum(level * weights, _NONE), 0.0)
    np.put_along_axis(found, slots, times, 1)
    return found
