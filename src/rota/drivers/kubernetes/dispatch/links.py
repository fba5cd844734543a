"""One cluster as the dispatcher sees it: whether it answers, what it can offer, and the copies that it has."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError, Unavailable
from rota.core.model.job import WHOLE
from rota.drivers.kubernetes.api.client import Api, ApiRefused
from rota.drivers.kubernetes.api.connection import connect
from rota.drivers.kubernetes.dispatch.choice import ClusterOffer, JobNeeds
from rota.drivers.kubernetes.dispatch.clusters_file import ClusterEntry
from rota.drivers.kubernetes.dispatch.copies import COPY, JOBS, as_file, origin_of
from rota.drivers.kubernetes.objects.reading import read_node, read_pod
from rota.drivers.kubernetes.settings import ClusterSettings
from rota.sdk.client import Client

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
FORECAST_S = 10.0


def open_api(entry: ClusterEntry) -> Api:
    """Open a session with a cluster of the file."""
    kubeconfig = None if entry.kubeconfig is None else Path(entry.kubeconfig)
    return Api(connect(entry.context, kubeconfig), connections=8)


class ClusterLink:
    """A cluster that jobs are sent to."""

    def __init__(self, name: str, entry: ClusterEntry) -> None:
        self.name = name
        self.site = entry.site
        self._api = open_api(entry)
        self._entry = entry
        self._settings = ClusterSettings()
        self.copies: dict[str, Json] = {}
        """Copies by the uid of their Job of the hub, as of the last look."""
        self.answers = False
        self.silent_since_s = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    async def look(self) -> None:
        """Read the copies; a cluster that does not answer keeps those of the last time."""
        try:
            found, _ = await self._api.everything(f"{JOBS}/jobs", labelSelector=f"{COPY}=true")
        except (Unavailable, RotaError) as error:
            if self.answers:
                log.warning("a cluster does not answer", extra={"cluster": self.name, "why": str(error)})
                self.silent_since_s = asyncio.get_running_loop().time()
            self.answers = False
            return
        if not self.answers:
            log.info("a cluster answers", extra={"cluster": self.name})
        self.answers = True
        self.copies = {origin_of(each): each for each in found}

    def is_lost(self, after_s: float) -> bool:
        """Whether it has not answered for so long that its jobs go elsewhere."""
        return not self.answers and asyncio.get_running_loop().time() > self.silent_since_s + after_s

    async def offer(self, value: Json, needs: JobNeeds) -> ClusterOffer | None:
        """Return what the cluster can offer a job; None if it does not answer."""
        try:
            room, free = await self._capacity(needs)
        except (Unavailable, RotaError) as error:
            log.warning("a cluster makes no offer", extra={"cluster": self.name, "why": str(error)})
            return None
        waits_s, why_not = await self._forecast(value)
        return ClusterOffer(cluster=self.name, room=room, free=free, waits_s=waits_s, why_not=why_not, site=self.site)

    async def _capacity(self, needs: JobNeeds) -> tuple[int, int]:
        """Return how many tasks would fit on the empty cluster, and how many fit now."""
        nodes, _ = await self._api.everything("/api/v1/nodes")
        pods, _ = await self._api.everything("/api/v1/pods")
        held: dict[str, int] = {}
        for value in pods:
            pod = read_pod(value, self._settings)
            if pod is not None and pod.holds and pod.node is not None:
                held[pod.node] = held.get(pod.node, 0) + pod.wants.device_milli // WHOLE
        room = free = 0
        for value in nodes:
            seen = read_node(value, self._settings)
            if seen is None or not seen.ready or seen.cordoned:
                continue
            has = seen.node.devices
            left = max(has - held.get(str(seen.node.id), 0), 0)
            room += has // needs.devices if needs.devices else needs.tasks
            free += left // needs.devices if needs.devices else needs.tasks
        return room, free

    async def _forecast(self, value: Json) -> tuple[float | None, str]:
        """Return in how many seconds the cluster's Rota expects a job to start, and why it would refuse it."""
        if self._entry.server is None:
            return None, ""
        try:
            answer = await asyncio.to_thread(self._ask, as_file(value, self._settings))
        except RotaError as error:
            return None, str(error)
        except Unavailable as error:
            log.warning("a cluster's Rota does not answer", extra={"cluster": self.name, "why": str(error)})
            return None, ""
        usual = (answer.get("expected") or {}).get("usual")
        if usual is None:
            return None, ""
        return (datetime.fromisoformat(usual) - datetime.now(UTC)).total_seconds(), ""

    def _ask(self, file: Json) -> Json:
        path = self._entry.token_file
        token = None if path is None else Path(path).read_text(encoding="utf-8").strip()
        return Client(self._entry.server, token, timeout_s=FORECAST_S).try_out(file)

    async def create(self, copy: Json) -> str:
        """Create a copy unless it is there; return why it can't be, empty if it could."""
        space = copy["metadata"]["namespace"]
        try:
            made = await self._api.post(f"{JOBS}/namespaces/{space}/jobs", copy)
        except ApiRefused as error:
            return "" if error.status == 409 else str(error)
        except (Unavailable, RotaError) as error:
            return str(error)
        self.copies[origin_of(made)] = made
        return ""

    async def delete(self, value: Json) -> None:
        """Delete a copy with its pods."""
        meta = value["metadata"]
        body = {"propagationPolicy": "Background", "preconditions": {"uid": meta["uid"]}}
        try:
            await self._api.delete(f"{JOBS}/namespaces/{meta['namespace']}/jobs/{meta['name']}", body)
        except ApiRefused as error:
            if error.status not in (404, 409):
                raise
        self.copies.pop(origin_of(value), None)
