"""Writes to the cluster: binds pods with their devices, and tells pods to go. Tries again while the server is busy."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Any

from rota.drivers.kubernetes.api.client import Api, ApiRefused, Unreachable
from rota.drivers.kubernetes.objects.pods import Pod, PodOwner

Json = dict[str, Any]
_GONE, _CONFLICT, _METHOD, _TOO_MANY = 404, 409, 405, 429
AGAIN_S = 0.2
"""Before something is tried again that was refused for no reason that lasts."""
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
        deadline_s = asyncio.get_running_loop().time() + within_s
        while True:
            try:
                await self._api.patiently("POST", f"{pod.path}/binding", body, within_s=within_s)
            except Unreachable:  # only once the server is back it is known what came of it
                deadline_s = asyncio.get_running_loop().time() + within_s
            except ApiRefused as error:
                if error.status == _GONE:
                    return Bound.POD_GONE
                if error.status != _CONFLICT:
                    raise
                found = await self._who_has(pod, node)
                if found is not None or asyncio.get_running_loop().time() > deadline_s:
                    return found or Bound.POD_GONE
                await asyncio.sleep(AGAIN_S)
            else:
                return Bound.YES

    async def _who_has(self, pod: Pod, node: str) -> Bound | None:
        """Why a bind was refused: the pod has a node, maybe by an earlier try, or goes; None: it can be tried again."""
        now = await self._now(pod)
        if now is None or now["metadata"].get("deletionTimestamp"):
            return Bound.POD_GONE
        has = now["spec"].get("nodeName")
        if has == node:
            return Bound.YES
        return Bound.ELSEWHERE if has else None

    async def _now(self, pod: Pod) -> Json | None:
        """The pod as it is; None if it is gone, or another has its name."""
        try:
            now: Json = await self._api.patiently("GET", pod.path, None, within_s=EVICTION_S)
        except ApiRefused as error:
            if error.status == _GONE:
                return None
            raise
        return now if now["metadata"]["uid"] == pod.uid else None

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
            except ApiRefused as error:
                if error.status == _TOO_MANY:
                    break
                if await self._is_going(pod):
                    return
                if error.status == _CONFLICT:
                    await asyncio.sleep(AGAIN_S)
                elif error.status in (400, _GONE, _METHOD):  # a server that knows the other version only
                    self._evictions = self._evictions[1:]
                else:
                    raise
            else:
                return
        await self.delete(pod)

    async def _is_going(self, pod: Pod) -> bool:
        now = await self._now(pod)
        return now is None or now["metadata"].get("deletionTimestamp") is not None

    async def delete(self, pod: Pod) -> None:
        """Delete a pod, with its own grace period."""
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}}
        while True:
            try:
                await self._api.patiently("DELETE", pod.path, body, within_s=EVICTION_S)
            except ApiRefused as error:
                if error.status not in (_GONE, _CONFLICT):
                    raise
                if not await self._is_going(pod):
                    await asyncio.sleep(AGAIN_S)
                    continue
            return

    async def delete_owner(self, namespace: str, owner: PodOwner) -> None:
        """Delete what would make the pods anew; only Jobs are ours to delete."""
        if owner.kind != "Job" or not owner.api_version.startswith("batch/"):
            return
        path = f"/apis/{owner.api_version}/namespaces/{namespace}/jobs/{owner.name}"
        body = {"propagationPolicy": "Background", "preconditions": {"uid": owner.uid}}
        try:
            await self._api.patiently("DELETE", path, body, within_s=EVICTION_S)
        except ApiRefused as error:
            if error.status not in (_GONE, _CONFLICT):
                raise
