"""Writes to the cluster: binds pods with their devices, and tells pods to go. Tries again while the server is busy."""

from __future__ import annotations

import logging
from enum import Enum
from typing import Any

from rota.drivers.kubernetes.client import MERGE, Api, Refused
from rota.drivers.kubernetes.pods import Owner, Pod

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
_GONE, _CONFLICT, _METHOD, _TOO_MANY = 404, 409, 405, 429
EVICTION_S = 300.0
"""How long an eviction may be put off by disruption budgets before the pod is deleted all the same."""


class Bound(Enum):
    """What came of a bind."""

    YES = "yes"
    POD_GONE = "pod-gone"
    ELSEWHERE = "elsewhere"


class Binder:
    """Binds and evictions through one session."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._evictions = ["policy/v1", "policy/v1beta1"]

    async def bind(self, pod: Pod, node: str, annotations: dict[str, str], *, within_s: float) -> Bound:
        """Put a pod onto a node, its devices with it, in one write."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid, "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._api.patiently("POST", f"{pod.path}/binding", body, within_s=within_s)
        except Refused as error:
            if error.status == _GONE:
                return Bound.POD_GONE
            if error.status == _CONFLICT:
                return await self._who_has(pod, node)
            raise
        return Bound.YES

    async def _who_has(self, pod: Pod, node: str) -> Bound:
        """A bind was refused because the pod has a node, or goes, or because an earlier try of ours succeeded."""
        try:
            now = await self._api.patiently("GET", pod.path, None, within_s=10.0)
        except Refused as error:
            if error.status == _GONE:
                return Bound.POD_GONE
            raise
        if now["metadata"]["uid"] != pod.uid or now["metadata"].get("deletionTimestamp"):
            return Bound.POD_GONE
        has = now["spec"].get("nodeName")
        if has == node:
            return Bound.YES
        return Bound.ELSEWHERE if has else Bound.POD_GONE

    async def evict(self, pod: Pod) -> None:
        """Tell a pod to go, with its own grace period; disruption budgets are heard for a while."""
        while self._evictions:
            body = {
                "apiVersion": self._evictions[0],
                "kind": "Eviction",
                "metadata": {"name": pod.name, "namespace": pod.namespace},
                "deleteOptions": {"preconditions": {"uid": pod.uid}},
            }
            try:
                await self._api.patiently("POST", f"{pod.path}/eviction", body, within_s=EVICTION_S)
            except Refused as error:
                if error.status in (_GONE, _CONFLICT) and "could not find the requested resource" not in str(error):
                    return
                if error.status == _TOO_MANY:
                    break
                if error.status not in (400, _GONE, _METHOD):
                    raise
                self._evictions = self._evictions[1:]  # an older or newer server that knows the other version only
            else:
                return
        await self.delete(pod)

    async def delete(self, pod: Pod, *, at_once: bool = False) -> None:
        """Delete a pod; `at_once` when nobody is left who could end it gracefully."""
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}}
        if at_once:
            body["gracePeriodSeconds"] = 0
        await self._quietly("DELETE", pod.path, body)

    async def delete_owner(self, namespace: str, owner: Owner) -> None:
        """Delete what would make the pods anew; only Jobs are ours to delete."""
        if owner.kind != "Job" or not owner.api_version.startswith("batch/"):
            return
        path = f"/apis/{owner.api_version}/namespaces/{namespace}/jobs/{owner.name}"
        await self._quietly("DELETE", path, {"propagationPolicy": "Background", "preconditions": {"uid": owner.uid}})

    async def annotate(self, path: str, annotations: dict[str, str]) -> None:
        """Write annotations onto something."""
        await self._quietly("PATCH", path, {"metadata": {"annotations": annotations}}, kind=MERGE)

    async def _quietly(self, method: str, path: str, body: Json, kind: str = "application/json") -> None:
        """A request about something that may be gone by now."""
        try:
            await self._api.patiently(method, path, body, within_s=EVICTION_S, kind=kind)
        except Refused as error:
            if error.status not in (_GONE, _CONFLICT):
                raise
