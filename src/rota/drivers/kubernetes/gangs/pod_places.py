"""Where each pod is or will be: its node counts it, and the filters see it there."""

from __future__ import annotations

from rota.drivers.kubernetes.filters.assignment import PromisedClaims, assume, forget
from rota.drivers.kubernetes.filters.facts import NO_NEEDS
from rota.drivers.kubernetes.filters.world import FilterState
from rota.drivers.kubernetes.gangs.headroom import Headroom
from rota.drivers.kubernetes.objects.pods import Pod


class PodPlaces:
    """Bound and planned pods by node."""

    def __init__(self, headroom: Headroom, world: FilterState) -> None:
        self._headroom = headroom
        self.world = world
        self._promised: dict[str, PromisedClaims] = {}
        """Claims of planned pods that were promised something."""

    def see(self, pod: Pod) -> None:
        """Record a pod where its object says that it is."""
        if pod.holds and pod.node is not None:
            self._headroom.put(pod.uid, pod.node)
            self.world.put(pod.facts, pod.node)
        else:
            self.drop(pod.uid)

    def plan(self, pod: Pod, node: str) -> None:
        """Record a pod that will be bound to a node, and reserve there what it needs."""
        self._headroom.put(pod.uid, node)
        if pod.wants.needs is NO_NEEDS:
            self.world.put(pod.facts, node)
        else:
            self._forget(pod.uid)
            self._promised[pod.uid] = assume(pod.facts, node, self.world)

    def drop(self, uid: str) -> None:
        """Forget a pod that is on no node."""
        self._headroom.put(uid, None)
        self.world.take(uid)
        self._forget(uid)

    def _forget(self, uid: str) -> None:
        promised = self._promised.pop(uid, None)
        if promised is not None:
            forget(promised, self.world)
