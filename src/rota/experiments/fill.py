"""Fill-until-full: pods are drawn from a list and placed, none ends, until the demand exceeds the cluster.

What is left free then shows how well a placement packs. A pod is one task on one node, with a part of a GPU, whole
GPUs, CPUs and memory, and possibly the GPU models that will do. Fragmentation is as in Weng et al. (USENIX ATC 2023):
of the free GPUs of a node, those that a task drawn from the list could not use, in expectation. `fgd` places each pod
where that grows least; it evaluates every GPU of every node that has room.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.cluster import Cluster
from rota.core.model.job import WHOLE, Role
from rota.report.series import Floats

TYPICAL = 40
"""The most frequent requests of the list, which fragmentation is measured against."""
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequest:
    """What one pod asks for; `milli` is for each of `gpus` devices."""

    gpus: int
    milli: int
    cpu_milli: int
    memory_bytes: int
    types: tuple[str, ...] = ()

    @property
    def total_milli(self) -> int:
        """Thousandths of devices in all."""
        return self.gpus * self.milli


def request_of(role: Role) -> PodRequest:
    """A task of a role as a pod."""
    whole = role.device_milli >= WHOLE
    return PodRequest(
        gpus=role.device_milli // WHOLE if whole else int(role.device_milli > 0),
        milli=WHOLE if whole else role.device_milli,
        cpu_milli=role.cpu_milli,
        memory_bytes=role.memory_bytes,
        types=tuple(str(kind) for kind in role.device_types),
    )


class FillState:
    """The free GPUs, CPUs and memory of every node, as arrays."""

    def __init__(self, cluster: Cluster, typical: Sequence[tuple[PodRequest, float]]) -> None:
        nodes = cluster.nodes
        most = max((node.devices for node in nodes), default=0)
        self.types = np.array([str(node.device_type) for node in nodes])
        self.exists = np.arange(most)[None, :] < np.array([node.devices for node in nodes])[:, None]
        self.free: Ints = np.where(self.exists, WHOLE, 0).astype(np.int64)
        big = 2**62
        self.cpu: Ints = np.array([big if n.cpu_milli is None else n.cpu_milli for n in nodes], dtype=np.int64)
        self.memory: Ints = np.array([big if n.memory_bytes is None else n.memory_bytes for n in nodes], dtype=np.int64)
        self.capacity_milli = int(self.free.sum())
        self._typical = typical
        self.fragments: Floats = self.fragmentation(np.arange(len(nodes)), self.free, self.cpu, self.memory)

    def room(self, pod: PodRequest) -> Bools:
        """The nodes that have room for a pod."""
        fits: Bools = (self.cpu >= pod.cpu_milli) & (self.memory >= pod.memory_bytes)
        if pod.types:
            fits &= np.isin(self.types, pod.types)
        if pod.gpus:
            fits &= (self.free >= pod.milli).sum(axis=1) >= pod.gpus
        return fits

    def fragmentation(self, at: Ints, free: Ints, cpu: Ints, memory: Ints) -> Floats:
        """Expected free GPUs, in thousandths, that a typical task can't use, for each row of a node's state."""
        lost = np.zeros(len(at))
        all_free = free.sum(axis=1).astype(np.float64)
        kinds = self.types[at]
        for pod, share in self._typical:
            if not pod.gpus:
                continue
            enough = free >= pod.milli
            fits = (cpu >= pod.cpu_milli) & (memory >= pod.memory_bytes) & (enough.sum(axis=1) >= pod.gpus)
            if pod.types:
                fits &= np.isin(kinds, pod.types)
            lost += share * np.where(fits, np.where(enough, 0, free).sum(axis=1), all_free)
        return lost

    def place(self, pod: PodRequest, node: int, devices: Sequence[int]) -> None:
        """Let a pod hold devices of a node."""
        for device in devices:
            self.free[node, device] -= pod.milli
        self.cpu[node] -= pod.cpu_milli
        self.memory[node] -= pod.memory_bytes
        row = np.array([node])
        self.fragments[node] = self.fragmentation(row, self.free[row], self.cpu[row], self.memory[row])[0]


def tightest_devices(state: FillState, pod: PodRequest, node: int) -> list[int]:
    """The devices of a node with the least room that is enough."""
    able = [device for device in range(state.free.shape[1]) if state.free[node, device] >= pod.milli]
    return sorted(able, key=lambda device: (state.free[node, device], device))[: pod.gpus]


def _first(state: FillState, pod: PodRequest, nodes: Ints, rng: random.Random) -> int:
    return int(nodes[0])


def _fullest(state: FillState, pod: PodRequest, nodes: Ints, rng: random.Random) -> int:
    return int(nodes[np.argmin(state.free[nodes].sum(axis=1))])


def _emptiest(state: FillState, pod: PodRequest, nodes: Ints, rng: random.Random) -> int:
    return int(nodes[np.argmax(state.free[nodes].sum(axis=1))])


def _random(state: FillState, pod: PodRequest, nodes: Ints, rng: random.Random) -> int:
    return int(nodes[rng.randrange(len(nodes))])


def _dot_product(state: FillState, pod: PodRequest, nodes: Ints, rng: random.Random) -> int:
    """The node whose free amounts are least aligned with the request leaves the others for what they suit."""
    gpu = state.free[nodes].sum(axis=1) / max(state.free.shape[1] * WHOLE, 1) * pod.total_milli
    cpu = state.cpu[nodes] / max(int(state.cpu.max()), 1) * pod.cpu_milli
    return int(nodes[np.argmin(gpu + cpu)])


NODE_RULES: Mapping[str, Callable[[FillState, PodRequest, Ints, random.Random], int]] = {
    "first-fit": _first,
    "best-fit": _fullest,
    "worst-fit": _emptiest,
    "random": _random,
    "dot-product": _dot_product,
}
FGD = "fgd"
PLACEMENT_NAMES = (*NODE_RULES, FGD)


def _least_fragmentation(state: FillState, pod: PodRequest, nodes: Ints) -> tuple[int, list[int]]:
    """The node and devices where expected fragmentation grows least (fragmentation gradient descent)."""
    options: list[tuple[int, list[int]]] = []
    for node in nodes.tolist():
        if pod.gpus != 1 or pod.milli == WHOLE:
            options.append((node, tightest_devices(state, pod, node)))
            continue
        seen: set[int] = set()
        for device in range(state.free.shape[1]):
            free = int(state.free[node, device])
            if free >= pod.milli and free not in seen:
                seen.add(free)
                options.append((node, [device]))
    at = np.array([node for node, _ in options])
    free = state.free[at].copy()
    for row, (_, devices) in enumerate(options):
        free[row, devices] -= pod.milli
    after = state.fragmentation(at, free, state.cpu[at] - pod.cpu_milli, state.memory[at] - pod.memory_bytes)
    best = int(np.argmin(after - state.fragments[at]))
    return options[best]


@dataclass(frozen=True, slots=True, kw_only=True)
class FillResult:
    """How full a cluster became under one placement and seed."""

    placement: str
    seed: int
    pods: int
    placed: int
    allocation: float
    """GPUs held over GPUs, at the end."""
    allocation_by_type: Mapping[str, float]
    fragmentation: float
    """Expected free GPUs that a task of the list can't use, over all GPUs, at the end."""
    first_refused_at: float
    """Demand that had arrived when the first pod found no room, over all GPUs."""


