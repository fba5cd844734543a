"""A cluster as its users see it, read from the API server with the user's own rights.

Answers as a manager's API does, so that the same commands work for both.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from rota.core.errors import RotaError, Unavailable
from rota.core.model.job import WHOLE
from rota.drivers.kubernetes.api.client import Api, MissingRight
from rota.drivers.kubernetes.api.connection import connect
from rota.drivers.kubernetes.gangs.gang import Gang, key_of, pod_of_task, stated_size
from rota.drivers.kubernetes.objects import owner_jobs
from rota.drivers.kubernetes.objects.api_views import (
    FINAL,
    expected_start,
    job_shown,
    job_to_come,
    main_container,
    node_shown,
)
from rota.drivers.kubernetes.objects.gang_jobs import job_id
from rota.drivers.kubernetes.objects.job_objects import objects_of
from rota.drivers.kubernetes.objects.pod_annotations import PREFIX
from rota.drivers.kubernetes.objects.pods import Pod, PodPhase
from rota.drivers.kubernetes.objects.reading import read_pod
from rota.drivers.kubernetes.settings import ClusterSettings
from rota.files.job import submitted_job

Json = dict[str, Any]
T = TypeVar("T")
POLL_S = 0.5


class ClusterUser:
    """A client for jobs behind one kubeconfig context."""

    def __init__(self, context: str | None, kubeconfig: Path | None = None) -> None:
        self._connection = connect(context, kubeconfig)
        self._settings = ClusterSettings()
        self.url = self._connection.server

    # -- jobs ------------------------------------------------------------------------------------

    def submit(self, files: Json | Sequence[Json], *, key: str | None = None, held: bool = False) -> list[str]:
        """Create the Jobs of job files; return the names that identify their pods."""
        wanted = [files] if isinstance(files, dict) else list(files)
        several = len(wanted) > 1
        made = [
            self._objects(values, held, f"job {number}" if several else "job")
            for number, values in enumerate(wanted, start=1)
        ]
        return self._do(self._make(made))

    def _objects(self, values: Json, held: bool = False, source: str = "job") -> list[Json]:
        made = objects_of(submitted_job(_plain(values), source), secrets.token_hex(4), self._namespace(values))
        return [owner_jobs.as_held(value) if held and value["kind"] == "Job" else value for value in made]

    def jobs(self, *, all: bool = False, limit: int | None = None, **only: str | None) -> Iterator[Json]:
        """Jobs, newest first."""
        found = [job for job in self._do(self._all_jobs()) if all or job["state"] not in FINAL or only.get("state")]
        for field, value in only.items():
            if value is not None:
                found = [job for job in found if job[field] == value]
        yield from found[:limit]

    def job(self, job_id: str) -> Json:
        """One job by id or name; of several with one name, the one that has not ended."""
        found = [job for job in self._do(self._all_jobs()) if _is_called(job, job_id)]
        by_id = [job for job in found if job["id"] == job_id]
        alive = by_id or [job for job in found if job["state"] not in FINAL]
        if len(alive) > 1:
            ids = ", ".join(job["id"] for job in alive)
            raise RotaError(f"{len(alive)} jobs are named {job_id!r}: {ids}; give the id of one")
        if not found:
            raise RotaError(f"no job {job_id!r}; `rota --context ... ps --all` lists them")
        return (alive or found)[0]

    def why(self, job_id: str) -> Json:
        """Why a job waits."""
        job = self.job(job_id)
        expected = self._do(self._expected(job["id"])) if job["state"] == "waiting" and job["attempt"] else None
        demand = [] if expected is None else expected.pop("more_nodes", [])
        return {"state": job["state"], "reason": job["reason"], "expected": expected, "more_nodes": demand}

    def try_out(self, file: Json) -> Json:
        """Check whether the cluster would admit a job; forecasts are available from Rota's server only."""
        self._do(self._make([self._objects(file)], dry_run=True))
        return {"expected": None}

    def act(self, job_id: str, action: str) -> Json:
        """`cancel` a job and delete its controller; `hold` a waiting job; `release` it."""
        job = self.job(job_id)
        match action:
            case "cancel":
                self._do(self._cancel(job["id"]))
            case "hold":
                _must_be(job, "waiting", "held")
                self._do(self._hold(job["id"]))
            case _:
                _must_be(job, "held", "released")
                self._do(self._release(job["id"]))
        return {"id": job["id"]}

    def logs(self, job_id: str, *, follow: bool = False, **options: int | None) -> Iterator[bytes]:
        """The output of a task; with `follow` until the job has ended."""
        yield from _drawn(self._logs(self.job(job_id)["id"], follow, options.get("task") or 0, options.get("tail")))

    # -- the cluster -----------------------------------------------------------------------------

    def nodes(self) -> list[Json]:
        """The nodes and their free devices."""
        return self._do(self._nodes())

    def overview(self) -> Json:
        """Devices and tenants at a glance; the last day is available on Rota's dashboard only."""
        nodes, jobs = self.nodes(), list(self.jobs())
        devices: dict[str, Json] = {}
        for node in nodes:
            if node["gpus"]:
                each = devices.setdefault(
                    node["type"], {"type": node["type"], "total": 0, "busy": 0, "idle": 0, "bad": 0}
                )
                each["total"] += node["gpus"]
                each["busy"] += node["gpus"] - node["free_gpus"]
                each["idle" if node["state"] == "up" else "bad"] += node["free_gpus"]
                each["scattered"] = each.get("scattered", 0) + (node["free_gpus"] % node["gpus"])
        tenants: dict[str, Json] = {}
        for job in jobs:
            usual = {"running": 0, "waiting": 0, "held": 0.0, "guaranteed": None, "borrowed": 0.0, "lent": 0.0}
            tenant = tenants.setdefault(job["tenant"], {"tenant": job["tenant"], **usual})
            runs = job["state"] in ("running", "starting")
            tenant["running" if runs else "waiting"] += 1
            tenant["held"] += job["gpus"] if runs else 0.0
        now_s = datetime.now(UTC).timestamp()
        return {
            "policy": "of the cluster",
            "devices": list(devices.values()),
            "running": sum(tenant["running"] for tenant in tenants.values()),
            "waiting": sum(tenant["waiting"] for tenant in tenants.values()),
            "tenants": list(tenants.values()),
            "day": {"edges_s": [now_s - 1.0, now_s], "in_use": [0.0], "waiting": [0.0], "wait_s": [None]},
        }

    def drain(self, node_id: str, *, drained: bool = True) -> Json:
        """Refuse: kubectl has a command for it."""
        raise RotaError(f"use `kubectl {'cordon' if drained else 'uncordon'} {node_id}`; Rota follows it")

    # -- asking the API server -------------------------------------------------------------------

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Api]:
        api = Api(self._connection)
        try:
            yield api
        finally:
            await api.close()

    def _do(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run(work)

    def _namespace(self, values: Json) -> str:
        """Tenants are namespaces."""
        return str(values.get("tenant") or self._connection.namespace)

    async def _pods(self, api: Api) -> list[Json]:
        """Pods that Rota schedules: in all namespaces if the user may list them, else in the context's own."""
        chosen = {"fieldSelector": f"spec.schedulerName={self._settings.scheduler_name}"}
        try:
            found, _ = await api.everything("/api/v1/pods", **chosen)
        except MissingRight:
            found, _ = await api.everything(f"/api/v1/namespaces/{self._connection.namespace}/pods", **chosen)
        return found

    async def _gangs(self, api: Api) -> list[tuple[Gang, dict[str, Json]]]:
        gangs: dict[Any, tuple[Gang, dict[str, Json]]] = {}
        for value in await self._pods(api):
            if (pod := read_pod(value, self._settings)) is None:
                continue
            key = key_of(pod)
            gang, values = gangs.setdefault(key, (Gang(key), {}))
            gang.members[pod.uid] = pod
            gang.owner = gang.owner or pod.owner
            gang.size = gang.size or stated_size(pod, key)
            values[pod.uid] = value
        return list(gangs.values())

    async def _makers(self, api: Api) -> list[Json]:
        return await owner_jobs.all_makers(api, self._connection.namespace)

    async def _makers_of(self, api: Api, wanted: str) -> list[Json]:
        return [value for value in await self._makers(api) if owner_jobs.id_of(value) == wanted]

    async def _all_jobs(self) -> list[Json]:
        async with self._session() as api:
            found = [job_shown(gang, values, self._settings) for gang, values in await self._gangs(api)]
            shown = {job["id"] for job in found}
            to_come: dict[str, list[Json]] = {}
            for value in await self._makers(api):
                if owner_jobs.id_of(value) not in shown and not owner_jobs.has_ended(value):
                    to_come.setdefault(owner_jobs.id_of(value), []).append(value)
            found += [job_to_come(made, self._settings) for made in to_come.values()]
        return sorted(found, key=lambda job: (job["submitted"], job["id"]), reverse=True)

    async def _make(self, made: list[list[Json]], *, dry_run: bool = False) -> list[str]:
        names = []
        async with self._session() as api:
            for objects in made:
                await owner_jobs.make(api, objects, dry_run=dry_run)
                names.append(str(objects[0]["metadata"]["labels"][PREFIX + "job"]))
        return names

    async def _expected(self, wanted: str) -> Json | None:
        async with self._session() as api:
            _, values = await self._named(api, wanted)
        return expected_start(values.values())

    async def _hold(self, wanted: str) -> None:
        async with self._session() as api:
            found = await self._makers_of(api, wanted)
            if not found:
                gang, _ = await self._named(api, wanted)
                owners = {(pod.owner.kind, pod.owner.name) for pod in gang.members.values() if pod.owner is not None}
                found = await owner_jobs.of_owner(api, gang.key.namespace, sorted(owners))
            await owner_jobs.hold(api, found)

    async def _release(self, wanted: str) -> None:
        async with self._session() as api:
            await owner_jobs.release(api, await self._makers_of(api, wanted))

    async def _cancel(self, wanted: str) -> None:
        async with self._session() as api:
            made = await self._makers_of(api, wanted)
            for value in made:
                await owner_jobs.delete(api, owner_jobs.path_of(value))
            if made:
                return
            gang, values = await self._named(api, wanted)
            owners = {pod.owner for pod in gang.members.values() if pod.owner is not None}
            for owner in owners:
                group = "api/v1" if owner.api_version == "v1" else f"apis/{owner.api_version}"
                path = f"/{group}/namespaces/{gang.key.namespace}/{owner.kind.lower()}s/{owner.name}"
                await owner_jobs.delete(api, path)
            for uid in values:
                if gang.members[uid].owner is None:
                    await owner_jobs.delete(api, gang.members[uid].path)

    async def _named(self, api: Api, wanted: str) -> tuple[Gang, dict[str, Json]]:
        for gang, values in await self._gangs(api):
            if wanted == job_id(gang, list(gang.members.values())):
                return gang, values
        raise RotaError(f"job {wanted} has no pods")

    async def _logs(self, wanted: str, follow: bool, task: int, tail: int | None) -> AsyncIterator[bytes]:
        async with self._session() as api:
            pod, container = await self._pod_of(api, wanted, task)
            while follow and pod.phase is PodPhase.PENDING:
                await asyncio.sleep(POLL_S)
                pod, container = await self._pod_of(api, wanted, task)
            if pod.phase is PodPhase.PENDING:
                return
            params: dict[str, str | int] = {"follow": str(follow).lower(), "container": container}
            output = b""
            async for chunk in api.stream(f"{pod.path}/log", **params):
                if tail is None:
                    yield chunk
                else:
                    output = (output + chunk)[-tail:] if tail else b""
            yield output
            while follow and not (await self._pod_of(api, wanted, task))[0].phase.is_over:
                await asyncio.sleep(POLL_S)

    async def _pod_of(self, api: Api, wanted: str, task: int) -> tuple[Pod, str]:
        """Return the pod of a task, and the name of the container that does its work."""
        gang, values = await self._named(api, wanted)
        pod = pod_of_task(gang.members.values(), task)
        if pod is None:
            raise RotaError(f"--task is {task}; the job has {len(gang.members)} tasks, counted from 0")
        return pod, main_container(values[pod.uid], self._settings.devices)

    async def _nodes(self) -> list[Json]:
        async with self._session() as api:
            values, _ = await api.everything("/api/v1/nodes")
            pods, _ = await api.everything("/api/v1/pods")
        held: dict[str, int] = {}
        for value in pods:
            pod = read_pod(value, self._settings)
            if pod is not None and pod.holds and pod.node is not None:
                held[pod.node] = held.get(pod.node, 0) + pod.wants.device_milli // WHOLE
        return [node_shown(value, held, self._settings) for value in values]


def _is_called(job: Json, wanted: str) -> bool:
    return wanted in (job["id"], job["name"]) or job["id"].startswith(f"{wanted}-")


def _must_be(job: Json, state: str, done: str) -> None:
    if job["state"] != state:
        raise RotaError(f"job {job['id']} is {job['state']}; only a {state} job can be {done}")


def _plain(values: Json) -> Json:
    """A job file without the caller's working directory, which pods do not have."""
    return {name: value for name, value in values.items() if name != "workdir" or str(value).startswith("/")}


def _drawn(source: AsyncIterator[bytes]) -> Iterator[bytes]:
    """Iterate over an asynchronous stream from synchronous code."""
    ready: SimpleQueue[bytes | Exception | None] = SimpleQueue()

    async def draw() -> None:
        async for chunk in source:
            ready.put(chunk)

    def work() -> None:
        try:
            asyncio.run(draw())
        except (RotaError, Unavailable) as error:
            ready.put(error)
        ready.put(None)

    threading.Thread(target=work, daemon=True).start()
    while (chunk := ready.get()) is not None:
        if isinstance(chunk, Exception):
            raise chunk
        yield chunk
