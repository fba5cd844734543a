"""Remaining pod capacity per node: a kubelet limits the number of pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

REOPEN_S = 3.0
"""How long a node that was full for a gang stays closed if no pod leaves it."""


class Headroom:
    """Bound and planned pods per node, and the nodes that are closed because they are full."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}
        self._node_by_pod: dict[str, str] = {}
        self._pods: Counter[str] = Counter()
        self._closed_s: dict[str, float] = {}
        """Closed nodes, with the time of closing."""
        self._turned: set[str] = set()

    def limit(self, node: str, pods: int | None) -> None:
        """Set the pod limit of a node."""
        if self._limits.get(node) == pods:
            return
        if pods is None:
            del self._limits[node]
        else:
            self._limits[node] = pods
        self._turned.add(node)

    def put(self, uid: str, node: str | None) -> None:
        """Record the node of a bound or planned pod; None removes it."""
        before = self._node_by_pod.get(uid)
        if before == node:
            return
        if before is not None:
            was_full = self.is_full(before)
            del self._node_by_pod[uid]
            self._pods[before] -= 1
            self._closed_s.pop(before, None)
            self._note(before, was_full)
        if node is not None:
            was_full = self.is_full(node)
            self._node_by_pod[uid] = node
            self._pods[node] += 1
            self._note(node, was_full)

    def _note(self, node: str, was_full: bool) -> None:
        if self.is_full(node) != was_full:
            self._turned.add(node)

    def room(self, node: str) -> int | None:
        """The remaining pod capacity; None if it is unknown."""
        limit = self._limits.get(node)
        return None if limit is None else limit - self._pods[node]

    def is_full(self, node: str) -> bool:
        """Whether no more pods fit."""
        room = self.room(node)
        return node in self._closed_s or (room is not None and room <= 0)

    def crowded(self, nodes: Iterable[str], now_s: float) -> str | None:
        """Close and return the first node that can't take all of these pods (one entry per pod)."""
        for node, pods in Counter(nodes).items():
            room = self.room(node)
            if room is not None and pods > room:
                self._closed_s[node] = now_s
                self._turned.add(node)
                return node
        return None

    def tick(self, now_s: float) -> None:
        """Reopen nodes whose closing time has passed."""
        for node in [node for node, since_s in self._closed_s.items() if now_s >= since_s + REOPEN_S]:
            del self._closed_s[node]
            self._turned.add(node)

    def take_turned(self) -> set[str]:
        """Take the nodes that may have become full or free."""
        turned, self._turned = self._turned, set()
        return turned
