"""Gangs as jobs of the engine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import attrgetter

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.job import OPPORTUNISTIC, Checkpoint, Elastic, Job, JobId, Level, Locality, Role, TenantId
from rota.drivers.kubernetes.filters.facts import NO_NEEDS
from rota.drivers.kubernetes.gangs.gang import Gang, GangSource, rank
from rota.drivers.kubernetes.objects.pod_annotations import JOB_ID, PLACE, PREFIX
from rota.drivers.kubernetes.objects.pods import Pod, PodRequests
from rota.drivers.kubernetes.objects.topology_request import TOPOLOGY_NOTES, topology_of
from rota.drivers.kubernetes.settings import ClusterSettings
from rota.files.quantities import NotAQuantity, parse_duration

_ROLE_LABELS = (
    "rota.dev/role",
    "volcano.sh/task-spec",
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/job-role",
    "ray.io/node-type",
    "jobset.sigs.k8s.io/replicatedjob-name",
)
LONGEST_NAME = 48
MOST_CONSTRAINED = 1024
"""Pods of a gang with constraints; each is a role of its own."""
_ASKED = tuple(name for name in PodRequests._fields if name not in ("needs", "refused"))
"""Requests by the same names for a role and a pod."""
_asked = attrgetter(*_ASKED)
_LEFT_OUT = (
    *(PREFIX + name for name in ("time-limit", "estimate", "relax-after", "locality", "checkpoint")),
    *TOPOLOGY_NOTES,
    *(PREFIX + name for name in ("queue", "tasks", "max-tasks", "min-tasks")),
)
"""What may be wrong about a pod that runs, in the order in which it is given up."""


def role_name(pod: Pod) -> str:
    """The role that a pod declares."""
    return next((pod.labels[label] for label in _ROLE_LABELS if pod.labels.get(label)), "worker")


def pods_by_role(pods: Iterable[Pod]) -> list[list[Pod]]:
    """The pods of each role, in rank order.

    Pods with different requests have different roles. If one of them has constraints, each is a role of its own.
    """
    found: dict[tuple[str, PodRequests], list[Pod]] = {}
    for pod in pods:
        found.setdefault((role_name(pod), pod.wants), []).append(pod)
    ordered = sorted(found.items(), key=lambda entry: (entry[0][0], -entry[0][1].device_milli, repr(entry[0][1])))
    groups = [sorted(group, key=rank) for _, group in ordered]
    if any(group[0].wants.needs is not NO_NEEDS for group in groups):
        return [[pod] for group in groups for pod in group]
    return groups


def role_indexes(gang: Gang, pod: Pod) -> list[int]:
    """The roles that a pod may take in the job of its gang: those of pods like it, else those with equal requests."""
    assert gang.job is not None
    roles = gang.job.roles
    alike = [index for index, wants in enumerate(gang.role_requests) if wants == pod.wants and not wants.refused]
    found = alike or [index for index, role in enumerate(roles) if _same(role, pod)]
    named = [index for index in found if _has_name(roles[index], pod)]
    return (named or found) if len(roles) == len(gang.role_requests) else (named or found)[:1]


def role_index(job: Job, pod: Pod) -> int | None:
    """The role of a pod in a job; None if no role matches its requests."""
    found = [index for index, role in enumerate(job.roles) if _same(role, pod)]
    return next((index for index in found if _has_name(job.roles[index], pod)), found[0] if found else None)


def _has_name(role: Role, pod: Pod) -> bool:
    return role.name == role_name(pod) or role.name.startswith(f"{role_name(pod)}-")


def _same(role: Role, pod: Pod) -> bool:
    return not pod.wants.refused and bool(_asked(widened(role)) == _asked(pod.wants))


def widened(role: Role) -> Role:
    """Return a role as its pods ask for it, without the nodes that it was kept to."""
    if not any(rule.key == PLACE for term in role.requires for rule in term):
        return role
    terms = tuple(tuple(rule for rule in term if rule.key != PLACE) for term in role.requires)
    return replace(role, requires=() if terms == ((),) else terms)


def job_of(gang: Gang, pods: list[Pod], settings: ClusterSettings, job_id: JobId) -> Job:
    """The gang as a job; `pods` are its complete members."""
    first = pods[0]
    _check_numbers(first)
    elastic = _elastic(first, len(pods))
    _check_constraints(pods, elastic, settings)
    topology_of(first, settings.topology)  # a level that is not known refuses the job
    roles: list[Role] = []
    taken: dict[str, int] = {}
    for group in pods_by_role(pods):
        name = role_name(group[0])
        taken[name] = taken.get(name, 0) + 1
        unique = name if taken[name] == 1 else f"{name}-{taken[name]}"
        asked = dict(zip(_ASKED, _asked(group[0].wants), strict=True))
        roles.append(Role(name=unique, count=len(group), **asked))
    if elastic is not None and len(roles) == 1:
        usual = min(first.number("tasks") or len(pods), elastic.max_tasks)
        roles = [replace(roles[0], count=usual)]
    return Job(
        id=job_id,
        name=job_name(gang, first),
        tenant=TenantId(tenant_of(first, settings)),
        user=user_of(first),
        priority=OPPORTUNISTIC if first.says("class") == "opportunistic" else max(first.priority, OPPORTUNISTIC),
        roles=tuple(roles),
        elastic=elastic if len(roles) == 1 else None,
        exclusive=first.says("exclusive") == "true",
        locality=_locality(first),
        time_limit_s=_seconds(first, "time-limit"),
        estimate_s=_seconds(first, "estimate"),
        checkpoint=_checkpoint(first),
        preempts=all(pod.preempts for pod in pods),
        labels=_labels(first),
        model=first.says("model") or None,
    )


def job_that_runs(gang: Gang, pods: list[Pod], settings: ClusterSettings, job_id: JobId) -> Job:
    """The same for pods that run already: what makes no sense, or no longer under these settings, is left out."""
    left_out: set[str] = set()
    for name in ("", *_LEFT_OUT):
        left_out.add(name)
        try:
            return job_of(gang, [_without(pod, left_out) for pod in pods], settings, job_id)
        except RotaError as error:
            why = error
    raise why


def _without(pod: Pod, left_out: set[str]) -> Pod:
    """A pod without some of its annotations and labels."""
    if not any(name in pod.annotations or name in pod.labels for name in left_out):
        return pod
    annotations, labels = (
        {name: value for name, value in notes.items() if name not in left_out}
        for notes in (pod.annotations, pod.labels)
    )
    return replace(pod, annotations=annotations, labels=labels)


def _checkpoint(pod: Pod) -> Checkpoint:
    """What a stop costs: nothing, unless `rota.dev/checkpoint` is `none`, so that the job starts over."""
    says = pod.says("checkpoint")
    if says not in (None, "", "none"):
        raise RotaError(
            f"rota.dev/checkpoint is {says!r}; it can only be 'none': the job saves nothing and starts over"
        )
    return Checkpoint(interval_s=math.inf if says else 0.0, grace_s=pod.grace_s)


def _locality(pod: Pod) -> Locality | None:
    """The locality in `rota.dev/locality`: `rack`, or `rack:hard`."""
    level, _, hard = (pod.says("locality") or "").partition(":")
    if not level:
        return None
    if level.upper() not in Level.__members__:
        raise RotaError(f"rota.dev/locality is {level!r}; {did_you_mean(level, [each.name.lower() for each in Level])}")
    relax_s = _seconds(pod, "relax-after")
    return Locality(
        level=Level[level.upper()], hard=hard == "hard", relax_after_s=math.inf if relax_s is None else relax_s
    )


def _seconds(pod: Pod, name: str) -> float | None:
    value = pod.says(name)
    try:
        return None if value is None else parse_duration(value)
    except NotAQuantity as error:
        raise RotaError(f"{PREFIX}{name} is {error}") from error


def _check_numbers(pod: Pod) -> None:
    for name in ("tasks", "min-tasks", "max-tasks"):
        value = pod.says(name)
        if value is not None and pod.number(name) is None:
            raise RotaError(f"{PREFIX}{name} is {value!r}; write a whole number above 0")


def _check_constraints(pods: list[Pod], elastic: Elastic | None, settings: ClusterSettings) -> None:
    """Refuse combinations that can't be kept."""
    if all(pod.wants.needs is NO_NEEDS for pod in pods):
        return
    if elastic is not None:
        raise RotaError(
            f"{PREFIX}min-tasks makes it elastic, which volumes, host ports, pod affinity, spread constraints and "
            "other resources than devices do not allow; give it a fixed size"
        )
    if settings.tenancy == "cells":
        raise RotaError(
            "tenancy is 'cells', which does not allow volumes, host ports, pod affinity, spread constraints or other "
            "resources than devices"
        )
    if len(pods) > MOST_CONSTRAINED:
        raise RotaError(f"{len(pods)} pods have constraints; a gang may have {MOST_CONSTRAINED} such pods")


