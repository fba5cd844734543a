"""The Job objects behind jobs: created, held, released and deleted with the user's own rights."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rota.core.errors import RotaError
from rota.drivers.kubernetes.api.client import Api, ApiRefused, MissingRight
from rota.drivers.kubernetes.objects.gang_jobs import LONGEST_NAME
from rota.drivers.kubernetes.objects.pod_annotations import HELD, PREFIX

Json = dict[str, Any]
JOBS = "/apis/batch/v1"
_NUMBER = re.compile("[0-9]{1,9}")


async def all_makers(api: Api, namespace: str) -> list[Json]:
    """Jobs whose pods Rota schedules: in all namespaces if the user may list them, else in the user's own."""
    for path in (f"{JOBS}/jobs", f"{JOBS}/namespaces/{namespace}/jobs"):
        try:
            found, _ = await api.everything(path)
        except MissingRight:
            continue
        return [value for value in found if _is_ours(value)]
    return []


def _is_ours(value: Json) -> bool:
    labels = value["metadata"].get("labels") or {}
    return PREFIX + "submitted" in labels or held_tasks(value) is not None


def held_tasks(value: Json) -> int | None:
    """The number of pods that a held Job would create; None if it is not held."""
    annotation = (value["metadata"].get("annotations") or {}).get(HELD, "")
    return int(annotation) if _NUMBER.fullmatch(annotation) else None


def has_ended(value: Json) -> bool:
    """Whether a Job has ended."""
    conditions = (value.get("status") or {}).get("conditions") or ()
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)


def id_of(value: Json) -> str:
    """The id that Rota gives to the job of a Job object."""
    meta = value["metadata"]
    label = (meta.get("labels") or {}).get(PREFIX + "job")
    return label or f"{meta['name'][:LONGEST_NAME]}-{meta['uid'][:8]}"


def name_of(value: Json) -> str:
    """The display name of the job."""
    notes = value["spec"]["template"]["metadata"].get("annotations") or {}
    return str(notes.get(PREFIX + "name") or value["metadata"]["name"])


def as_held(value: Json) -> Json:
    """A Job that creates no pods until it is released."""
    meta, spec = value["metadata"], value["spec"]
    notes = {**(meta.get("annotations") or {}), HELD: str(spec["parallelism"])}
    return {**value, "metadata": {**meta, "annotations": notes}, "spec": {**spec, "parallelism": 0}}


async def make(api: Api, objects: Iterable[Json], *, dry_run: bool = False) -> list[Json]:
    """Create the objects of one job; secrets are owned by the Job and deleted with it."""
    params = {"dryRun": "All"} if dry_run else {}
    made = [await api.post(f"{_home(value)}", value, **params) for value in objects]
    jobs = [value for value in made if value["kind"] == "Job"]
    for value in made:
        if value["kind"] == "Secret" and not dry_run:
            owner = {"apiVersion": "batch/v1", "kind": "Job"}
            owner |= {key: jobs[0]["metadata"][key] for key in ("name", "uid")}
            await api.patch(f"{_home(value)}/{value['metadata']['name']}", {"metadata": {"ownerReferences": [owner]}})
    return made


def _home(value: Json) -> str:
    where = f"namespaces/{value['metadata']['namespace']}"
    return f"{JOBS}/{where}/jobs" if value["kind"] == "Job" else f"/api/v1/{where}/secrets"


def path_of(value: Json) -> str:
    """The path of a Job."""
    return f"{JOBS}/namespaces/{value['metadata']['namespace']}/jobs/{value['metadata']['name']}"


async def hold(api: Api, makers: list[Json]) -> None:
    """Suspend Jobs; their waiting pods are deleted."""
    for value in makers:
        if held_tasks(value) is None:
            change = {"metadata": {"annotations": {HELD: str(value["spec"].get("parallelism", 1))}}}
            await api.patch(path_of(value), {**change, "spec": {"parallelism": 0}})


async def release(api: Api, makers: list[Json]) -> None:
    """Release held Jobs."""
    for value in makers:
        tasks = held_tasks(value)
        if tasks is not None:
            change = {"metadata": {"annotations": {HELD: None}}, "spec": {"parallelism": tasks}}
            await api.patch(path_of(value), change)


async def delete(api: Api, path: str) -> None:
    """Delete an object with its dependents; it may be gone already."""
    try:
        await api.delete(path, {"propagationPolicy": "Background"})
    except ApiRefused as error:
        if error.status != 404:
            raise


async def of_owner(api: Api, namespace: str, names: Iterable[tuple[str, str]]) -> list[Json]:
    """The Jobs behind a job by kind and name; other kinds of controllers can't be held."""
    found = []
    for kind, name in names:
        if kind != "Job":
            raise RotaError(f"its pods are created by {kind} {name}; only jobs created by a Job can be held")
        found.append(await api.get(f"{JOBS}/namespaces/{namespace}/jobs/{name}"))
    if not found:
        raise RotaError("it has no controller; only jobs created by a Job can be held")
    return found
