"""Leader election by a Lease: one replica acts, the others stand by."""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import UTC, datetime
from typing import Any

from rota.core.errors import Unavailable
from rota.drivers.kubernetes.api.client import Api, ApiRefused
from rota.drivers.kubernetes.api.fence import Fence, LeadershipLost
from rota.drivers.kubernetes.objects.pod_annotations import LEADS

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
LEASE_S = 15.0
"""Duration of a lease that is not renewed."""
RENEW_S = 2.0
GIVE_UP_S = 10.0
"""Time without renewal after which the leader stops acting, well before another may start."""
_GONE, _CONFLICT = 404, 409


class Leadership:
    """One candidate for one Lease. Its own requests pass no fence; all other writes pass `fence`."""

    def __init__(self, api: Api, namespace: str, name: str, identity: str, pod: str | None = None) -> None:
        self._api = api
        self._pod = pod
        """The name of this replica's own pod, if it runs in one."""
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._namespace = namespace
        self.identity = identity
        self.leads = False
        self.fence = Fence(GIVE_UP_S)
        self._seen: tuple[str, str] = ("", "")
        self._seen_s = 0.0

    async def acquire(self) -> None:
        """Wait until this replica holds the lease."""
        await self._label(self._pod, leads=False)  # it may have led before its restart
        while not await self._try():
            await asyncio.sleep(RENEW_S * random.uniform(0.8, 1.2))
        self.leads = True
        await self._show()
        log.info("leads", extra={"identity": self.identity})

    async def keep(self) -> None:
        """Renew the lease until cancelled; raises when it is lost."""
        loop = asyncio.get_running_loop()
        renewed_s = loop.time()
        while True:
            await asyncio.sleep(RENEW_S)
            if await self._try():
                renewed_s = loop.time()
            elif self._seen[0] not in ("", self.identity) or loop.time() > renewed_s + GIVE_UP_S:
                self.leads = False
                self.fence.lost()
                raise LeadershipLost("the lease could not be renewed; another replica may act now")

    async def release(self) -> None:
        """Release the lease, so that another replica takes over at once."""
        if not self.leads:
            return
        self.leads = False
        self.fence.lost()
        await self._label(self._pod, leads=False)
        try:
            lease = await self._api.get(f"{self._path}/{self._name}")
            if lease["spec"].get("holderIdentity") == self.identity:
                lease["spec"] |= {"holderIdentity": "", "renewTime": _stamp()}
                await self._api.put(f"{self._path}/{self._name}", lease)
        except Unavailable as error:
            log.warning("the lease was not released", extra={"why": str(error)})

    async def _show(self) -> None:
        """Route requests to this replica's pod only."""
        if self._pod is None:
            return
        try:
            found, _ = await self._api.everything("/api/v1/pods", labelSelector=LEADS)
        except Unavailable:
            found = []
        for value in found:
            meta = value["metadata"]
            if meta["namespace"] == self._namespace and meta["name"] != self._pod:
                await self._label(meta["name"], leads=False)
        await self._label(self._pod, leads=True)

    async def _label(self, pod: str | None, *, leads: bool) -> None:
        if pod is None:
            return
        change = {"metadata": {"labels": {LEADS: "true" if leads else None}}}
        try:
            await self._api.patch(f"/api/v1/namespaces/{self._namespace}/pods/{pod}", change)
        except Unavailable as error:
            log.warning("a pod could not be labelled", extra={"pod": pod, "why": str(error)})

    async def _try(self) -> bool:
        """Acquire or renew the lease unless another replica holds it."""
        asked_s = asyncio.get_running_loop().time()
        try:
            lease = await self._api.get(f"{self._path}/{self._name}")
        except ApiRefused as error:
            return error.status == _GONE and await self._create(asked_s)
        except Unavailable:
            return False
        spec = lease.setdefault("spec", {})
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self.identity) and not self._has_expired(holder, spec.get("renewTime") or ""):
            return False
        if holder != self.identity:
            spec |= {"acquireTime": _stamp(), "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1}
        spec |= {"holderIdentity": self.identity, "renewTime": _stamp(), "leaseDurationSeconds": int(LEASE_S)}
        try:
            await self._api.put(f"{self._path}/{self._name}", lease)
        except Unavailable:
            return False
        self._seen = (self.identity, "")
        self.fence.renewed(asked_s)
        return True

    def _has_expired(self, holder: str, renewed: str) -> bool:
        """Whether the holder has not renewed for the lease duration, by this replica's clock."""
        now_s = asyncio.get_running_loop().time()
        if self._seen != (holder, renewed):
            self._seen, self._seen_s = (holder, renewed), now_s
        return now_s > self._seen_s + LEASE_S

    async def _create(self, asked_s: float) -> bool:
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": int(LEASE_S),
                "acquireTime": _stamp(),
                "renewTime": _stamp(),
            },
        }
        try:
            await self._api.post(self._path, lease)
        except Unavailable:
            return False
        self._seen = (self.identity, "")
        self.fence.renewed(asked_s)
        return True


def _stamp() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
