"""Doubts about nodes, written onto node objects: the condition RotaSuspect and a taint that keeps pods away.

The taint is removed by an administrator, or by what repairs nodes: that declares a node healthy.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.labels import SUSPECT
from rota.drivers.kubernetes.api.client import MERGE, STRATEGIC, Api

log = logging.getLogger("rota.live")
Json = dict[str, Any]
CONDITION = "RotaSuspect"
LOOK_S = 2.0
LATE_S = 5.0
"""A taint that was written may be seen so much later."""
_TAINT = {"key": SUSPECT.key, "value": SUSPECT.value, "effect": "NoSchedule"}


class NodeMarks:
    """The nodes that are in doubt, as their objects say it."""

    def __init__(self, api: Api, is_marked: Callable[[str], bool], cleared: Callable[[str], None]) -> None:
        """`is_marked` tells whether a node object has the taint; `cleared` is told of nodes that lost it."""
        self._api = api
        self._is_marked = is_marked
        self._cleared = cleared
        self._wanted: dict[str, str] = {}
        """Nodes to be marked, with the reason."""
        self._marked: dict[str, str] = {}
        self._written_s: dict[str, float] = {}
        self._refused: set[str] = set()

    def suspect(self, node: str, text: str) -> None:
        """Have a node marked."""
        if node not in self._marked:
            self._wanted[node] = text

    def why(self, node: str) -> str:
        """Return why a node is in doubt; empty if it is not."""
        return self._marked.get(node, "")

    async def run(self) -> None:
        """Write marks, and look for those that were removed, until cancelled."""
        while True:
            for node, text in list(self._wanted.items()):
                if await self._try(node, self._mark(node, text)):
                    self._marked[node] = self._wanted.pop(node)
                    self._written_s[node] = time.monotonic()
            await asyncio.sleep(LOOK_S)
            since_s = time.monotonic() - LATE_S
            old = [node for node, written_s in self._written_s.items() if written_s < since_s]
            for node in [node for node in old if not self._is_marked(node)]:
                if await self._try(node, self._write_condition(node, None)):
                    del self._marked[node]
                    del self._written_s[node]
                    self._cleared(node)

    async def _try(self, node: str, work: Any) -> bool:
        """Do some work on a node object; return whether it was done. What is refused is said once."""
        try:
            await work
        except RotaError as error:
            if node not in self._refused:
                log.warning("a node could not be marked", extra={"node": node, "why": str(error)})
            self._refused.add(node)
            return False
        self._refused.discard(node)
        return True

    async def _mark(self, node: str, text: str) -> None:
        log.warning("node-health", extra={"node": node, "state": "suspect", "why": text})
        await self._write_condition(node, text)
        value = await self._api.get(f"/api/v1/nodes/{node}")
        taints = [each for each in value["spec"].get("taints") or () if each.get("key") != SUSPECT.key]
        version = value["metadata"]["resourceVersion"]  # the list of taints is replaced as a whole
        body = {"metadata": {"resourceVersion": version}, "spec": {"taints": [*taints, _TAINT]}}
        await self._api.patch(f"/api/v1/nodes/{node}", body, MERGE)

    async def _write_condition(self, node: str, text: str | None) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": CONDITION,
            "status": "False" if text is None else "True",
            "reason": "Cleared" if text is None else "JobsFail",
            "message": text or "the taint was removed",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        await self._api.patch(f"/api/v1/nodes/{node}/status", {"status": {"conditions": [condition]}}, STRATEGIC)
