"""One replica acts, the others stand by: a Lease in the cluster says whose turn it is."""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import UTC, datetime
from typing import Any

from rota.core.errors import Unavailable
from rota.drivers.kubernetes.api.client import Api, ApiRefused
from rota.drivers.kubernetes.objects.pod_annotations import LEADS

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
LEASE_S = 15.0
"""For how long a turn lasts that is not renewed."""
RENEW_S = 2.0
GIVE_UP_S = 10.0
"""After how long without a renewal the leader must stop acting: well before another may begin."""
_GONE, _CONFLICT = 404, 409


class LeadershipLost(Unavailable):
    """Another replica may act from now on."""


class Leadership:
    """One candidate for one Lease."""

    def __init__(self, api: Api, namespace: str, name: str, identity: str, pod: str | None = None) -> None:
        self._api = api
        self._pod = pod
        """The pod that this replica is, if it is one."""
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._namespace = namespace
        self.identity = identity
        self.leads = False
        self._seen: tuple[str, str] = ("", "")
        self._seen_s = 0.0

    async def acquire(self) -> None:
        """Wait until it is this replica's turn."""
        await self._label(self._pod, leads=False)  # it may have led before it was started again
        while not await self._try():
            await asyncio.sleep(RENEW_S * random.uniform(0.8, 1.2))
        self.leads = True
        await self._show()
        log.info("leads", extra={"identity": self.identity})

    async def keep(self) -> None:
        """Renew the turn for ever; raises when it can't be kept."""
        loop = asyncio.get_running_loop()
        renewed_s = loop.time()
        while True:
            await asyncio.sleep(RENEW_S)
            if await self._try():
                renewed_s = loop.time()
            elif self._seen[0] not in ("", self.identity) or loop.time() > renewed_s + GIVE_UP_S:
                self.leads = False
                raise LeadershipLost("the lease could not be renewed; another replica may act now")

    async def release(self) -> None:
        """Let another begin at once."""
        if not self.leads:
            return
        self.leads = False
        await self._label(self._pod, leads=False)
        try:
            lease = await self._api.get(f"{self._path}/{self._name}")
            if lease["spec"].get("holderIdentity") == self.identity:
                lease["spec"] |= {"holderIdentity": "", "renewTime": _stamp()}
                await self._api.put(f"{self._path}/{self._name}", lease)
        except Unavailable as error:
            log.warning("the lease was not given back", extra={"why": str(error)})

    async def _show(self) -> None:
        """Let requests come to this replica's pod, and to no other's."""
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
        """Take or renew the turn if nobody else has it."""
        try:
            lease = await self._api.get(f"{self._path}/{self._name}")
        except ApiRefused as error:
            return error.status == _GONE and await self._create()
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
        return True

    def _has_expired(self, holder: str, renewed: str) -> bool:
        """Whether a holder has not renewed for the length of a turn, by this replica's own clock."""
        now_s = asyncio.get_running_loop().time()
        if self._seen != (holder, renewed):
            self._seen, self._seen_s = (holder, renewed), now_s
        return now_s > self._seen_s + LEASE_S

    async def _create(self) -> bool:
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
        return True


def _stamp() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
