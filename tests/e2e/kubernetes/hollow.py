"""Hollow nodes: a thread that answers for the kubelets of nodes that do not exist.

A pod that is bound to one runs at once, ends after `hollow/run-s` seconds with `hollow/exit`, and is gone soon after it
was told to go.
"""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rota.core.errors import Unavailable
from rota.drivers.kubernetes.api.client import MERGE, STRATEGIC, Api
from rota.drivers.kubernetes.api.connection import connect
from rota.drivers.kubernetes.api.informer import Informer

Json = dict[str, Any]
BEAT_S = 2.0
PATIENCE_S = 120.0
"""How long a kubelet tries to say something while the API server is away."""


def node_object(name: str, gpus: int = 8, *, labels: dict[str, str] | None = None, **fields: Any) -> Json:
    """A node as a test describes it."""
    resources = {"cpu": "64", "memory": "512Gi", "pods": "250", "nvidia.com/gpu": str(gpus), **fields}
    if not gpus:
        del resources["nvidia.com/gpu"]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {"allocatable": resources, "capacity": resources, "conditions": [_ready(True)]},
    }


def _ready(yes: bool) -> Json:
    stamp = _stamp()
    return {
        "type": "Ready",
        "status": "True" if yes else "False",
        "reason": "KubeletReady" if yes else "KubeletNotReady",
        "message": "",
        "lastHeartbeatTime": stamp,
        "lastTransitionTime": stamp,
    }


class Hollow:
    """Kubelets of all nodes in the cluster, but for those that are told to be dead."""

    def __init__(self, kubeconfig: Path, *, beats: bool = False, only: str | None = None, end_s: float = 0.05) -> None:
        self._kubeconfig = kubeconfig
        self._beats = beats
        self._only = only
        """The node whose kubelet lives; all, if there is none."""
        self._end_s = end_s
        self.dead: set[str] = set()
        """Nodes whose kubelet says nothing any more."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._stopping = asyncio.Event()
        self._seen: dict[str, str] = {}
        self._busy: set[asyncio.Task[None]] = set()

    def start(self) -> Hollow:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout=20)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        self._api = Api(connect(None, self._kubeconfig), connections=16)
        pods = Informer(self._api, "/api/v1/pods", self._listed, self._changed)
        await pods.begin()
        work = [asyncio.create_task(pods.run())]
        if self._beats:
            work.append(asyncio.create_task(self._beat()))
        await self._stopping.wait()
        for task in (*work, *self._busy):
            task.cancel()
        await asyncio.gather(*work, *self._busy, return_exceptions=True)
        await self._api.close()
        await asyncio.sleep(0.3)  # TLS connections take a moment to close

    def _listed(self, values: list[Json]) -> None:
        for value in values:
            self._see(value)

    def _changed(self, changes: list[Json]) -> None:
        for change in changes:
            if change["type"] == "DELETED":
                self._seen.pop(change["object"]["metadata"]["uid"], None)
            else:
                self._see(change["object"])

    def _see(self, pod: Json) -> None:
        node = pod["spec"].get("nodeName")
        if not node or node in self.dead:
            return
        uid = pod["metadata"]["uid"]
        if pod["metadata"].get("deletionTimestamp"):
            if self._seen.get(uid) != "ending":
                self._seen[uid] = "ending"
                self._do(self._end(pod))
        elif (pod.get("status") or {}).get("phase") == "Pending" and uid not in self._seen:
            self._seen[uid] = "running"
            self._do(self._run(pod))

    def _do(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)

    async def _run(self, pod: Json) -> None:
        await self._phase(pod, "Running")
        notes = pod["metadata"].get("annotations") or {}
        if "hollow/run-s" in notes:
            await asyncio.sleep(float(notes["hollow/run-s"]))
            if self._seen.get(pod["metadata"]["uid"]) == "running" and pod["spec"]["nodeName"] not in self.dead:
                await self._phase(pod, "Failed" if notes.get("hollow/exit", "0") != "0" else "Succeeded")

    async def _end(self, pod: Json) -> None:
        await asyncio.sleep(self._end_s)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        await self._quietly("DELETE", _path(pod), body, "application/json")

    async def _phase(self, pod: Json, phase: str) -> None:
        await self._quietly("PATCH", f"{_path(pod)}/status", {"status": {"phase": phase}}, MERGE)

    async def _quietly(self, method: str, path: str, body: Json, kind: str) -> None:
        try:
            await self._api.patiently(method, path, body, within_s=PATIENCE_S, kind=kind)
        except Unavailable:
            return

    async def _beat(self) -> None:
        """Say that the kubelets live, as the node controller wants to hear it."""
        while True:
            nodes, _ = await self._api.everything("/api/v1/nodes")
            for node in nodes:
                name = node["metadata"]["name"]
                if name not in self.dead and self._only in (None, name):
                    status = {"status": {"conditions": [_ready(True)]}}
                    await self._quietly("PATCH", f"/api/v1/nodes/{name}/status", status, STRATEGIC)
            await asyncio.sleep(BEAT_S)


def _path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _stamp() -> str:
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
