"""Nodes for all pods of a gang at once, where its pods matter to each other.

The pods are placed one after the other, as a scheduler of single pods would, each seeing those before it. A small gang
is searched in full. In a large one, the first pod is tried on every node and the others take the first node that suits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from rota.drivers.kubernetes.devices.device_facts import Allocation, ClaimKey
from rota.drivers.kubernetes.filters.claims import allocations_on
from rota.drivers.kubernetes.filters.facts import PodFacts
from rota.drivers.kubernetes.filters.verdict import judge
from rota.drivers.kubernetes.filters.volume_facts import Promise
from rota.drivers.kubernetes.filters.volumes import promises_on
from rota.drivers.kubernetes.filters.world import FilterState

SEARCHED_IN_FULL = 6
"""Pods of a gang whose every assignment may be tried."""
MOST_TRIES = 20_000
"""Nodes looked at in one search."""


class PromisedClaims(NamedTuple):
    """The claims of a pod that were promised something: PersistentVolumeClaims and ResourceClaims."""

    volumes: tuple[tuple[str, str], ...] = ()
    devices: tuple[ClaimKey, ...] = ()


class Room(Protocol):
    """What is left on nodes of devices, CPUs, memory and pods while a gang is being assigned."""

    def nodes(self, index: int) -> Sequence[str]:
        """Return nodes with room for the pod of this index, the best first."""

    def take(self, index: int, node: str) -> None:
        """Count the pod on a node."""

    def give(self, index: int, node: str) -> None:
        """Undo `take`."""


@contextmanager
def assumed(pod: PodFacts, node: str, world: FilterState) -> Iterator[None]:
    """Count a pod and what its claims are promised on a node for a while."""
    promised = assume(pod, node, world)
    try:
        yield
    finally:
        forget(promised, world)
        world.take(pod.uid)


def assume(pod: PodFacts, node: str, world: FilterState) -> PromisedClaims:
    """Count a pod on a node, and promise its claims what they get there; return the claims that were promised it."""
    promises = promises_to(pod, node, world)
    world.volumes.promise(promises, node)
    devices: dict[ClaimKey, Allocation] = {}
    if pod.needs.claims and node in world.nodes:
        devices = allocations_on(pod, world.nodes[node], world.devices)
        world.devices.promised |= devices
    world.put(pod, node)
    return PromisedClaims(tuple(each.claim for each in promises), tuple(devices))


def forget(promised: PromisedClaims, world: FilterState) -> None:
    """Give up promises."""
    world.volumes.forget(promised.volumes)
    for key in promised.devices:
        world.devices.promised.pop(key, None)


def promises_to(pod: PodFacts, node: str, world: FilterState) -> tuple[Promise, ...]:
    """Return what the unbound volume claims of a pod get on a node."""
    if not pod.needs.volumes or node not in world.nodes:
        return ()
    claims = [world.volumes.claims.get((pod.namespace, name)) for name in pod.needs.volumes]
    known = [claim for claim in claims if claim is not None]
    return promises_on(known, world.nodes[node], world.volumes) or ()


class _AssignmentSearch:
    def __init__(self, pods: Sequence[PodFacts], world: FilterState, room: Room) -> None:
        self._pods = pods
        self._world = world
        self._room = room
        self._tries = 0
        self._in_full = len(pods) <= SEARCHED_IN_FULL
        self.found: list[str] = []

    def run(self, index: int = 0) -> bool:
        """Assign the pods from this index on; `found` are the nodes then."""
        if index == len(self._pods):
            return True
        pod = self._pods[index]
        test = judge(pod, self._world)
        for name in self._room.nodes(index):
            self._tries += 1
            if self._tries > MOST_TRIES:
                return False
            node = self._world.nodes.get(name)
            if node is None or (test is not None and test(node) is not None):
                continue
            if self._with(index, name):
                return True
            if index and not self._in_full:
                return False
        return False

    def _with(self, index: int, name: str) -> bool:
        """Go on with a pod on a node."""
        self._room.take(index, name)
        self.found.append(name)
        with assumed(self._pods[index], name, self._world):
            if self.run(index + 1):
                return True
        self.found.pop()
        self._room.give(index, name)
        return False


def assign(pods: Sequence[PodFacts], world: FilterState, room: Room) -> list[str] | None:
    """Return a node for each pod that suits it beside the others; None if no such nodes were found."""
    version = world.version
    search = _AssignmentSearch(pods, world, room)
    try:
        return search.found if search.run() else None
    finally:
        world.version = version  # everything is as it was before
