"""A gang: pods that are one job. All of them are bound or none, and each has a seat while the job holds its devices."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from rota.core.decisions import Cause
from rota.core.errors import RotaError, did_you_mean
from rota.core.events import Event
from rota.core.model import OPPORTUNISTIC, Checkpoint, Elastic, Job, JobId, Level, Locality, Role, TenantId
from rota.core.placement import Placement
from rota.core.seats import Seat
from rota.drivers.kubernetes.notes import JOB_ID, LATE, PREFIX
from rota.drivers.kubernetes.pods import Owner, Phase, Pod, Wants
from rota.drivers.kubernetes.settings import ClusterSettings
from rota.files.quantities import parse_duration

_ALONE = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Node", "Deployment"})
"""Controllers whose pods do not wait for each other: each is a job of its own."""
GROUP_LABELS = ("rota.dev/pod-group", "scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io/name")
_ROLE_LABELS = (
    "rota.dev/role",
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/job-role",
    "ray.io/node-type",
    "jobset.sigs.k8s.io/replicatedjob-name",
)
_JOB_SET_LABEL = "jobset.sigs.k8s.io/jobset-name"
_TRAINER_LABELS = ("training.kubeflow.org/operator-name", "training.kubeflow.org/job-name")
_DIGITS = re.compile(r"(\d+)")
LONGEST_NAME = 48


class Stage(Enum):
    """Where a gang stands with the engine."""

    GATHERING = "gathering"
    """Pods are missing; the engine does not know of it, or holds it back."""
    WAITING = "waiting"
    SEATED = "seated"
    """It was started: pods are being bound, or run."""
    LEAVING = "leaving"
    """Its pods were told to go."""
    OVER = "over"


class Source(Enum):
    """What makes pods a gang."""

    POD = "pod"
    OWNER = "owner"
    LABEL = "label"
    GROUP = "group"
    JOB_SET = "jobset"
    TRAINER = "trainer"


class GangKey(NamedTuple):
    """What pods of one gang have in common."""

    namespace: str
    source: Source
    name: str


@dataclass(slots=True)
class Place:
    """A seat and who has it. `bound` once the API server has taken the pod there, `outcome` once that has ended."""

    seat: Seat
    pod: str | None = None
    bound: bool = False
    outcome: Phase | None = None

    @property
    def is_open(self) -> bool:
        """Whether a pod may take it: nobody has it, or whoever had it has ended."""
        return self.pod is None or self.outcome is not None

    def take(self, pod: Pod) -> None:
        """Give it to a pod."""
        self.pod, self.outcome = pod.uid, None
        self.bound = pod.node is not None


@dataclass(slots=True, eq=False)
class Gang:
    """One job as pods."""

    key: GangKey
    owner: Owner | None = None
    members: dict[str, Pod] = field(default_factory=dict)
    size: int | None = None
    """How many pods it has when it is whole; None while nobody has said."""
    stage: Stage = Stage.GATHERING
    job: Job | None = None
    """What the engine was told of it."""
    placement: Placement = ()
    places: list[Place] = field(default_factory=list)
    seated: dict[str, Place] = field(default_factory=dict)
    """By pod: the seat that it has."""
    started: bool = False
    resizing: bool = False
    leavers: set[str] = field(default_factory=set)
    """Pods whose seats a resize took away, until they are gone."""
    ordered: Cause | None = None
    """Why the engine wants it to leave."""
    answer: Event | None = None
    """What the engine is told once its pods are gone, if they leave without its order."""
    why: str = ""
    deadline_s: float | None = None
    """When what is amiss now has lasted for too long."""
    touched_s: float = 0.0
    """When a pod last came or went."""
    asked_size: bool = False
    watched: bool = False
    """Whether somebody looks if its controller is still there."""
    refused: str = ""
    """Why the engine was not told of it."""
    note: str = ""
    """Its placement as it is written onto its pods."""

    @property
    def id(self) -> JobId:
        """The engine's name of it."""
        assert self.job is not None
        return self.job.id

    @property
    def waiting(self) -> list[Pod]:
        """Pods that could be bound, in order."""
        found = [pod for pod in self.members.values() if pod.node is None and not pod.ending and not pod.phase.is_over]
        return sorted(found, key=rank)

    @property
    def finished(self) -> list[Pod]:
        """Pods that have done their part, in order: they are not made anew when the others are."""
        return sorted((pod for pod in self.members.values() if pod.phase is Phase.SUCCEEDED), key=rank)

    @property
    def is_whole(self) -> bool:
        """Whether all pods that still have something to do wait to be bound."""
        waiting = self.waiting
        return self.size is not None and bool(waiting) and len(waiting) + len(self.finished) >= self.size

    @property
    def holders(self) -> list[Pod]:
        """Pods with a seat, or told to give theirs up, that still take something of their node."""
        uids = (*self.seated, *self.leavers)
        return [self.members[uid] for uid in uids if uid in self.members and self.members[uid].holds]

    def is_counted(self, uid: str) -> bool:
        """Whether what a pod holds is what the engine has given to the gang."""
        return uid in self.seated or uid in self.leavers

    def seat(self, place: Place, pod: Pod) -> None:
        """Give a pod its seat."""
        if place.pod is not None:
            self.seated.pop(place.pod, None)
        place.take(pod)
        self.seated[pod.uid] = place

    def unseat(self) -> None:
        """Nobody has a seat any more."""
        self.places, self.placement, self.started, self.resizing = [], (), False, False
        self.seated.clear()
        self.leavers.clear()

    @property
    def may_come_back(self) -> bool:
        """Whether pods of it are there, or a controller may make new ones."""
        is_there = any(not pod.ending and not pod.phase.is_over for pod in self.members.values())
        return is_there or (self.owner is not None and self.key.source is not Source.POD)

    @property
    def nodes(self) -> set[str]:
        """Where it has seats."""
        return {str(place.seat.node.id) for place in self.places}


