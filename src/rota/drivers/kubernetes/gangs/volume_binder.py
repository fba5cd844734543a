"""Binds the volumes of a pod before the pod itself: reserves those that are there, has the others made, and waits."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

from rota.core.errors import Unavailable
from rota.drivers.kubernetes.api.client import MERGE, Api
from rota.drivers.kubernetes.filters.volume_facts import Promise, VolumeBook, VolumeClaim
from rota.drivers.kubernetes.objects.pods import Pod
from rota.drivers.kubernetes.objects.volume_objects import SELECTED, claim_of

Json = dict[str, Any]
LOOK_S = 0.2
"""Pause between two looks at a claim that is being bound."""
_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"


class VolumeBinder:
    """The volumes of pods that are about to be bound."""

    def __init__(self, api: Api, book: VolumeBook) -> None:
        self._api = api
        self._book = book

    async def bind(self, pod: Pod, node: str, *, within_s: float) -> None:
        """Bind the unbound claims of a pod as they were promised for this node; raise `Unavailable` if that fails."""
        keys = [(pod.namespace, name) for name in pod.wants.needs.volumes]
        waiting = [claim for key in keys if (claim := self._book.claims.get(key)) is not None and not claim.is_bound]
        for claim in waiting:
            known = self._book.promised(claim.key)
            if known is None or known[1] != node:
                raise Unavailable(f"claim {claim.name} was promised no volume on node {node}")
            await self._begin(claim, known[0], node, within_s)
        deadline_s = asyncio.get_running_loop().time() + within_s
        for claim in waiting:
            await self._finish(claim, deadline_s)

    async def _begin(self, claim: VolumeClaim, promise: Promise, node: str, within_s: float) -> None:
        if not promise.volume:
            note = {"metadata": {"uid": claim.uid, "annotations": {SELECTED: node}}}
            await self._api.patiently("PATCH", _claim_path(claim), note, within_s=within_s, kind=MERGE)
            return
        held: Json = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.namespace,
            "name": claim.name,
            "uid": claim.uid,
        }
        path = f"/api/v1/persistentvolumes/{quote(promise.volume, safe='')}"
        now = await self._api.patiently("GET", path, None, within_s=within_s)
        other = (now.get("spec") or {}).get("claimRef")
        if other and (other.get("namespace"), other.get("name")) != claim.key:
            raise Unavailable(f"volume {promise.volume} was taken by another claim")
        meta = {"annotations": {_BY_CONTROLLER: "yes"}, "resourceVersion": now["metadata"]["resourceVersion"]}
        body = {"metadata": meta, "spec": {"claimRef": held}}
        await self._api.patiently("PATCH", path, body, within_s=within_s, kind=MERGE)

    async def _finish(self, claim: VolumeClaim, deadline_s: float) -> None:
        """Wait until the volume controller has bound a claim."""
        while True:
            now = claim_of(await self._api.patiently("GET", _claim_path(claim), None, within_s=LOOK_S * 10))
            if now.is_bound:
                self._book.claims[now.key] = now
                return
            if asyncio.get_running_loop().time() > deadline_s:
                raise Unavailable(f"claim {claim.name} was not bound in time")
            await asyncio.sleep(LOOK_S)


def _claim_path(claim: VolumeClaim) -> str:
    return f"/api/v1/namespaces/{claim.namespace}/persistentvolumeclaims/{quote(claim.name, safe='')}"
