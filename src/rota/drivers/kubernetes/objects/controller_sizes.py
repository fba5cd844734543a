"""Gang sizes from the controllers that Rota knows by kind."""

from __future__ import annotations

import math
import re
from typing import Any
from urllib.parse import quote

from rota.drivers.kubernetes.api.client import Api, ApiRefused, MissingRight
from rota.drivers.kubernetes.gangs.gang import Gang, GangSource
from rota.drivers.kubernetes.objects.pods import MOST_TASKS, PodOwner
from rota.drivers.kubernetes.objects.reading import NONSENSE, uid_of

Json = dict[str, Any]
_VERSION = re.compile(r"v1|[a-z0-9.-]+/v[a-z0-9]+", re.ASCII)
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*", re.ASCII)
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2"
POD_GROUPS = "/apis/rota.dev/v1alpha1"
GROUPS_OF_OTHERS = {
    GangSource.VOLCANO: "/apis/scheduling.volcano.sh/v1beta1",
    GangSource.KAI: "/apis/scheduling.run.ai/v2alpha2",
}


async def ask_size(api: Api, gang: Gang) -> int | None:
    """The size of a gang; None if it is unknown. Retries while the server is busy or unreachable."""
    path = owner_path(gang)
    if path is None:
        return None
    try:
        value = await api.patiently("GET", path, None, within_s=math.inf)
    except (ApiRefused, MissingRight):
        return None
    return tasks_of(value) if made(gang, value) else None


def made(gang: Gang, value: Json) -> bool:
    """Whether an object owns these pods; another object may have its name after a deletion."""
    owner = gang.owner if gang.key.source is GangSource.OWNER else None
    return owner is None or uid_of(value) == owner.uid


def owner_path(gang: Gang) -> str | None:
    """The path of the object that states the number of pods."""
    where = f"namespaces/{gang.key.namespace}"
    match gang.key.source:
        case GangSource.GROUP:
            return f"{POD_GROUPS}/{where}/podgroups/{quote(gang.key.name, safe='')}"
        case GangSource.VOLCANO | GangSource.KAI:
            return f"{GROUPS_OF_OTHERS[gang.key.source]}/{where}/podgroups/{quote(gang.key.name, safe='')}"
        case GangSource.JOB_SET:
            return f"{JOB_SETS}/{where}/jobsets/{quote(gang.key.name, safe='')}"
        case GangSource.OWNER | GangSource.TRAINER:
            return maker_path(gang)
        case _:
            return None


def maker_path(gang: Gang) -> str | None:
    """The path of the controller that would recreate pods of a gang."""
    owners = _owners(gang)
    if gang.key.source is GangSource.TRAINER:
        owners = [each for each in owners if each.api_version.startswith("kubeflow.org/")]
    if not owners:
        return None
    owner = owners[0]
    if not (_VERSION.fullmatch(owner.api_version) and _KIND.fullmatch(owner.kind)):
        return None  # it would be a path of its writer's choice, read with Rota's rights
    group = "api/v1" if owner.api_version == "v1" else f"apis/{owner.api_version}"
    return f"/{group}/namespaces/{gang.key.namespace}/{owner.kind.lower()}s/{quote(owner.name, safe='')}"


def _owners(gang: Gang) -> list[PodOwner]:
    owners = (*(pod.owner for pod in gang.members.values()), gang.owner)
    return [owner for owner in owners if owner is not None]


def tasks_of(value: Json) -> int | None:
    """The number of pods of a PodGroup, Job, JobSet, Kubeflow training job or Ray cluster; None if it is nonsense."""
    try:
        tasks = _tasks(value)
    except NONSENSE:
        return None
    return tasks if tasks is not None and 0 <= tasks <= MOST_TASKS else None


def _tasks(value: Json) -> int | None:
    spec = value.get("spec") or {}
    match value.get("kind"):
        case "PodGroup":
            return int(spec["minMember"]) if "minMember" in spec else None
        case "Job" if value.get("apiVersion", "").startswith("batch/"):
            return _of_job(spec)
        case "JobSet":
            return sum(int(part.get("replicas", 1)) * _of_job(part["template"]["spec"]) for part in _at_first(spec))
        case "RayCluster":
            return 1 + sum(_of_group(group, spec) for group in spec.get("workerGroupSpecs") or ())
        case _:
            parts = [part for name, part in spec.items() if name.endswith("ReplicaSpecs") and isinstance(part, dict)]
            counts = {name: int(role.get("replicas", 1)) for part in parts for name, role in part.items()}
            if spec.get("launcherCreationPolicy") == "WaitForWorkersReady":
                counts.pop("Launcher", None)
            return sum(counts.values()) or None


def _at_first(spec: Json) -> list[Json]:
    """The replicated jobs of a JobSet that are created at once, not after others are ready."""
    parts = [part for part in spec.get("replicatedJobs") or () if not part.get("dependsOn")]
    in_order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    return parts[:1] if in_order else parts


def _of_group(group: Json, spec: Json) -> int:
    """The pods of a Ray worker group; under Ray's autoscaler, its minimum."""
    if group.get("suspend"):
        return 0
    least = int(group.get("minReplicas", 0))
    replicas = least if spec.get("enableInTreeAutoscaling") else int(group.get("replicas", least))
    return replicas * int(group.get("numOfHosts", 1))


def _of_job(spec: Json) -> int:
    parallel = int(spec.get("parallelism", 1))
    completions = spec.get("completions")
    return parallel if completions is None else min(parallel, int(completions))


def has_ended(value: Json) -> bool:
    """Whether a controller has ended."""
    try:
        conditions = (value.get("status") or {}).get("conditions") or ()
        return any(
            each.get("type") in ("Complete", "Completed", "Failed", "Succeeded") and each.get("status") == "True"
            for each in conditions
        )
    except NONSENSE:
        return False


def owes_pods(value: Json) -> bool:
    """Whether a Job of Kubernetes has fewer pods than it will have: it makes them after a back-off of up to minutes."""
    try:
        spec, status = value.get("spec") or {}, value.get("status") or {}
        if value.get("kind") != "Job" or spec.get("suspend") or value["metadata"].get("deletionTimestamp"):
            return False
        wanted = int(spec.get("parallelism", 1))
        if spec.get("completions") is not None:
            wanted = min(wanted, int(spec["completions"]) - int(status.get("succeeded") or 0))
        return not has_ended(value) and int(status.get("active") or 0) < wanted
    except NONSENSE:
        return False
