"""Doubts about nodes, written onto node objects: the condition RotaSuspect and a taint that keeps pods away.

The taint is removed by an administrator, or by what repairs nodes: that declares a node healthy.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from rota.core.errors import RotaError, Unavailable
from rota.core.model.labels import SUSPECT
from rota.drivers.kubernetes.api.client import MERGE, STRATEGIC, Api
from rota.drivers.kubernetes.objects.nodes import SUSPECT_CONDITION

log = logging.getLogger("rota.live")
Json = dict[str, Any]
LOOK_S = 2.0
LATE_S = 5.0
"""A taint that was written may be seen so much later."""
_TAINT = {"key": SUSPECT.key, "value": SUSPECT.value, "effect": "NoSchedule"}


class NodeMarks:
    """The nodes that are in doubt, as their objects say it: what a manager has marked, the next one finds there."""

    def __init__(
        self, api: Api, doubts: Callable[[], Mapping[str, tuple[bool, str]]], cleared: Callable[[str], None]
    ) -> None:
        """`doubts` returns nodes with the taint or the condition: whether it is the taint, and what the condition says.

        `cleared` is told of nodes that lost the taint.
        """
        self._api = api
        self._doubts = doubts
        self._cleared = cleared
        self._wanted: dict[str, str] = {}
        """Nodes to be marked, with the reason."""
        self._marked: dict[str, str] = {}
        self._written_s: dict[str, float] = {}
        """When a node was last written to; what is seen of it may be older for a while."""
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
            await self._look(time.monotonic())
            await asyncio.sleep(LOOK_S)

    async def _look(self, now_s: float) -> None:
        """Compare what is known with the objects: taints that others or an earlier manager set, and removed ones."""
        doubts = self._doubts()
        self._written_s = {node: at_s for node, at_s in self._written_s.items() if now_s < at_s + LATE_S}
        for node in {*doubts, *self._marked} - self._written_s.keys() - self._wanted.keys():
            has_taint, text = doubts.get(node, (False, ""))
            if has_taint:
                self._marked.setdefault(node, text or "its taint was set by another program or by hand")
            elif not text or await self._try(node, self._write_condition(node, None)):
                self._marked.pop(node, None)
                self._written_s[node] = now_s
                self._cleared(node)

    async def _try(self, node: str, work: Any) -> bool:
        """Do some work on a node object; return whether it was done. What is refused is said once."""
        try:
            await work
        except (RotaError, Unavailable) as error:  # also where the node has changed since it was read
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
            "type": SUSPECT_CONDITION,
            "status": "False" if text is None else "True",
            "reason": "Cleared" if text is None else "JobsFail",
            "message": text or "the taint was removed",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        await self._api.patch(f"/api/v1/nodes/{node}/status", {"status": {"conditions": [condition]}}, STRATEGIC)
