"""Spare nodes: they take no jobs until others are lost, so that a gang goes on without a new wait for devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.core.errors import RotaError
from rota.core.model.job import NodeId


class SpareNodes:
    """Which nodes are spares at present. A repaired node becomes a spare where one stands in for it."""

    def __init__(
        self,
        nodes: Sequence[NodeId],
        spares: int,
        idle: Iterable[NodeId] | None = None,
        down: Iterable[NodeId] = (),
    ) -> None:
        """The last nodes are spares at first; `idle` are those that were, where that is known, and `down` is lost."""
        if spares >= len(nodes) and spares:
            raise RotaError(f"spares is {spares}; the cluster has {len(nodes)} nodes, keep some")
        self.wanted = spares
        self._is_down = {each for each in down if each in nodes}
        chosen = nodes[len(nodes) - spares :] if idle is None else [each for each in idle if each in nodes]
        self.idle = [each for each in chosen if each not in self._is_down]

    def lose(self, node_id: NodeId) -> NodeId | None:
        """Return the spare that takes jobs instead of a node that is lost; None if there is none."""
        if node_id in self._is_down:
            return None
        self._is_down.add(node_id)
        if node_id in self.idle:
            self.idle.remove(node_id)
            return None
        return self.idle.pop(0) if self.idle else None

    def repair(self, node_id: NodeId) -> bool:
        """Return whether a node that is back becomes a spare, for some are missing."""
        self._is_down.discard(node_id)
        if len(self.idle) + len(self._is_down) < self.wanted and node_id not in self.idle:
            self.idle.append(node_id)
            return True
        return False

    def use(self, node_id: NodeId) -> None:
        """Note that a node, if it is a spare, takes jobs from now on."""
        if node_id in self.idle:
            self.idle.remove(node_id)