def key_of(pod: Pod) -> GangKey:
    """The gang that a pod belongs to."""
    if LATE in pod.annotations:
        return GangKey(pod.namespace, Source.POD, pod.uid)
    named = pod.says("job")
    if named is not None:
        return GangKey(pod.namespace, Source.LABEL, named)
    for label in GROUP_LABELS:
        if label in pod.labels:
            return GangKey(pod.namespace, Source.GROUP, pod.labels[label])
    if _JOB_SET_LABEL in pod.labels:
        return GangKey(pod.namespace, Source.JOB_SET, pod.labels[_JOB_SET_LABEL])
    if all(label in pod.labels for label in _TRAINER_LABELS):  # a launcher of MPI has another owner than its workers
        return GangKey(pod.namespace, Source.TRAINER, "/".join(pod.labels[label] for label in _TRAINER_LABELS))
    if pod.owner is None or pod.owner.kind in _ALONE:
        return GangKey(pod.namespace, Source.POD, pod.uid)
    return GangKey(pod.namespace, Source.OWNER, pod.owner.uid)


def said_size(pod: Pod, key: GangKey) -> int | None:
    """How many pods the gang has, if the pod says so itself; an elastic one as many as it may ever run."""
    if key.source is Source.POD:
        return 1
    tasks = _number(pod, "tasks")
    return tasks if tasks is None else max(tasks, _number(pod, "max-tasks") or 0)


def _number(pod: Pod, name: str) -> int | None:
    said = pod.says(name) or ""
    return int(said) if said.isdigit() and int(said) > 0 else None


def rank(pod: Pod) -> tuple[list[int | str], str]:
    """The order of a gang's pods: that of their names, numbers as numbers."""
    parts = _DIGITS.split(pod.name)
    return [int(part) if index % 2 else part for index, part in enumerate(parts)], pod.uid


def role_name(pod: Pod) -> str:
    """The role that a pod says it has."""
    return next((pod.labels[label] for label in _ROLE_LABELS if pod.labels.get(label)), "worker")


def roles_of(pods: Iterable[Pod]) -> dict[tuple[str, Wants], int]:
    """How many pods there are of each role; pods that ask for different things have different roles."""
    counts: dict[tuple[str, Wants], int] = {}
    for pod in pods:
        key = (role_name(pod), pod.wants)
        counts[key] = counts.get(key, 0) + 1
    return dict(sorted(counts.items(), key=lambda entry: (entry[0][0], -entry[0][1].device_milli, repr(entry[0][1]))))


def role_index(job: Job, pod: Pod) -> int | None:
    """Which role of a job a pod has; None if it asks for what no role does."""
    for index, role in enumerate(job.roles):
        if _same(role, pod) and (role.name == role_name(pod) or role.name.startswith(f"{role_name(pod)}-")):
            return index
    return next((index for index, role in enumerate(job.roles) if _same(role, pod)), None)


def _same(role: Role, pod: Pod) -> bool:
    asked = Wants(
        role.device_milli,
        role.cpu_milli,
        role.memory_bytes,
        role.device_types,
        role.device_memory_bytes,
        role.requires,
        role.tolerates,
    )
    return asked == pod.wants