def is_elastic(pod: Pod) -> bool:
    """Whether its gang is elastic."""
    return pod.number("min-tasks") is not None


def _elastic(pod: Pod, pods: int) -> Elastic | None:
    """The elastic bounds of a pod, at most the number of pods."""
    least = pod.number("min-tasks")
    if least is None:
        return None
    most = min(pod.number("max-tasks") or pods, pods)
    return Elastic(min_tasks=min(least, most), max_tasks=most)


def user_of(pod: Pod) -> str:
    """The user in whose name a pod is: the one that it states, or its namespace."""
    return pod.says("user") or pod.namespace


def tenant_of(pod: Pod, settings: ClusterSettings) -> str:
    """The tenant of a pod: the one that it states, its queue, or its namespace."""
    named = pod.annotations.get(PREFIX + "tenant")
    if named is not None:
        return named
    queue = _queue(pod, settings)
    if queue is not None:
        return queue
    if settings.tenant_label is None:
        return pod.namespace
    return pod.labels.get(settings.tenant_label) or pod.annotations.get(settings.tenant_label) or pod.namespace


def _queue(pod: Pod, settings: ClusterSettings) -> str | None:
    """Return the Queue of its namespace that a pod names, or the only one; None if the namespace has none."""
    known = settings.queues.get(pod.namespace, ())
    wanted = pod.says("queue")
    if wanted is None:
        return known[0] if len(known) == 1 else None
    if wanted not in known:
        raise RotaError(f"{PREFIX}queue is {wanted!r}; namespace {pod.namespace} has: {', '.join(known) or 'no Queue'}")
    return wanted


