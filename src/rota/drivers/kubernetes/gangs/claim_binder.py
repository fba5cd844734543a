"""Allocates the ResourceClaims of a pod before the pod is bound, and gives them back if it is not bound."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from rota.core.errors import Unavailable
from rota.drivers.kubernetes.api.client import MERGE, Api, ApiRefused
from rota.drivers.kubernetes.devices.device_facts import ClaimKey, DeviceBook
from rota.drivers.kubernetes.devices.device_objects import FINALIZER, allocation_object, claim_of
from rota.drivers.kubernetes.objects.pods import Pod

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
_CONFLICT = 409
_GONE = 404
AGAIN_S = 0.05
TRIES = 20
GIVE_BACK_S = 10.0


class ClaimBinder:
    """The ResourceClaims of pods that are about to be bound."""

    def __init__(self, api: Api, book: DeviceBook) -> None:
        self._api = api
        self._book = book

    async def bind(self, pod: Pod, *, within_s: float) -> None:
        """Write the promised allocations, and reserve all claims of a pod for it; raise `Unavailable` if that fails."""
        for key in _keys(pod):
            await self._change(key, within_s, lambda value, key=key: self._reserved(value, key, pod, within_s))

    async def give_back(self, pod: Pod) -> None:
        """Take a pod out of its claims, and deallocate those that no other pod uses."""
        for key in _keys(pod):
            try:
                await self._change(key, GIVE_BACK_S, lambda value: self._released(value, pod))
            except Unavailable as error:
                log.warning(
                    "a ResourceClaim could not be given back", extra={"claim": "/".join(key), "why": str(error)}
                )

    def stale(self, pods: Iterable[Pod]) -> list[Pod]:
        """Return pods that wait though claims are allocated for them alone: a start that was broken off left that."""
        found = []
        for pod in pods:
            claims = [self._book.claims.get(key) for key in _keys(pod)]
            held = [claim for claim in claims if claim is not None and claim.allocation is not None]
            if any(claim.reserved_for == (pod.uid,) and claim.key not in self._book.promised for claim in held):
                found.append(pod)
        return found

    async def _change(self, key: ClaimKey, within_s: float, act: Any) -> None:
        """Read a claim and change it, again if it has changed in between."""
        for _ in range(TRIES):
            try:
                value = await self._api.patiently("GET", _path(key), None, within_s=within_s)
                changed = await act(value)
                if changed is not None:
                    self._book.claims[key] = claim_of(changed)
                return
            except ApiRefused as error:
                if error.status == _GONE:
                    raise Unavailable(f"ResourceClaim {key[1]} does not exist") from error
                if error.status != _CONFLICT:
                    raise
                await asyncio.sleep(AGAIN_S)
        raise Unavailable(f"ResourceClaim {key[1]} changes all the time")

    async def _reserved(self, value: Json, key: ClaimKey, pod: Pod, within_s: float) -> Json | None:
        status = value.get("status") or {}
        users = list(status.get("reservedFor") or ())
        if status.get("allocation") and any(each.get("uid") == pod.uid for each in users):
            return None
        changes: Json = {"reservedFor": [*users, {"resource": "pods", "name": pod.name, "uid": pod.uid}]}
        if not status.get("allocation"):
            promised = self._book.promised.get(key)
            if promised is None:
                raise Unavailable(f"ResourceClaim {key[1]} was promised no devices")
            value = await self._protected(value, key, within_s)
            changes["allocation"] = allocation_object(promised, value, await self._classes(value, within_s))
        return await self._write(value, key, changes, within_s)

    async def _protected(self, value: Json, key: ClaimKey, within_s: float) -> Json:
        """Keep a claim from being deleted while devices are allocated for it."""
        present = list(value["metadata"].get("finalizers") or ())
        if FINALIZER in present:
            return value
        meta = {"resourceVersion": value["metadata"]["resourceVersion"], "finalizers": [*present, FINALIZER]}
        body = {"metadata": meta}
        found: Json = await self._api.patiently("PATCH", _path(key), body, within_s=within_s, kind=MERGE)
        return found

    async def _classes(self, value: Json, within_s: float) -> dict[str, Json]:
        """The DeviceClasses of a claim, for their configuration."""
        asked = (value.get("spec") or {}).get("devices") or {}
        entries = [
            one
            for each in asked.get("requests") or ()
            for one in (each.get("exactly"), *(each.get("firstAvailable") or ()))
        ]
        names = {str(each["deviceClassName"]) for each in entries if each}
        found = {}
        for name in sorted(names):
            path = f"/apis/resource.k8s.io/v1/deviceclasses/{quote(name, safe='')}"
            found[name] = await self._api.patiently("GET", path, None, within_s=within_s)
        return found

    async def _released(self, value: Json, pod: Pod) -> Json | None:
        status = value.get("status") or {}
        users = list(status.get("reservedFor") or ())
        left = [each for each in users if each.get("uid") != pod.uid]
        if len(left) == len(users):
            return None
        changes: Json = {"reservedFor": left or None}
        if not left:
            changes["allocation"] = None
        key = (str(value["metadata"]["namespace"]), str(value["metadata"]["name"]))
        return await self._write(value, key, changes, GIVE_BACK_S)

    async def _write(self, value: Json, key: ClaimKey, changes: Json, within_s: float) -> Json:
        body = {"metadata": {"resourceVersion": value["metadata"]["resourceVersion"]}, "status": changes}
        found: Json = await self._api.patiently("PATCH", f"{_path(key)}/status", body, within_s=within_s, kind=MERGE)
        return found


def _keys(pod: Pod) -> list[ClaimKey]:
    return [(pod.namespace, need.claim) for need in pod.wants.needs.claims if need.claim]


def _path(key: ClaimKey) -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{key[0]}/resourceclaims/{quote(key[1], safe='')}"
