"""Asks a node autoscaler for the nodes that waiting jobs lack: a ProvisioningRequest for each, with its pod template.

A request exists while its job waits and more nodes would start it. It names all pods of the gang, so that the
autoscaler adds nodes for all of them or for none.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from rota.core.errors import Unavailable
from rota.core.model.job import JobId
from rota.drivers.kubernetes.api.client import Api, ApiRefused, MissingRight
from rota.drivers.kubernetes.gangs.gang import Gang, Stage
from rota.drivers.kubernetes.gangs.gang_index import GangIndex
from rota.drivers.kubernetes.objects.gang_jobs import pods_by_role
from rota.drivers.kubernetes.objects.pod_annotations import JOB_ID
from rota.drivers.kubernetes.objects.pods import Pod
from rota.drivers.kubernetes.settings import ProvisioningEntry

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
GROUP = "autoscaling.x-k8s.io"
EVERY_S = 2.0
_OF_ONE_POD = (
    "nodeName",
    "serviceAccountName",
    "serviceAccount",
    "hostname",
    "subdomain",
    "schedulingGates",
    "priority",
)
_VERSIONS = ("v1", "v1beta1")


class Provisioner:
    """The requests of one term."""

    def __init__(self, api: Api, gang_index: GangIndex, settings: ProvisioningEntry) -> None:
        self._api = api
        self._gang_index = gang_index
        self._settings = settings
        self._wanted: dict[JobId, int] = {}
        """Nodes that would start a job, as last computed."""
        self._made: dict[JobId, tuple[str, list[str]]] = {}
        """Namespaces and names of the templates of the requests that exist; the first is the request's."""
        self._version = ""

    def note(self, job_id: JobId, nodes: int) -> None:
        """Take in how many more nodes would start a job; 0 if none would."""
        if nodes:
            self._wanted[job_id] = nodes
        else:
            self._wanted.pop(job_id, None)

    async def run(self) -> None:
        """Make and delete requests until cancelled; a cluster without the type is left alone."""
        while True:
            try:
                await self.round()
            except Unavailable as error:
                log.warning("nodes could not be asked for", extra={"why": str(error)})
            except MissingRight as error:
                log.warning("nodes are not asked for", extra={"why": str(error)})
                return
            await asyncio.sleep(EVERY_S)

    async def round(self) -> None:
        """Make the requests that are missing, and delete those of jobs that wait no more."""
        if not self._wanted and not self._made:
            return
        waiting = {gang.id: gang for gang in self._gang_index.gangs if gang.stage is Stage.WAITING and gang.waiting}
        for name in [name for name in self._made if name not in waiting or name not in self._wanted]:
            await self._delete(*self._made.pop(name))
        for name in [name for name in self._wanted if name not in waiting]:
            del self._wanted[name]
        for name in [name for name in self._wanted if name not in self._made]:
            if not await self._is_served():
                return
            await self._request(name, waiting[name])

    async def _is_served(self) -> bool:
        """Find the version of the type that the cluster has."""
        for version in () if self._version else _VERSIONS:
            try:
                await self._api.get(f"/apis/{GROUP}/{version}")
            except ApiRefused as error:
                if error.status != 404:
                    raise
            else:
                self._version = version
                return True
        return bool(self._version)

    async def _request(self, job_id: JobId, gang: Gang) -> None:
        space, base = gang.key.namespace, f"rota-{str(job_id).lower()[:200]}"
        first: dict[Any, Pod] = {}
        for pod in gang.waiting:
            first.setdefault(pod.wants, pod)
        sets, names = [], []
        for number, pods in enumerate(pods_by_role(gang.waiting)):
            wants, count = pods[0].wants, len(pods)
            name = base if number == 0 else f"{base}-{number}"
            value = await self._api.get(first[wants].path)
            await self._create(
                f"/api/v1/namespaces/{space}/podtemplates", _template(_meta(name, job_id, gang.waiting[0]), value)
            )
            sets.append({"count": count, "podTemplateRef": {"name": name}})
            names.append(name)
        body = {
            "apiVersion": f"{GROUP}/{self._version}",
            "kind": "ProvisioningRequest",
            "metadata": {**_meta(base, job_id, gang.waiting[0]), "namespace": space},
            "spec": {"provisioningClassName": self._settings.class_name, "podSets": sets},
        }
        await self._create(f"/apis/{GROUP}/{self._version}/namespaces/{space}/provisioningrequests", body)
        self._made[job_id] = (space, names)
        log.info("nodes are asked for", extra={"job": job_id, "nodes": self._wanted[job_id]})

    async def _create(self, path: str, body: Json) -> None:
        try:
            await self._api.post(path, body)
        except ApiRefused as error:
            if error.status != 409:  # another replica has made it
                raise

    async def _delete(self, space: str, names: list[str]) -> None:
        request = f"/apis/{GROUP}/{self._version}/namespaces/{space}/provisioningrequests/{names[0]}"
        for path in (request, *(f"/api/v1/namespaces/{space}/podtemplates/{name}" for name in names)):
            try:
                await self._api.delete(path)
            except ApiRefused as error:
                if error.status != 404:
                    raise


def _meta(name: str, job_id: JobId, pod: Pod) -> Json:
    """Return the metadata of an object that goes with a pod, should its deletion be missed."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
    return {"name": name, "annotations": {JOB_ID: str(job_id)}, "ownerReferences": [owner]}


def _template(meta: Json, pod: Json) -> Json:
    """Return the template of a pod, without what belongs to one pod alone."""
    spec = {key: value for key, value in pod["spec"].items() if key not in _OF_ONE_POD}
    notes = {name: pod["metadata"].get(name) or {} for name in ("labels", "annotations")}
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {**meta, "namespace": pod["metadata"]["namespace"]},
        "template": {"metadata": notes, "spec": spec},
    }
