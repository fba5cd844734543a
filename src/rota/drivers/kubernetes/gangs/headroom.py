"""How many more pods each node takes: a kubelet runs only so many, however small they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

REOPEN_S = 3.0
"""After how long a node that had no room for a gang may be tried again though no pod has left it."""


class Headroom:
    """Pods by node, those that were promised a place there among them; and which nodes are closed because of that."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}
        self._node_by_pod: dict[str, str] = {}
        self._pods: Counter[str] = Counter()
        self._closed_s: dict[str, float] = {}
        """Nodes that had no room for what was to start there: since when."""
        self._turned: set[str] = set()

    def limit(self, node: str, pods: int | None) -> None:
        """A node takes so many pods at most."""
        if self._limits.get(node) == pods:
            return
        if pods is None:
            del self._limits[node]
        else:
            self._limits[node] = pods
        self._turned.add(node)

    def put(self, uid: str, node: str | None) -> None:
        """A pod is, or will be, on a node; None: on none."""
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
        """How many more pods it takes; None where nobody has said."""
        limit = self._limits.get(node)
        return None if limit is None else limit - self._pods[node]

    def is_full(self, node: str) -> bool:
        """Whether nothing more is to be placed there."""
        room = self.room(node)
        return node in self._closed_s or (room is not None and room <= 0)

    def crowded(self, nodes: Iterable[str], now_s: float) -> str | None:
        """The first node without room for all of these, one entry for each pod; it is closed for a while."""
        for node, pods in Counter(nodes).items():
            room = self.room(node)
            if room is not None and pods > room:
                self._closed_s[node] = now_s
                self._turned.add(node)
                return node
        return None

    def tick(self, now_s: float) -> None:
        """Time has passed: nodes that were closed are open again."""
        for node in [node for node, since_s in self._closed_s.items() if now_s >= since_s + REOPEN_S]:
            del self._closed_s[node]
            self._turned.add(node)

    def take_turned(self) -> set[str]:
        """Nodes of which it may have changed whether they are full."""
        turned, self._turned = self._turned, set()
        return turned