def _labels(pod: Pod) -> tuple[tuple[str, str], ...]:
    """Labels for tenancy (`rota.dev/pinned-cell`, `rota.dev/lazy-preemption`) and the job's model."""
    names = {"pinned_cell": "pinned-cell", "lazy_preemption": "lazy-preemption", "model": "model"}
    stated = ((name, pod.says(label)) for name, label in names.items())
    return tuple((name, value) for name, value in stated if value)


def job_name(gang: Gang, pod: Pod) -> str:
    """The display name."""
    match gang.key.source:
        case GangSource.POD:
            return pod.name
        case GangSource.OWNER:
            return pod.owner.name if pod.owner is not None else pod.name
        case GangSource.TRAINER:
            return gang.key.name.partition("/")[2]
        case _:
            return gang.key.name


def job_id(gang: Gang, pods: list[Pod]) -> JobId:
    """A name that is stable over restarts: it contains the owner's id, or that of the oldest pod."""
    for pod in gang.members.values():
        if JOB_ID in pod.annotations:
            return JobId(pod.annotations[JOB_ID])
    oldest = min(pods, key=lambda pod: (pod.created_s, rank(pod)))
    mark = gang.key.name if gang.key.source is GangSource.OWNER else oldest.uid
    return JobId(f"{job_name(gang, oldest)[:LONGEST_NAME]}-{mark[:8]}")


def spec_of(job: Job, namespace: str) -> Mapping[str, object]:
    """A job in the form of a job file, for display."""
    return {
        "name": job.name,
        "tenant": str(job.tenant),
        "priority": job.priority,
        "namespace": namespace,
        "roles": {
            role.name: {"count": role.count, "gpus": role.device_milli / 1000, "cpus": role.cpu_milli / 1000}
            for role in job.roles
        },
    }
