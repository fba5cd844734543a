"""Writes to the cluster: binds pods with their devices and evicts pods, with retries while the server is busy."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from enum import Enum
from typing import Any
from urllib.parse import quote

from rota.core.errors import Unavailable
from rota.drivers.kubernetes.api.client import Api, ApiRefused, Unreachable
from rota.drivers.kubernetes.gangs.pod_events import post_event
from rota.drivers.kubernetes.objects.pods import Pod, PodOwner

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
_BAD, _GONE, _METHOD, _CONFLICT, _TOO_MANY = 400, 404, 405, 409, 429
AGAIN_S = 0.2
"""Pause before a retry after a transient refusal."""
PATIENCE_S = 300.0
"""How long a request is repeated while the server is busy or unreachable."""
BUDGET_S = 10.0
"""How long an eviction is repeated before the pod is told that a disruption budget delays it."""


class Bound(Enum):
    """The outcome of a bind."""

    YES = "yes"
    POD_GONE = "pod-gone"
    ELSEWHERE = "elsewhere"


class Binder:
    """Binds, evictions and deletions through one API session."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._evictions = ["policy/v1", "policy/v1beta1"]
        self._delayed: set[str] = set()
        """Pods that were told of a budget."""

    async def bind(self, pod: Pod, node: str, annotations: dict[str, str], *, within_s: float) -> Bound:
        """Bind a pod to a node with its devices in one write."""
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
            except Unreachable:  # the outcome is unknown until the server is back
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
        """The cause of a refused bind: already bound, maybe by an earlier try, or being deleted; None: retry."""
        now = await self._now(pod)
        if now is None or now["metadata"].get("deletionTimestamp"):
            return Bound.POD_GONE
        has = now["spec"].get("nodeName")
        if has == node:
            return Bound.YES
        return Bound.ELSEWHERE if has else None

    async def _now(self, pod: Pod) -> Json | None:
        """The present pod object; None if it is gone or replaced by another of its name."""
        try:
            now: Json = await self._api.patiently("GET", pod.path, None, within_s=PATIENCE_S)
        except ApiRefused as error:
            if error.status == _GONE:
                return None
            raise
        return now if now["metadata"]["uid"] == pod.uid else None

    async def exists(self, pod: Pod) -> bool:
        """Whether the API server has this pod."""
        return await self._now(pod) is not None

    async def evict(self, pod: Pod) -> None:
        """Evict a pod with its own grace period. A disruption budget holds for as long as it refuses."""
        while self._evictions:
            body = {
                "apiVersion": self._evictions[0],
                "kind": "Eviction",
                "metadata": {"name": pod.name, "namespace": pod.namespace},
                "deleteOptions": {"preconditions": {"uid": pod.uid}},
            }
            try:
                await self._api.patiently("POST", f"{pod.path}/eviction", body, within_s=BUDGET_S)
            except Unreachable:
                continue
            except ApiRefused as error:
                if await self._is_going(pod):
                    return
                if error.status == _TOO_MANY:
                    await self._say_delayed(pod, f"when its budget allows it: {error}")
                elif error.status == _CONFLICT or error.is_passing:
                    await asyncio.sleep(AGAIN_S)
                elif error.status in (_GONE, _METHOD) or (error.status == _BAD and "version" in str(error)):
                    self._evictions = self._evictions[1:]  # a server that supports only the other version
                else:
                    await self._refused(pod, error)
            else:
                return
        await self.delete(pod)

    async def _refused(self, pod: Pod, error: ApiRefused) -> None:
        """Wait for a policy or a webhook of the cluster that does not let a pod go; the pod holds what it has."""
        await self._say_delayed(pod, f"when the cluster allows it: {error}")
        await asyncio.sleep(BUDGET_S)

    async def _say_delayed(self, pod: Pod, why: str) -> None:
        """Say on the pod, once, what its eviction waits for."""
        if pod.uid not in self._delayed:
            self._delayed.add(pod.uid)
            log.warning("an eviction is delayed", extra={"pod": pod.name, "why": why})
            with suppress(Unavailable):
                await post_event(self._api, pod, "EvictionDelayed", f"Rota evicts this pod {why}")

    async def _is_going(self, pod: Pod) -> bool:
        """Whether a pod is gone or being deleted, however long the server takes to say so."""
        while True:
            try:
                now = await self._now(pod)
            except Unavailable:
                await asyncio.sleep(AGAIN_S)
            else:
                return now is None or now["metadata"].get("deletionTimestamp") is not None

    async def delete(self, pod: Pod) -> None:
        """Delete a pod, with its own grace period."""
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}}
        while True:
            try:
                await self._api.patiently("DELETE", pod.path, body, within_s=PATIENCE_S)
            except Unreachable:
                continue
            except ApiRefused as error:
                if not await self._is_going(pod):
                    if error.status in (_GONE, _CONFLICT) or error.is_passing:
                        await asyncio.sleep(AGAIN_S)
                    else:
                        await self._refused(pod, error)
                    continue
            return

    async def delete_owner(self, namespace: str, owner: PodOwner) -> None:
        """Delete the controller that would recreate the pods; only Jobs are deleted."""
        if owner.kind != "Job" or not owner.api_version.startswith("batch/"):
            return
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{quote(owner.name, safe='')}"
        body = {"propagationPolicy": "Background", "preconditions": {"uid": owner.uid}}
        try:
            await self._api.patiently("DELETE", path, body, within_s=PATIENCE_S)
        except ApiRefused as error:
            if error.status not in (_GONE, _CONFLICT):
                log.warning("a Job could not be deleted", extra={"owner": owner.name, "why": str(error)})
