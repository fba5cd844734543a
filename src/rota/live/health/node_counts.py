"""What is counted of each node over 28 days, by day, kept over restarts: the counters by which lemons stand out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from rota.health.blame import LemonCounters, lemon_signs, lemons
from rota.health.checkpoint_interval import DAY_S
from rota.store.run_folder import read_json, write_json

log = logging.getLogger("rota.live")
FILE = "node-counts.json"
DAYS = 28
SAVE_S = 30.0
_COUNTERS = tuple(field.name for field in fields(LemonCounters))


class NodeCounts:
    """Counters of nodes in buckets of a day."""

    def __init__(self, home: Path, now_s: Callable[[], float]) -> None:
        self._path = home / FILE
        self._now_s = now_s
        self._by_day: dict[int, dict[str, dict[str, int]]] = {}
        self._saved_s = 0.0
        self._load()

    def add(self, node: str, *counters: str) -> None:
        """Count each of these once for a node."""
        today = self._by_day.setdefault(int(self._now_s() / DAY_S), {}).setdefault(node, {})
        for counter in counters:
            today[counter] = today.get(counter, 0) + 1
        if self._now_s() - self._saved_s >= SAVE_S:
            self.save()

    def counters(self) -> dict[str, LemonCounters]:
        """Return the sums of the last 28 days."""
        first = int(self._now_s() / DAY_S) - DAYS + 1
        self._by_day = {day: nodes for day, nodes in self._by_day.items() if day >= first}
        sums: dict[str, dict[str, int]] = {}
        for nodes in self._by_day.values():
            for node, counts in nodes.items():
                of_node = sums.setdefault(node, {})
                for counter, count in counts.items():
                    of_node[counter] = of_node.get(counter, 0) + count
        return {node: LemonCounters(**counts) for node, counts in sums.items()}

    def lemons(self, nodes: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        """Return those of these nodes whose counters stand out from the others', with the counters."""
        known = self.counters()
        counted = {node: known.get(node, LemonCounters()) for node in nodes}
        signs = lemon_signs(counted)
        return {node: signs[node] for node in lemons(counted)}

    def save(self) -> None:
        """Write the counters down."""
        self._saved_s = self._now_s()
        try:
            write_json(self._path, {"days": {str(day): nodes for day, nodes in self._by_day.items()}})
        except OSError as error:
            log.warning("the counters of nodes could not be kept", extra={"why": str(error)})

    def _load(self) -> None:
        try:
            for day, nodes in (read_json(self._path) or {}).get("days", {}).items():
                self._by_day[int(day)] = {
                    str(node): {name: int(counts[name]) for name in _COUNTERS if name in counts}
                    for node, counts in nodes.items()
                }
        except (OSError, ValueError, TypeError, AttributeError) as error:
            log.warning("the counters of nodes could not be read; they begin at 0", extra={"why": str(error)})
            self._by_day = {}
