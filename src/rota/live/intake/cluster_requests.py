"""Jobs that users submit to a manager on Kubernetes: made as Job objects in the namespace of their tenant.

Rota needs a right for that which it does not have unless a binding in the namespace gives it. Pods that are made with
Rota's right may not reach further than their namespace, so that folders of nodes are refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.drivers.kubernetes.api.client import Api, ApiRefused, MissingRight
from rota.drivers.kubernetes.objects import owner_jobs
from rota.drivers.kubernetes.objects.job_objects import objects_of, refuse_what_cannot_be
from rota.drivers.kubernetes.objects.pod_annotations import PREFIX
from rota.drivers.kubernetes.settings import ClusterSettings
from rota.files.job import job_of, submitted_job
from rota.files.job_shape import JobFile
from rota.live.intake.audit_entry import Asker, audit_entry
from rota.live.intake.requests import Along, Conflict, Requests, alone
from rota.store.audit import AuditLog

Json = dict[str, Any]
SEEN_S = 30.0
LOOK_S = 0.1
EXISTS = 409


class ClusterRequests(Requests):
    """Requests to a manager on Kubernetes."""

    def __init__(
        self,
        *given: Any,
        api: Api,
        settings: ClusterSettings,
        audit: AuditLog,
        is_known: Callable[[JobId], bool],
        **more: Any,
    ) -> None:
        super().__init__(*given, **more)
        self._api = api
        self._settings = settings
        self._audit = audit
        self._is_known = is_known
        """Whether the records have a job."""

    async def submit(
        self, files: Sequence[Json], asker: Asker, *, key: str | None = None, held: bool = False, along: Along = alone
    ) -> list[JobId]:
        """Make the Jobs of job files, and wait until they are known; a repeated key makes none again."""
        wanted = []
        for number, values in enumerate(files):
            source = "job" if len(files) == 1 else f"job {number + 1}"
            file = submitted_job(_plain(values), source)
            refuse_what_cannot_be(file)
            _refuse_reach(file)
            self._admitted(job_of(file, JobId("new"), (), asker.name), asker)
            wanted.append((file, _unique(key, number)))
        names = [await self._make(file, unique, asker, held) for file, unique in wanted]
        async with asyncio.timeout(SEEN_S):
            await self._until_known(names, held)
        return names

    async def _make(self, file: JobFile, unique: str, asker: Asker, held: bool) -> JobId:
        namespace, queue = self._place(file.tenant)
        made = objects_of(file, unique, namespace, user=asker.name, queue=queue)
        if held:
            made = [owner_jobs.as_held(value) if value["kind"] == "Job" else value for value in made]
        name = JobId(str(made[0]["metadata"]["labels"][PREFIX + "job"]))
        entry = audit_entry(asker, "submit", name, file.name or name)
        await asyncio.to_thread(self._audit.append, [entry])
        try:
            await owner_jobs.make(self._api, made)
        except MissingRight as error:
            raise RotaError(
                f"this Rota may not make Jobs in namespace {namespace}: {error}. Submit with `rota --context NAME`, "
                "or ask an administrator to bind the role rota-submit there"
            ) from None
        except ApiRefused as error:
            if error.status != EXISTS:
                raise RotaError(f"job: {error}") from None
            await self._must_be_same(made[0], asker)
        return name

    async def _must_be_same(self, value: Json, asker: Asker) -> None:
        """Raise a `Conflict` unless the Job that is there was made by the same request."""
        there = await self._api.get(owner_jobs.path_of(value))
        if _asked(there) != _asked(value):
            raise Conflict(f"job {value['metadata']['name']} exists, of another request; use a new idempotency key")

    def _place(self, tenant: str) -> tuple[str, str | None]:
        """Return the namespace of a tenant, and its queue there if tenants are queues."""
        for namespace, queues in self._settings.queues.items():
            if tenant in queues:
                return namespace, tenant
        if self._settings.tenant_label is not None:
            raise RotaError(
                f"tenant: pods state it by the label {self._settings.tenant_label}, so that the namespace of "
                f"{tenant!r} is not known; submit with `rota --context NAME`"
            )
        return tenant, None

    async def _until_known(self, names: Sequence[JobId], held: bool) -> None:
        for name in names:
            while not held and not await asyncio.to_thread(self._is_known, name):
                await asyncio.sleep(LOOK_S)


def _unique(key: str | None, number: int) -> str:
    if key is None:
        return secrets.token_hex(4)
    return hashlib.sha256(f"{key}/{number}".encode()).hexdigest()[:16]


def _plain(values: Json) -> Json:
    """Return a job file without the caller's working directory, which pods do not have."""
    is_file = isinstance(values, dict)
    return {name: value for name, value in values.items() if name != "workdir"} if is_file else values


def _asked(value: Json) -> str:
    """Return what of a Job its request determines."""
    template = value["spec"]["template"]
    containers = [(each["image"], each["command"]) for each in template["spec"]["containers"]]
    return json.dumps([template["metadata"].get("annotations", {}).get(PREFIX + "user"), containers])


def _refuse_reach(file: JobFile) -> None:
    """Refuse what reaches beyond a namespace: Rota's right must not lend its users more than that."""
    for number, text in enumerate(file.volumes):
        if text.startswith("/"):
            raise RotaError(
                f"job: volumes[{number}] is a folder of the node, which a manager makes no pods with; name a "
                "PersistentVolumeClaim, or submit with `rota --context NAME` and your own rights"
            )
    if file.labels.get("priority_class", "").startswith("system-"):
        raise RotaError("job: labels.priority_class is one of the system's; name another")
