"""Resources per node held by pods without a slot: those of other schedulers or of earlier attempts."""

from __future__ import annotations

from collections.abc import Container

from rota.core.messages.events import NodeOccupied
from rota.core.model.job import WHOLE, NodeId
from rota.drivers.kubernetes.objects.pods import Pod

Amounts = tuple[int, int, int]
_NOTHING: Amounts = (0, 0, 0)


class Occupancy:
    """Sums per node, and which of them are not reported to the engine yet."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[str, Amounts]] = {}
        self._by_node: dict[str, Amounts] = {}
        self._reported: dict[str, Amounts] = {}
        self._stale: dict[str, None] = {}

    def count(self, pod: Pod) -> None:
        """Count a pod without a slot in its present form."""
        if not pod.holds or pod.node is None:
            self.drop(pod.uid)
            return
        wants = pod.wants
        entry = (pod.node, (-(-wants.device_milli // WHOLE), wants.cpu_milli, wants.memory_bytes))
        if self._counted.get(pod.uid) != entry:
            self.drop(pod.uid)
            self._counted[pod.uid] = entry
            self._shift(*entry, 1)

    def count_growth(self, pod: Pod, cpu_milli: int, memory_bytes: int) -> None:
        """Count what a pod with a slot has been given beyond its slot, by a resize in place."""
        wants = pod.wants
        grown = (0, max(wants.cpu_milli - cpu_milli, 0), max(wants.memory_bytes - memory_bytes, 0))
        if not pod.holds or pod.node is None or grown == _NOTHING:
            self.drop(pod.uid)
        elif self._counted.get(pod.uid) != (pod.node, grown):
            self.drop(pod.uid)
            self._counted[pod.uid] = (pod.node, grown)
            self._shift(pod.node, grown, 1)

    def drop(self, uid: str) -> None:
        """Stop counting a pod: it is gone or has a slot."""
        known = self._counted.pop(uid, None)
        if known is not None:
            self._shift(*known, -1)

    def forget(self, node: str) -> None:
        """Report a node again: the engine's account of it was reset."""
        self._reported.pop(node, None)
        self._stale[node] = None

    def repeat(self, nodes: set[str]) -> None:
        """Report these nodes again after slots on them were released."""
        for node in sorted(nodes):
            if self._by_node.get(node, _NOTHING)[0]:
                self.forget(node)

    def devices(self, node: str) -> int:
        """Devices of a node held by other pods."""
        return self._by_node.get(node, _NOTHING)[0]

    def news(self, known: Container[str]) -> list[NodeOccupied]:
        """The occupancy events due for nodes that the engine knows."""
        found = []
        for node in [name for name in self._stale if name in known]:
            del self._stale[node]
            held = self._by_node.get(node, _NOTHING)
            if self._reported.get(node, _NOTHING) != held:
                self._reported[node] = held
                found.append(NodeOccupied(NodeId(node), *held))
        return found

    def restated(self, node: str) -> NodeOccupied:
        """What is held of a node, whether the engine knows it or not."""
        self._stale.pop(node, None)
        held = self._reported[node] = self._by_node.get(node, _NOTHING)
        return NodeOccupied(NodeId(node), *held)

    def _shift(self, node: str, held: Amounts, sign: int) -> None:
        before = self._by_node.get(node, _NOTHING)
        self._by_node[node] = (before[0] + sign * held[0], before[1] + sign * held[1], before[2] + sign * held[2])
        self._stale[node] = None
