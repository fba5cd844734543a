"""The health of all nodes, kept over restarts; a node that must not take jobs is drained, and undrained when it may.

Only drains of its own are undone: what an administrator drained stays drained. Suspects take only jobs that tolerate
them; nodes that came back a short time ago, and lemons, are unproven. A spare stands in for a node that is drained.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rota.core.messages.events import Event, NodeDrained, NodeRated, NodeUndrained
from rota.core.model.cluster import NodeTrust
from rota.core.model.job import NodeId
from rota.core.state.state import State
from rota.health.node_state import HealthSign, NodeHealth, NodeHealthState, Severity, decode_health
from rota.health.spares import SpareNodes
from rota.store.run_folder import read_json, write_json

log = logging.getLogger("rota.live")
FILE = "node-health.json"
_OUT = (NodeHealthState.BAD, NodeHealthState.IN_REPAIR)
Alert = Callable[[NodeId, NodeHealth, NodeHealth], None]
"""Is told of a node whose state changed: the health before, and after."""


class NodeWatch:
    """One health for each node, and the drains that follow from it."""

    def __init__(
        self,
        state: State,
        home: Path,
        tell: Callable[[Event], None],
        alert: Alert | None = None,
        *,
        proven_after_s: float = 0.0,
        spares: int = 0,
    ) -> None:
        """A node that came back is proven after `proven_after_s`; so many nodes are `spares`."""
        self._state = state
        self._path = home / FILE
        self._tell = tell
        self._alert = alert
        self._drained: set[NodeId] = set()
        """Nodes that were drained for their health, or as spares."""
        self._health: dict[NodeId, NodeHealth] = {}
        self._proven_after_s = proven_after_s
        self._rated: dict[NodeId, NodeTrust] = {}
        self.lemons: dict[str, tuple[str, ...]] = {}
        """Nodes whose counters stand out, with the counters."""
        self.transitions: dict[str, int] = {}
        """How often a node came into each state since the start."""
        kept = self._load()
        names = [account.node.id for account in state.inventory.nodes]
        idle = [NodeId(name) for name in kept.get("spares", ())]
        own = self._drained if "spares_wanted" in kept else self._drained.union(idle)
        self._drained = {name for name in names if name in own and self._is_drained(name)}
        down = [name for name, health in self._health.items() if health.state in _OUT]
        self._spares = SpareNodes(names, spares, idle if kept.get("spares_wanted") == spares else None, down)
        for name in names:  # what the engine does not know from before
            self._settle(name)
            if name in self._health:
                self._rate(name, state.now_s)
        if kept or spares:
            self._save()

    def health(self, node_id: NodeId) -> NodeHealth:
        """Return the health of a node."""
        return self._health.get(node_id, NodeHealth())

    def take(self, node_id: NodeId, sign: HealthSign) -> None:
        """Take in a sign; drain or undrain the node if its state asks for that."""
        before = self.health(node_id)
        self._set(node_id, before, before.after(sign, is_empty=self._is_empty(node_id)), sign.text)

    def look(self, now_s: float) -> None:
        """Notice nodes whose last job has left."""
        for node_id, health in list(self._health.items()):
            if health.state is NodeHealthState.DRAINING and self._is_empty(node_id):
                self._set(node_id, health, health.emptied(now_s), "")
        for node_id in {*self._health, *map(NodeId, self.lemons)}:
            self._rate(node_id, now_s)

    def is_spare(self, node_id: NodeId) -> bool:
        """Return whether a node takes no jobs until another is lost."""
        return node_id in self._spares.idle

    def repair(self, node_id: NodeId, now_s: float) -> None:
        """Note that a node's repair has begun; its tests decide when it is back."""
        self._set(node_id, self.health(node_id), self.health(node_id).repairing(now_s), "")

    def clear(self, node_id: NodeId, now_s: float) -> None:
        """Declare a node healthy, as an administrator may."""
        self._spares.use(node_id)
        self._set(node_id, self.health(node_id), self.health(node_id).cleared(now_s), "")
        self._settle(node_id)
        if node_id in self._drained and not self._is_drained(node_id):  # undrained by hand, and now a spare
            self._tell(NodeDrained(node_id))
        self._save()

    def _set(self, node_id: NodeId, before: NodeHealth, after: NodeHealth, text: str) -> None:
        self._health[node_id] = after
        if after.state is before.state:
            if after.bad != before.bad:
                self._save()
            return
        state = after.state.value
        self.transitions[state] = self.transitions.get(state, 0) + 1
        log.warning("node-health", extra={"node": node_id, "state": state, "why": text or None})
        self._drain(node_id, before, after)
        self._rate(node_id, max(after.since_s, self._state.now_s))
        self._save()
        if self._alert is not None:
            self._alert(node_id, before, after)

    def _drain(self, node_id: NodeId, before: NodeHealth, after: NodeHealth) -> None:
        """Drain a node that must not take jobs; undrain one that may. A spare stands in once its jobs have left.

        Before that, others would take the spare, and not the job that needs it.
        """
        if after.state.takes_jobs and not before.state.takes_jobs:
            self._spares.repair(node_id)
        self._settle(node_id)
        if after.state in _OUT:
            spare = self._spares.lose(node_id)
            if spare is not None:
                log.warning("spare-node", extra={"node": spare, "why": f"takes jobs in place of {node_id}"})
                self._settle(spare)

    def _settle(self, node_id: NodeId) -> None:
        """Drain a node that must not take jobs, or is a spare; undrain it otherwise, unless others drained it."""
        if self.is_spare(node_id) or not self.health(node_id).state.takes_jobs:
            if node_id not in self._drained and not self._is_drained(node_id):
                self._drained.add(node_id)
                self._tell(NodeDrained(node_id))
        elif node_id in self._drained:  # the engine may not have taken in yet that it is drained
            self._drained.discard(node_id)
            self._tell(NodeUndrained(node_id))

    def _rate(self, node_id: NodeId, now_s: float) -> None:
        """Report how far a node is trusted, if that has changed."""
        health = self.health(node_id)
        if not health.state.takes_jobs:
            return
        trust = NodeTrust.PROVEN
        if health.state is NodeHealthState.SUSPECT:
            trust = NodeTrust.SUSPECT
        elif str(node_id) in self.lemons or (health.since_s and now_s < health.since_s + self._proven_after_s):
            trust = NodeTrust.UNPROVEN
        if self._rated.get(node_id, NodeTrust.PROVEN) is not trust:
            self._rated[node_id] = trust
            self._tell(NodeRated(node_id, trust))

    def _is_drained(self, node_id: NodeId) -> bool:
        return self._state.inventory.nodes[self._state.node(node_id)].drained

    def _is_empty(self, node_id: NodeId) -> bool:
        index = self._state.node(node_id)
        return not any(
            slot.node == index for live in list(self._state.jobs.values()) for slot in live.held or live.placement or ()
        )

    def encode(self) -> dict[str, Any]:
        """Return all nodes with their health as JSON values."""
        return {str(node_id): health.encode() for node_id, health in self._health.items()}

    def _save(self) -> None:
        try:
            write_json(
                self._path,
                {
                    "nodes": self.encode(),
                    "drained": sorted(self._drained),
                    "spares": self._spares.idle,
                    "spares_wanted": self._spares.wanted,
                },
            )
        except OSError as error:
            log.warning("the health of nodes could not be kept", extra={"why": str(error)})

    def _load(self) -> dict[str, Any]:
        try:
            kept = read_json(self._path) or {}
            known = {str(account.node.id) for account in self._state.inventory.nodes}
            self._health = {
                NodeId(name): decode_health(value) for name, value in kept.get("nodes", {}).items() if name in known
            }
            self._drained = {NodeId(name) for name in kept.get("drained", ()) if name in known}
            return kept
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("the health of nodes could not be read; all count as healthy", extra={"why": str(error)})
            return {}


def passed(source: str, at_s: float) -> HealthSign:
    """Return the sign of a check that found nothing."""
    return HealthSign(at_s=at_s, source=source, severity=Severity.GOOD)
