"""How many pods a controller makes: read off the controllers that are known by kind."""

from __future__ import annotations

from typing import Any

from rota.drivers.kubernetes.client import Api, MissingRight, Refused
from rota.drivers.kubernetes.gang import Gang, Source
from rota.drivers.kubernetes.pods import Pod

Json = dict[str, Any]
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2"
POD_GROUPS = "/apis/rota.dev/v1alpha1"


async def ask_size(api: Api, gang: Gang, pod: Pod) -> int | None:
    """The number of pods that belong together; None if nobody can say."""
    path = owner_path(gang, pod)
    if path is None:
        return None
    try:
        return tasks_of(await api.get(path))
    except (Refused, MissingRight):
        return None


def owner_path(gang: Gang, pod: Pod) -> str | None:
    """Where the API server has the object that says how many pods there are."""
    match gang.key.source:
        case Source.GROUP:
            return f"{POD_GROUPS}/namespaces/{pod.namespace}/podgroups/{gang.key.name}"
        case Source.JOB_SET:
            return f"{JOB_SETS}/namespaces/{pod.namespace}/jobsets/{gang.key.name}"
        case Source.OWNER if pod.owner is not None:
            owner = pod.owner
            group = "api/v1" if owner.api_version == "v1" else f"apis/{owner.api_version}"
            return f"/{group}/namespaces/{pod.namespace}/{owner.kind.lower()}s/{owner.name}"
        case _:
            return None


def tasks_of(value: Json) -> int | None:
    """The pods that an object stands for: PodGroup, Job, JobSet, the trainers of Kubeflow, a Ray cluster."""
    spec = value.get("spec") or {}
    match value.get("kind"):
        case "PodGroup":
            return int(spec["minMember"]) if "minMember" in spec else None
        case "Job" if value.get("apiVersion", "").startswith("batch/"):
            return _of_job(spec)
        case "JobSet":
            return sum(
                int(part.get("replicas", 1)) * _of_job(part["template"]["spec"])
                for part in spec.get("replicatedJobs") or ()
            )
        case "RayCluster":
            groups = spec.get("workerGroupSpecs") or ()
            return 1 + sum(int(group.get("replicas", group.get("minReplicas", 0))) for group in groups)
        case _:
            parts = [part for name, part in spec.items() if name.endswith("ReplicaSpecs") and isinstance(part, dict)]
            counts = [int(role.get("replicas", 1)) for part in parts for role in part.values()]
            return sum(counts) or None


def _of_job(spec: Json) -> int:
    parallel = int(spec.get("parallelism", 1))
    completions = spec.get("completions")
    return parallel if completions is None else min(parallel, int(completions))


def has_ended(value: Json) -> bool:
    """Whether a controller will make no more pods."""
    conditions = (value.get("status") or {}).get("conditions") or ()
    return any(
        each.get("type") in ("Complete", "Failed", "Succeeded") and each.get("status") == "True" for each in conditions
    )