def job_of(gang: Gang, pods: list[Pod], settings: ClusterSettings, job_id: JobId) -> Job:
    """The gang as a job; `pods` are those that make it whole."""
    first = pods[0]
    _check_numbers(first)
    elastic = _elastic(first, len(pods))
    roles: list[Role] = []
    taken: dict[str, int] = {}
    for (name, wants), count in roles_of(pods).items():
        taken[name] = taken.get(name, 0) + 1
        unique = name if taken[name] == 1 else f"{name}-{taken[name]}"
        roles.append(
            Role(
                name=unique,
                count=count,
                device_milli=wants.device_milli,
                device_types=wants.device_types,
                device_memory_bytes=wants.device_memory_bytes,
                cpu_milli=wants.cpu_milli,
                memory_bytes=wants.memory_bytes,
                requires=wants.requires,
                tolerates=wants.tolerates,
            )
        )
    if elastic is not None and len(roles) == 1:
        usual = min(_number(first, "tasks") or len(pods), elastic.max_tasks)
        roles = [replace(roles[0], count=usual)]
    return Job(
        id=job_id,
        name=job_name(gang, first),
        tenant=TenantId(_tenant(first, settings)),
        user=first.says("user") or first.namespace,
        priority=OPPORTUNISTIC if first.says("class") == "opportunistic" else max(first.priority, OPPORTUNISTIC),
        roles=tuple(roles),
        elastic=elastic if len(roles) == 1 else None,
        exclusive=first.says("exclusive") == "true",
        locality=_locality(first),
        time_limit_s=_seconds(first, "time-limit"),
        estimate_s=_seconds(first, "estimate"),
        checkpoint=Checkpoint(grace_s=first.grace_s),
        labels=_labels(first),
    )


def _locality(pod: Pod) -> Locality | None:
    """What `rota.dev/locality` says: `rack`, or `rack:hard`."""
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
    said = pod.says(name)
    return None if said is None else parse_duration(said)


def _check_numbers(pod: Pod) -> None:
    for name in ("min-tasks", "max-tasks"):
        said = pod.says(name)
        if said is not None and _number(pod, name) is None:
            raise RotaError(f"{PREFIX}{name} is {said!r}; write a whole number above 0")


def is_elastic(pod: Pod) -> bool:
    """Whether its gang may run with fewer pods than there are."""
    return _number(pod, "min-tasks") is not None


def _elastic(pod: Pod, pods: int) -> Elastic | None:
    """The bounds that a pod names; there are never more tasks than pods."""
    least = _number(pod, "min-tasks")
    if least is None:
        return None
    most = min(_number(pod, "max-tasks") or pods, pods)
    return Elastic(min_tasks=min(least, most), max_tasks=most)


def _tenant(pod: Pod, settings: ClusterSettings) -> str:
    named = pod.annotations.get(PREFIX + "tenant")
    if named is not None:
        return named
    if settings.tenant_label is None:
        return pod.namespace
    return pod.labels.get(settings.tenant_label, pod.namespace)


def _labels(pod: Pod) -> tuple[tuple[str, str], ...]:
    """What tenancy reads, `rota.dev/pinned-cell` and `rota.dev/lazy-preemption`, and of what model the job is."""
    names = {"pinned_cell": "pinned-cell", "lazy_preemption": "lazy-preemption", "model": "model"}
    said = ((name, pod.says(label)) for name, label in names.items())
    return tuple((name, value) for name, value in said if value)


def job_name(gang: Gang, pod: Pod) -> str:
    """What people call it."""
    match gang.key.source:
        case Source.POD:
            return pod.name
        case Source.OWNER:
            return pod.owner.name if pod.owner is not None else pod.name
        case Source.TRAINER:
            return gang.key.name.partition("/")[2]
        case _:
            return gang.key.name


def job_id(gang: Gang, pods: list[Pod]) -> JobId:
    """The same name for the same gang, also after a restart: who owns it, or its oldest pod, tells it from others."""
    for pod in gang.members.values():
        if JOB_ID in pod.annotations:
            return JobId(pod.annotations[JOB_ID])
    oldest = min(pods, key=lambda pod: (pod.created_s, rank(pod)))
    mark = gang.key.name if gang.key.source is Source.OWNER else oldest.uid
    return JobId(f"{job_name(gang, oldest)[:LONGEST_NAME]}-{mark[:8]}")


def spec_of(job: Job, namespace: str) -> Mapping[str, object]:
    """A job in the words of a job file, for those who look at it."""
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