def fill(cluster: Cluster, requests: Sequence[PodRequest], placement: str, *, seed: int, demand: float) -> FillResult:
    """Draw pods with replacement until their demand is `demand` of the cluster's GPUs, and place those that fit."""
    if placement not in PLACEMENT_NAMES:
        raise RotaError(f"unknown placement {placement!r}; {did_you_mean(placement, PLACEMENT_NAMES)}")
    if not any(pod.gpus for pod in requests):
        raise RotaError("no pod of the list asks for a GPU")
    state = FillState(cluster, typical_of(requests))
    if not state.capacity_milli:
        raise RotaError("the cluster has no GPUs")
    rng = random.Random(f"fill {seed}")
    ties = random.Random(f"ties {seed}")
    arrived = pods = placed = 0
    refused_at = demand
    while arrived < demand * state.capacity_milli:
        pod = requests[rng.randrange(len(requests))]
        pods += 1
        arrived += pod.total_milli
        nodes = np.flatnonzero(state.room(pod))
        if not nodes.size:
            refused_at = min(refused_at, arrived / state.capacity_milli)
            continue
        placed += 1
        if placement == FGD:
            node, devices = _least_fragmentation(state, pod, nodes)
        else:
            node = NODE_RULES[placement](state, pod, nodes, ties)
            devices = tightest_devices(state, pod, node)
        state.place(pod, node, devices)
    return _result(state, placement, seed, pods, placed, refused_at)


def typical_of(requests: Sequence[PodRequest]) -> list[tuple[PodRequest, float]]:
    """The most frequent requests that ask for GPUs, with their shares."""
    count: dict[PodRequest, int] = {}
    for pod in requests:
        if pod.gpus:
            count[pod] = count.get(pod, 0) + 1
    common = sorted(count.items(), key=lambda item: -item[1])[:TYPICAL]
    total = sum(number for _, number in common)
    return [(pod, number / total) for pod, number in common]


def _result(state: FillState, placement: str, seed: int, pods: int, placed: int, refused_at: float) -> FillResult:
    by_type = {}
    for kind in dict.fromkeys(state.types.tolist()):
        rows = state.types == kind
        capacity = int(state.exists[rows].sum()) * WHOLE
        if capacity:
            by_type[kind] = 1.0 - float(state.free[rows].sum()) / capacity
    return FillResult(
        placement=placement,
        seed=seed,
        pods=pods,
        placed=placed,
        allocation=1.0 - float(state.free.sum()) / state.capacity_milli,
        allocation_by_type=by_type,
        fragmentation=float(state.fragments.sum()) / state.capacity_milli,
        first_refused_at=refused_at,
    )
