"""Nodes whose conditions come and go: they stay out of use until they have been well for a while."""

from __future__ import annotations

from dataclasses import replace

from rota.drivers.kubernetes.objects.nodes import NodeSeen

TIMES = 3
"""A node that was unhealthy so often within `WITHIN_S` is kept out of use."""
WITHIN_S = 3600.0
WELL_S = 600.0
"""How long such a node has to be well before it takes jobs again."""


class FlappingNodes:
    """When nodes became unhealthy, and which of them have to prove themselves."""

    def __init__(self) -> None:
        self._began_s: dict[str, list[float]] = {}
        self._ill: set[str] = set()
        self._held: dict[str, tuple[float, NodeSeen]] = {}
        """Until when a node is kept out of use, and what its object says."""

    def steady(self, name: str, seen: NodeSeen, now_s: float) -> NodeSeen:
        """Take in what a node's object says; return what counts."""
        began_s = [at_s for at_s in self._began_s.get(name, ()) if at_s > now_s - WITHIN_S]
        if seen.unhealthy:
            if name not in self._ill:
                self._began_s[name] = [*began_s, now_s]
                self._ill.add(name)
            self._held.pop(name, None)
            return seen
        if name in self._ill:
            self._ill.discard(name)
            if len(began_s) >= TIMES:
                self._held[name] = (now_s + WELL_S, seen)
        until_s, _ = self._held.get(name, (now_s, seen))
        if until_s <= now_s:
            self._held.pop(name, None)
            return seen
        self._held[name] = (until_s, seen)
        why = (
            f"its conditions said so {len(began_s)} times within an hour; it has to be well for {WELL_S / 60:g} minutes"
        )
        return replace(seen, cordoned=True, unhealthy=why)

    def released(self, now_s: float) -> dict[str, NodeSeen]:
        """Return nodes that have been well for long enough, and what their objects say."""
        due = {name: seen for name, (until_s, seen) in self._held.items() if until_s <= now_s}
        for name in due:
            del self._held[name]
        return due

    def forget(self, name: str) -> None:
        """Forget a node that was deleted."""
        self._began_s.pop(name, None)
        self._held.pop(name, None)
        self._ill.discard(name)
