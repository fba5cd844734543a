"""Node objects as events for the engine: added, removed, lost, cordoned, changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rota.core.messages.events import (
    Event,
    NodeAdded,
    NodeBack,
    NodeDrained,
    NodeLost,
    NodeRemoved,
    NodeUndrained,
)
from rota.core.model.cluster import Node
from rota.core.model.job import NodeId
from rota.core.model.labels import SUSPECT
from rota.core.state.state import State
from rota.drivers.kubernetes.filters.flapping_nodes import FlappingNodes
from rota.drivers.kubernetes.filters.world import FilterState
from rota.drivers.kubernetes.gangs.headroom import Headroom
from rota.drivers.kubernetes.gangs.occupancy import Occupancy
from rota.drivers.kubernetes.objects.nodes import NodeSeen, planned_node
from rota.drivers.kubernetes.objects.reading import name_of, read_node
from rota.drivers.kubernetes.settings import ClusterSettings

Json = dict[str, Any]


class NodeCache:
    """The known form of each node, and the form last reported to the engine."""

    def __init__(
        self, settings: ClusterSettings, occupancy: Occupancy, headroom: Headroom, world: FilterState | None = None
    ) -> None:
        self._settings = settings
        self._world = FilterState() if world is None else world
        self._headroom = headroom
        self._occupancy = occupancy
        planned = settings.planned()
        self._planned: dict[str, Node] = {} if planned is None else {str(node.id): node for node in planned.nodes}
        self._seen: dict[str, NodeSeen] = {name: planned_node(None, node) for name, node in self._planned.items()}
        self._reported: dict[str, NodeSeen] = {}
        self._stale: dict[str, None] = {}
        self._flapping = FlappingNodes()
        self.lost_since_s: dict[str, float] = {}
        """Unreachable nodes, with the time since when."""

    @property
    def nodes(self) -> list[Node]:
        """All nodes in the order of discovery."""
        return [seen.node for seen in self._seen.values()]

    def is_lost(self, name: str) -> bool:
        """Whether a node is unreachable or deleted."""
        seen = self._seen.get(name)
        return seen is None or not seen.ready

    def unhealthy(self, name: str) -> str:
        """The condition of a node that takes it out of use, in words; empty if there is none."""
        seen = self._seen.get(name)
        return "" if seen is None else seen.unhealthy

    def is_suspect(self, name: str) -> bool:
        """Whether a node object has the taint of a suspect."""
        seen = self._seen.get(name)
        facts = None if seen is None else seen.facts
        return facts is not None and any(taint[:2] == SUSPECT for taint in facts.taints)

    def doubts(self) -> dict[str, tuple[bool, str]]:
        """The nodes that have the taint of a suspect, or the condition: whether they have the taint, and why."""
        known = {name: (self.is_suspect(name), seen.doubt) for name, seen in self._seen.items()}
        return {name: each for name, each in known.items() if any(each)}

    def see(self, value: Json, now_s: float) -> None:
        """Record the present form of a node object."""
        name, seen = name_of(value), read_node(value, self._settings)
        if seen is None:
            return
        if seen.facts is not None:
            self._world.put_node(seen.facts)
        if self._planned:
            if name not in self._planned:
                return
            seen = planned_node(seen, self._planned[name])
        self._put(name, self._flapping.steady(name, seen, now_s), now_s)

    def gone(self, name: str, now_s: float) -> None:
        """Record the deletion of a node object."""
        self._world.drop_node(name)
        self._flapping.forget(name)
        if name in self._planned:
            self._put(name, planned_node(None, self._planned[name]), now_s)
        elif name in self._seen:
            del self._seen[name]
            self._stale[name] = None
            self.lost_since_s.setdefault(name, now_s)

    def replace(self, values: list[Json], now_s: float) -> None:
        """Replace the cache by a full list of nodes."""
        names = {name_of(value) for value in values}
        for name in [name for name in self._seen if name not in names]:
            self.gone(name, now_s)
        for value in values:
            self.see(value, now_s)

    def release(self, now_s: float) -> None:
        """Take nodes into use again whose conditions came and went, and that have been well since."""
        for name, seen in self._flapping.released(now_s).items():
            self._put(name, seen, now_s)

    def begin(self) -> None:
        """Mark all nodes as reported to the engine and up."""
        self._reported = {
            name: NodeSeen(node=seen.node, ready=True, cordoned=False) for name, seen in self._seen.items()
        }
        self._stale = dict.fromkeys(self._seen)

    def news(self, state: State) -> list[Event]:
        """The events due for the engine; those it can't take yet are kept for later."""
        events: list[Event] = []
        later: dict[str, None] = {}
        for name in self._stale:
            if not self._report(name, state, events.append):
                later[name] = None
        self._stale = later
        return events

    def _put(self, name: str, seen: NodeSeen, now_s: float) -> None:
        if seen.ready:
            self.lost_since_s.pop(name, None)
        else:
            self.lost_since_s.setdefault(name, now_s)
        self._headroom.limit(name, seen.pods)
        if self._seen.get(name) != seen:
            self._seen[name] = seen
            self._stale[name] = None

    def _report(self, name: str, state: State, emit: Callable[[Event], None]) -> bool:
        """Emit a node's events; return False if its change must wait until it is idle."""
        seen, reported = self._seen.get(name), self._reported.get(name)
        node_id = NodeId(name)
        if seen is None:
            if reported is not None:
                emit(NodeRemoved(node_id))
                del self._reported[name]
            return True
        if reported is None or reported.node != seen.node:
            index = state.inventory.by_name.get(node_id)
            known = None if index is None else state.inventory.nodes[index].node
            if (
                known is not None
                and index is not None
                and state.is_in_use(index)
                and not known.is_same_hardware(seen.node)
            ):
                return False
            if reported is not None:
                emit(NodeRemoved(node_id))
            emit(NodeAdded(seen.node))
            was = index is not None and state.is_in_use(index) and reported is not None
            reported = (
                reported if was and reported is not None else NodeSeen(node=seen.node, ready=True, cordoned=False)
            )
            if not was:
                self._occupancy.forget(name)
        closed = seen.cordoned or self._is_shared(name) or self._headroom.is_full(name)
        if reported.ready != seen.ready:
            emit(NodeBack(node_id) if seen.ready else NodeLost(node_id))
        if reported.cordoned != closed:
            emit(NodeDrained(node_id) if closed else NodeUndrained(node_id))
        self._reported[name] = NodeSeen(node=seen.node, ready=seen.ready, cordoned=closed)
        return True

    def _is_shared(self, name: str) -> bool:
        """Whether other schedulers hold devices of a cell node, which closes the whole node."""
        return bool(self._planned) and self._occupancy.devices(name) > 0

    def excuse_lost(self, now_s: float) -> None:
        """Count the time of lost nodes from now: nothing could be heard of them until now."""
        self.lost_since_s = dict.fromkeys(self.lost_since_s, now_s)

    def look_again(self, nodes: set[str]) -> None:
        """Mark nodes for re-evaluation after their occupancy changed."""
        for name in nodes:
            if name in self._seen:
                self._stale[name] = None
