"""Rota as an extender of kube-scheduler: answers its requests about a pod instead of binding at once.

kube-scheduler repeats a request only when something changes in the cluster. A pod with a slot that is not requested
soon is therefore bound without a request.
"""

from __future__ import annotations

from typing import Any

from rota.drivers.kubernetes.driver import KubernetesDriver
from rota.drivers.kubernetes.gangs.gang import Stage

Json = dict[str, Any]


class Extender:
    """The three requests of kube-scheduler's extender protocol."""

    def __init__(self, driver: KubernetesDriver) -> None:
        self._driver = driver

    async def answer(self, verb: str, body: Json) -> Json:
        """Answer a request: `filter`, `preempt` or `bind`."""
        match verb:
            case "filter":
                return self._filter(body)
            case "preempt":
                return {"NodeNameToMetaVictims": {}}  # Rota evicts pods by itself
            case _:
                return {"Error": await self._bind(body)}

    def _filter(self, body: Json) -> Json:
        """Return the node of the pod's slot, or why it has none."""
        names: list[str] = body.get("NodeNames") or []
        items = (body.get("Nodes") or {}).get("items") or []
        names = names or [item["metadata"]["name"] for item in items]
        gang = self._driver.gang_index.gang_of(body["Pod"]["metadata"]["uid"])
        slot = None if gang is None else gang.assigned.get(body["Pod"]["metadata"]["uid"])
        if gang is None or slot is None:
            why = "waits for its gang" if gang is None or gang.stage is Stage.GATHERING else "waits for devices"
            return _chosen([], items, dict.fromkeys(names, gang.refused if gang and gang.refused else why))
        node = str(slot.task.node.id)
        if node not in names:
            return _chosen([], items, dict.fromkeys(names, f"has its devices on node {node}"))
        return _chosen([node], items, {name: f"has its devices on node {node}" for name in names if name != node})

    async def _bind(self, body: Json) -> str:
        """Bind a pod to its slot; return an error message, or an empty one."""
        uid, node = str(body.get("PodUID", "")), str(body.get("Node", ""))
        gang = self._driver.gang_index.gang_of(uid)
        slot = None if gang is None else gang.assigned.get(uid)
        if gang is None or slot is None or str(slot.task.node.id) != node:
            return f"pod {body.get('PodNamespace')}/{body.get('PodName')} has no slot on node {node}"
        await self._driver.bind_now(gang, slot)
        return "" if slot.bound else "the pod could not be bound"


def _chosen(nodes: list[str], items: list[Json], failed: dict[str, str]) -> Json:
    """Return an answer in the form of the request: names, or node objects."""
    answer: Json = {"FailedNodes": failed, "Error": ""}
    if items:
        answer["Nodes"] = {"items": [item for item in items if item["metadata"]["name"] in nodes]}
    else:
        answer["NodeNames"] = nodes
    return answer
