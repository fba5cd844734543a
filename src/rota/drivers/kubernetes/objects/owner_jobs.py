"""The Jobs behind jobs, as their users handle them: made, held, released and deleted with the user's own rights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rota.core.errors import RotaError
from rota.drivers.kubernetes.api.client import Api, ApiRefused, MissingRight
from rota.drivers.kubernetes.objects.gang_jobs import LONGEST_NAME
from rota.drivers.kubernetes.objects.pod_annotations import HELD, PREFIX

Json = dict[str, Any]
JOBS = "/apis/batch/v1"


async def all_makers(api: Api, namespace: str) -> list[Json]:
    """Jobs whose pods are Rota's: of all namespaces if the user may see them, otherwise of their own."""
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
    """How many pods a Job would make if it were not held; None if it is not."""
    said = (value["metadata"].get("annotations") or {}).get(HELD, "")
    return int(said) if said.isdigit() else None


def has_ended(value: Json) -> bool:
    """Whether a Job makes no more pods."""
    conditions = (value.get("status") or {}).get("conditions") or ()
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)


def id_of(value: Json) -> str:
    """The id of the job that a Job makes pods of, as Rota would name it."""
    meta = value["metadata"]
    label = (meta.get("labels") or {}).get(PREFIX + "job")
    return label or f"{meta['name'][:LONGEST_NAME]}-{meta['uid'][:8]}"


def name_of(value: Json) -> str:
    """What people call the job."""
    notes = value["spec"]["template"]["metadata"].get("annotations") or {}
    return str(notes.get(PREFIX + "name") or value["metadata"]["name"])


def as_held(value: Json) -> Json:
    """A Job that makes no pods until it is released."""
    meta, spec = value["metadata"], value["spec"]
    notes = {**(meta.get("annotations") or {}), HELD: str(spec["parallelism"])}
    return {**value, "metadata": {**meta, "annotations": notes}, "spec": {**spec, "parallelism": 0}}


async def make(api: Api, objects: Iterable[Json], *, dry_run: bool = False) -> list[Json]:
    """Make the objects of one job; what its tasks need besides goes when they do."""
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
    """Where the API server has a Job."""
    return f"{JOBS}/namespaces/{value['metadata']['namespace']}/jobs/{value['metadata']['name']}"


async def hold(api: Api, makers: list[Json]) -> None:
    """Let Jobs make no pods for now; those that wait are deleted."""
    for value in makers:
        if held_tasks(value) is None:
            change = {"metadata": {"annotations": {HELD: str(value["spec"].get("parallelism", 1))}}}
            await api.patch(path_of(value), {**change, "spec": {"parallelism": 0}})


async def release(api: Api, makers: list[Json]) -> None:
    """Let Jobs that are held make their pods."""
    for value in makers:
        tasks = held_tasks(value)
        if tasks is not None:
            change = {"metadata": {"annotations": {HELD: None}}, "spec": {"parallelism": tasks}}
            await api.patch(path_of(value), change)


async def delete(api: Api, path: str) -> None:
    """Delete something with all that it has made; it may be gone already."""
    try:
        await api.delete(path, {"propagationPolicy": "Background"})
    except ApiRefused as error:
        if error.status != 404:
            raise


async def of_owner(api: Api, namespace: str, names: Iterable[tuple[str, str]]) -> list[Json]:
    """Jobs by kind and name; another kind of controller can't be held by its pods' scheduler."""
    found = []
    for kind, name in names:
        if kind != "Job":
            raise RotaError(f"its pods are made by {kind} {name}; only jobs that a Job makes can be held")
        found.append(await api.get(f"{JOBS}/namespaces/{namespace}/jobs/{name}"))
    if not found:
        raise RotaError("nobody would make its pods anew; only jobs that a Job makes can be held")
    return found
