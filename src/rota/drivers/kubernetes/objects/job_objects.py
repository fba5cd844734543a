"""A job file as Kubernetes objects: one Job per role, whose pods start together and receive their devices."""

from __future__ import annotations

import math
import re
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.job import OPPORTUNISTIC, WHOLE, Job, JobId, Level, Role
from rota.drivers.kubernetes.objects.pod_annotations import (
    DEVICES,
    GPU,
    GPU_MEMORY,
    JOB_ID,
    LINK_VARIABLES,
    PLAN,
    PLAN_VARIABLES,
    PREFIX,
    RANK,
    SIZE,
)
from rota.files.job import Launch, RoleRun, job_of, launch_of
from rota.files.job_shape import CompletionPart, JobFile, Secret
from rota.network.link_guide import NCCL_ALGORITHMS
from rota.planner.parallel.model_names import is_planned

Json = dict[str, Any]
_ODD = re.compile(r"[^a-z0-9-]+")
MANY_RETRIES = 1000
"""Default retries of a Job; preempted pods are not counted."""


def refuse_what_cannot_be(file: JobFile) -> None:
    """Refuse a field that pods can't honour, naming it."""
    fraction = any(role.is_fraction for role in job_of(file, JobId("job")).roles)
    refused = (
        ("image", file.image is None, "is missing: pods run containers, name an image"),
        (
            "data",
            bool(file.data),
            "names data sets, which pods do not have; mount a PersistentVolumeClaim by `volumes`",
        ),
        ("depends_on", bool(file.depends_on), "is not known to Kubernetes; submit the job when the others are through"),
        ("deadline", file.deadline is not None, "is not known to Kubernetes; leave it out"),
        ("gpus", fraction, "must be whole: Kubernetes counts whole devices"),
        ("array", file.array is not None, "is not made of pods; submit the jobs one by one"),
        ("gang", not file.gang, "is false: the tasks of a Job start together; submit them as jobs of their own"),
        (
            "interactive",
            file.interactive is not None and file.interactive.idle is not None,
            "has `idle`, which pods do not know; leave it out, or set a time_limit",
        ),
        (
            "completion",
            any(part != CompletionPart() for part in _completions(file)),
            "is not known to a Job; leave it out",
        ),
        (
            "priority",
            (file.priority or 0) > 0,
            "above 0 comes from a PriorityClass; name one with labels.priority_class",
        ),
    )
    for field, is_odd, why in refused:
        if is_odd:
            raise RotaError(f"job: {field} {why}")
    if file.checkpoint is not None and file.checkpoint.signal != "SIGTERM":
        raise RotaError(f"job: checkpoint.signal is {file.checkpoint.signal}; pods are told to stop with SIGTERM")


