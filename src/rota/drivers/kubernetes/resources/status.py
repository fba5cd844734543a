"""The status of Queue, Topology and SchedulingPolicy objects: what they have, and whether they are used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from rota.core.errors import Unavailable
from rota.core.model.cluster import Node
from rota.drivers.kubernetes.api.client import Api, ApiRefused, MissingRight
from rota.drivers.kubernetes.resources.reading import (
    QueueSpec,
    ResourceKey,
    TopologySpec,
    key_of_resource,
    spec_of_resource,
)
from rota.drivers.kubernetes.resources.types import API

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
EVERY_S = 2.0
PLURALS = {"Queue": "queues", "Topology": "topologies", "SchedulingPolicy": "schedulingpolicies"}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueUse:
    """What a Queue has now: devices, and numbers of jobs."""

    guaranteed: int = 0
    used: int = 0
    borrowed: int = 0
    lent: int = 0
    waiting: int = 0
    running: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenResources:
    """The objects, why some are not used, and the cluster as it is now."""

    values: Sequence[Json]
    refused: Mapping[ResourceKey, str]
    uses: Mapping[str, QueueUse]
    nodes: Sequence[Node]


class StatusWriter:
    """Writes what changed, from time to time."""

    def __init__(self, api: Api, see: Callable[[], SeenResources]) -> None:
        self._api = api
        self._see = see

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            try:
                await self.round()
            except Unavailable as error:
                log.warning("the status of objects could not be written", extra={"why": str(error)})
            except MissingRight as error:
                log.warning("the status of objects is not written", extra={"why": str(error)})
                return
            await asyncio.sleep(EVERY_S)

    async def round(self) -> None:
        """Write the status of each object whose status differs."""
        seen = self._see()
        for value in seen.values:
            wanted = _status(value, seen)
            if _without_times(value.get("status") or {}) == _without_times(wanted):
                continue
            try:
                await self._api.patch(f"{path_of(value)}/status", {"status": wanted})
            except ApiRefused as error:
                if error.status not in (404, 409, 422):
                    raise
            value["status"] = wanted  # until the watch reports it


def path_of(value: Json) -> str:
    """Return the path of an object."""
    key = key_of_resource(value)
    where = f"/namespaces/{key.namespace}" if key.namespace else ""
    return f"{API}{where}/{PLURALS[key.kind]}/{key.name}"


def _status(value: Json, seen: SeenResources) -> Json:
    key = key_of_resource(value)
    refused = seen.refused.get(key)
    status: Json = {"conditions": [_condition(value, refused)]}
    if refused is not None:
        return status
    spec = spec_of_resource(value)
    match spec:
        case QueueSpec():
            return {**asdict(seen.uses.get(key.name, QueueUse())), **status}
        case TopologySpec():
            labels = [level.node_label for level in spec.levels]
            places = [{"nodeLabel": label, "places": _places(label, seen.nodes)} for label in labels]
            return {"nodes": len(seen.nodes), "levels": places, **status}
    return {"nodes": len(seen.nodes), **status}


def _places(label: str, nodes: Sequence[Node]) -> int:
    return len({dict(node.labels).get(label) for node in nodes} - {None})


def _condition(value: Json, refused: str | None) -> Json:
    said = {"type": "Accepted", "status": "True", "reason": "InUse", "message": "it is in use"}
    if refused is not None:
        said |= {"status": "False", "reason": "Refused", "message": refused}
    for each in (value.get("status") or {}).get("conditions") or ():
        if {name: each.get(name) for name in said} == said and each.get("lastTransitionTime"):
            return dict(each)
    return {**said, "lastTransitionTime": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")}


def _without_times(status: Json) -> Json:
    conditions = [
        {name: text for name, text in each.items() if name != "lastTransitionTime"}
        for each in status.get("conditions") or ()
    ]
    return {**status, "conditions": conditions}
