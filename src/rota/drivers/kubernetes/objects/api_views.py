"""Gangs and nodes in the form of the manager's API."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any

from rota.core.model.job import WHOLE
from rota.drivers.kubernetes.gangs.gang import Gang, rank
from rota.drivers.kubernetes.objects.gang_jobs import is_elastic, job_id, job_name
from rota.drivers.kubernetes.objects.nodes import node_seen
from rota.drivers.kubernetes.objects.owner_jobs import held_tasks, id_of, name_of
from rota.drivers.kubernetes.objects.pod_annotations import PREFIX, RANK
from rota.drivers.kubernetes.objects.pods import Pod, PodPhase, devices_asked
from rota.drivers.kubernetes.settings import ClusterSettings

Json = dict[str, Any]
EXPECTED = PREFIX + "ExpectedStart"
"""The condition of a job's first pod that holds its expected start as JSON."""
FINAL = ("succeeded", "failed", "cancelled")
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


def node_shown(value: Json, held: dict[str, int], settings: ClusterSettings) -> Json:
    """A node in the API's form; `held` are allocated devices by node."""
    seen = node_seen(value, settings)
    node = seen.node
    return {
        "id": node.id,
        "type": node.device_type,
        "gpus": node.devices,
        "free_gpus": max(node.devices - held.get(str(node.id), 0), 0),
        "cpus": (node.cpu_milli or 0) / 1000,
        "memory_bytes": node.memory_bytes,
        "state": "down" if not seen.ready else "drained" if seen.cordoned else "up",
        "limits": "kept by Kubernetes",
    }


def main_container(value: Json, devices: Collection[str]) -> str:
    """The container of a pod that does its work: the one it names for kubectl, one with devices, or the first."""
    containers = value["spec"]["containers"]
    named = (value["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER)
    if any(each["name"] == named for each in containers):
        return str(named)
    with_devices = (each for each in containers if any(name in devices for name in _amounts(each)))
    return str(next(with_devices, containers[0])["name"])


def _amounts(container: Json) -> Json:
    resources = container.get("resources") or {}
    return {**(resources.get("requests") or {}), **(resources.get("limits") or {})}


def job_shown(gang: Gang, values: dict[str, Json], settings: ClusterSettings) -> Json:
    """A gang in the API's form of a job."""
    pods = sorted(gang.members.values(), key=rank)
    current = _of_last_attempt(pods)
    state = _state(current)
    started = [_moment_of(values[pod.uid], "PodScheduled") for pod in current if pod.node]
    first = pods[0]
    code, _, sentence = _why(values, current).partition(": ")
    return {
        "id": str(job_id(gang, pods)),
        "name": first.says("name") or job_name(gang, first),
        "tenant": first.namespace if settings.tenant_label is None else first.labels.get(settings.tenant_label, ""),
        "owner": first.says("user") or "",
        "state": state,
        "reason": {"code": code, "sentence": sentence} if sentence and state == "waiting" else None,
        "submitted": _iso(min(pod.created_s for pod in pods)),
        "started": min((each for each in started if each), default=None),
        "ended": _ended(values, current) if state in FINAL else None,
        "attempt": 1,
        "exit_code": next((pod.exit_code for pod in current if pod.exit_code is not None), None),
        "message": "",
        "failure": None,
        "gpus": sum(pod.wants.device_milli for pod in current) / WHOLE,
        "tasks": len(current),
        "priority": first.priority,
        "nodes": sorted({pod.node for pod in current if pod.node}),
    }


def job_to_come(made: list[Json], settings: ClusterSettings) -> Json:
    """A job whose pods do not exist yet, or not until it is released, derived from its Jobs."""
    first = made[0]
    is_held = held_tasks(first) is not None
    tasks = [held_tasks(value) or int(value["spec"].get("parallelism", 0)) for value in made]
    devices = [devices_asked(value["spec"]["template"]["spec"], settings) for value in made]
    reason = {"code": "gang-incomplete", "sentence": "its pods have not been made yet"}
    never = dict.fromkeys(("started", "ended", "exit_code", "failure"))
    return {
        **never,
        "id": id_of(first),
        "name": name_of(first),
        "tenant": first["metadata"]["namespace"],
        "owner": "",
        "state": "held" if is_held else "waiting",
        "reason": None if is_held else reason,
        "submitted": first["metadata"]["creationTimestamp"],
        "attempt": 0,
        "message": "",
        "gpus": sum(count * each for count, each in zip(tasks, devices, strict=True)),
        "tasks": sum(tasks),
        "priority": 0,
        "nodes": [],
    }


def _of_last_attempt(pods: list[Pod]) -> list[Pod]:
    """The active pods, or if there are none the ended ones; of an elastic gang only those with a slot."""
    alive = [pod for pod in pods if not pod.phase.is_over]
    bound = [pod for pod in alive if pod.node is not None] if is_elastic(pods[0]) else []
    return bound or alive or pods


def _state(pods: list[Pod]) -> str:
    if all(pod.phase.is_over for pod in pods):
        return "failed" if any(pod.phase is PodPhase.FAILED for pod in pods) else "succeeded"
    if any(pod.node is None for pod in pods):
        return "waiting" if not any(RANK in pod.annotations for pod in pods) else "starting"
    return "running" if all(pod.phase is not PodPhase.PENDING for pod in pods) else "starting"


def _why(values: dict[str, Json], pods: list[Pod]) -> str:
    for pod in pods:
        for each in (values[pod.uid].get("status") or {}).get("conditions") or ():
            if each["type"] == "PodScheduled" and each["status"] == "False":
                return str(each.get("message", ""))
    return "not-yet-considered: not yet considered by the scheduler"


def expected_start(values: Iterable[Json]) -> Json | None:
    """The expected start of a job, read from its first pod."""
    for value in values:
        for each in (value.get("status") or {}).get("conditions") or ():
            if each["type"] == EXPECTED and not value["spec"].get("nodeName"):
                detail: Json = json.loads(each["message"])
                return detail
    return None


def _moment_of(value: Json, kind: str) -> str | None:
    for each in (value.get("status") or {}).get("conditions") or ():
        if each["type"] == kind and each["status"] == "True":
            return str(each.get("lastTransitionTime"))
    return None


def _ended(values: dict[str, Json], pods: list[Pod]) -> str | None:
    ends = [
        each["state"]["terminated"]["finishedAt"]
        for pod in pods
        for each in (values[pod.uid].get("status") or {}).get("containerStatuses") or ()
        if (each.get("state") or {}).get("terminated")
    ]
    return max(ends, default=None)


def _iso(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