def objects_of(
    file: JobFile, unique: str, namespace: str, *, user: str | None = None, queue: str | None = None
) -> list[Json]:
    """The Jobs of a job file and their secrets; `unique` distinguishes them from others of the same name.

    The pods are in the name of a user and in a queue of the namespace where these are given.
    """
    refuse_what_cannot_be(file)
    job = job_of(file, JobId(unique))
    launch = launch_of(file, JobId(unique))
    name = object_name(launch.name, unique)
    pairs = list(zip(job.roles, launch.roles, strict=True))
    said = {PREFIX + what: name for what, name in (("user", user), ("queue", queue)) if name is not None}
    made = [_job(file, job, launch, role, run, name, namespace, said) for role, run in pairs]
    hidden = {_key(run, each): run.env[each] for _, run in pairs for each in _secrets(file, run)}
    if hidden:
        metadata = {"name": name, "namespace": namespace, "labels": {PREFIX + "job": name}}
        made.append({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": hidden})
    return made


def _completions(file: JobFile) -> list[CompletionPart]:
    return [file.completion, *(role.completion for role in file.roles.values())]


def _secrets(file: JobFile, run: RoleRun) -> list[str]:
    """The secret environment variables of a role."""
    own = file.roles[run.name].env if run.name in file.roles else {}
    return [name for name, value in {**file.env, **own}.items() if isinstance(value, Secret)]


def _key(run: RoleRun, variable: str) -> str:
    return f"{run.name}.{variable}"


def object_name(name: str, unique: str) -> str:
    """A valid Kubernetes name."""
    plain = _ODD.sub("-", name.lower()).strip("-")[:40] or "job"
    return f"{plain}-{unique}"


def _job(
    file: JobFile, job: Job, launch: Launch, role: Role, run: RoleRun, name: str, namespace: str, said: dict[str, str]
) -> Json:
    labels = {PREFIX + "job": name, PREFIX + "role": role.name, PREFIX + "tasks": str(job.tasks)}
    if job.elastic is not None:
        labels |= {PREFIX + "min-tasks": str(job.elastic.min_tasks), PREFIX + "max-tasks": str(job.elastic.max_tasks)}
    if "pinned_cell" in file.labels:
        labels[PREFIX + "pinned-cell"] = file.labels["pinned_cell"]
    template = {
        "metadata": {
            "labels": labels,
            "annotations": {**_wishes(file, job), **_types(role), **_own_plan(launch), JOB_ID: name, **said},
        },
        "spec": _pod_spec(file, launch, role, run, job, name),
    }
    pods = role.count if job.elastic is None else job.elastic.max_tasks
    completions = {"completions": pods} if job.elastic is None else {}
    spec = {
        "parallelism": pods,
        **completions,
        "backoffLimit": MANY_RETRIES if launch.max_restarts is None else launch.max_restarts * role.count,
        "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]},
        "template": template,
    }
    own = name if len(job.roles) == 1 else f"{name}-{_ODD.sub('-', role.name.lower())}"
    metadata = {"name": own, "namespace": namespace, "labels": {**labels, PREFIX + "submitted": "true"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _own_plan(launch: Launch) -> dict[str, str]:
    return {} if launch.plan is None else {PLAN: launch.plan}


def _types(role: Role) -> dict[str, str]:
    notes = {GPU: ",".join(role.device_types)} if role.device_types else {}
    return {**notes, GPU_MEMORY: str(role.device_memory_bytes)} if role.device_memory_bytes else notes


def _wishes(file: JobFile, job: Job) -> dict[str, str]:
    """Rota's labels and annotations of a pod."""
    wishes = {PREFIX + "name": job.name}
    if job.priority == OPPORTUNISTIC:
        wishes[PREFIX + "class"] = "opportunistic"
    if job.exclusive:
        wishes[PREFIX + "exclusive"] = "true"
    if job.time_limit_s is not None:
        wishes[PREFIX + "time-limit"] = f"{job.time_limit_s:g}"
    if job.estimate_s is not None:
        wishes[PREFIX + "estimate"] = f"{job.estimate_s:g}"
    if job.locality is not None:
        wishes[PREFIX + "locality"] = Level(job.locality.level).name.lower() + (":hard" if job.locality.hard else "")
        if job.locality.relax_after_s != math.inf:
            wishes[PREFIX + "relax-after"] = f"{job.locality.relax_after_s:g}"
    model = file.model or file.labels.get("model")
    if model:
        wishes[PREFIX + "model"] = model
    return wishes


def _pod_spec(file: JobFile, launch: Launch, role: Role, run: RoleRun, job: Job, name: str) -> Json:
    resources: Json = {"requests": {}, "limits": {}}
    if role.device_milli:
        resources["limits"]["nvidia.com/gpu"] = str(role.device_milli // WHOLE)
    if role.cpu_milli:
        resources["requests"]["cpu"] = f"{role.cpu_milli}m"
    if role.memory_bytes:
        resources["requests"]["memory"] = resources["limits"]["memory"] = str(role.memory_bytes)
    mounts, volumes = _volumes(file)
    container: Json = {
        "name": "task",
        "image": file.image,
        "command": list(run.argv),
        "env": _environment(launch, run, job, {each: _key(run, each) for each in _secrets(file, run)}, name),
        "resources": resources,
        "volumeMounts": mounts,
    }
    if file.interactive is not None:
        # pipes end with the first client that ends them, a terminal is come back to
        container |= {"stdin": True, "tty": file.interactive.tty, "stdinOnce": not file.interactive.tty}
    if (
        launch.workdir is not None
        and launch.workdir.startswith("/")
        and any(launch.workdir.startswith(mount["mountPath"]) for mount in mounts)
    ):
        container["workingDir"] = launch.workdir
    spec: Json = {
        "schedulerName": "rota",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(launch.grace_s),
        "containers": [container],
        "volumes": volumes,
    }
    if "priority_class" in file.labels:
        spec["priorityClassName"] = file.labels["priority_class"]
    return spec


def _environment(launch: Launch, run: RoleRun, job: Job, hidden: dict[str, str], name: str) -> list[Json]:
    """The environment of a task; values known only at binding come from annotations."""
    found = {"ROTA_JOB_ID": JOB_ID, "ROTA_RANK": RANK, "RANK": RANK, "NVIDIA_VISIBLE_DEVICES": DEVICES}
    plain = {"ROTA_JOB_NAME": launch.name, "ROTA_ROLE": run.name}
    if job.elastic is None:
        plain |= {"ROTA_TASKS": str(job.tasks), "WORLD_SIZE": str(job.tasks), "ROTA_ROLE_TASKS": str(run.count)}
    else:
        found |= dict.fromkeys(("ROTA_TASKS", "WORLD_SIZE", "ROTA_ROLE_TASKS"), SIZE)
    if launch.plan is not None or is_planned(job.model):
        found |= PLAN_VARIABLES
    if job.tasks > 1:
        found |= LINK_VARIABLES
        algorithm = NCCL_ALGORITHMS.get(dict(job.labels).get("collective", ""))
        plain |= {} if algorithm is None else {"NCCL_ALGO": algorithm}
    if launch.checkpoint_path is not None:
        plain["ROTA_CHECKPOINT"] = launch.checkpoint_path
    variables = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{note}']"}}}
        for name, note in found.items()
    ]
    variables.append({"name": "ROTA_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    variables += [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}
        for variable, key in hidden.items()
    ]
    shown = {variable: value for variable, value in {**plain, **run.env}.items() if variable not in hidden}
    return variables + [{"name": variable, "value": value} for variable, value in shown.items()]


def _volumes(file: JobFile) -> tuple[list[Json], list[Json]]:
    """`/data:/data:ro` is a folder of the node, `claim:/data` a PersistentVolumeClaim."""
    mounts, volumes = [], []
    for number, text in enumerate(file.volumes):
        source, _, rest = text.partition(":")
        target, _, mode = rest.partition(":")
        if not source or not target.startswith("/") or mode not in ("", "ro", "rw"):
            raise RotaError(f"job: volumes[{number}] is {text!r}; write it like /data:/data:ro or claim:/data")
        name = f"volume-{number}"
        mounts.append({"name": name, "mountPath": target, "readOnly": mode == "ro"})
        is_path = source.startswith("/")
        origin = {"hostPath": {"path": source}} if is_path else {"persistentVolumeClaim": {"claimName": source}}
        volumes.append({"name": name, **origin})
    return mounts, volumes
