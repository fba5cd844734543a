"""A gang: pods that are one job. All of them are bound or none, and each has a seat while the job holds its devices."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from rota.core.messages.decisions import Cause
from rota.core.messages.events import Event
from rota.core.model.job import Job, JobId
from rota.core.model.placement import Placement
from rota.core.model.ranks import TaskRank
from rota.drivers.kubernetes.objects.pod_annotations import LATE
from rota.drivers.kubernetes.objects.pods import Pod, PodOwner, PodPhase

_ALONE = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Node", "Deployment"})
"""Controllers whose pods do not wait for each other: each is a job of its own."""
GROUP_LABELS = ("rota.dev/pod-group", "scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io/name")
_JOB_SET_LABEL = "jobset.sigs.k8s.io/jobset-name"
_TRAINER_LABELS = ("training.kubeflow.org/operator-name", "training.kubeflow.org/job-name")
_DIGITS = re.compile(r"(\d+)")


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


class GangSource(Enum):
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
    source: GangSource
    name: str


@dataclass(slots=True)
class PodSlot:
    """A seat and who has it. `bound` once the API server has taken the pod there, `outcome` once that has ended."""

    seat: TaskRank
    pod: str | None = None
    bound: bool = False
    outcome: PodPhase | None = None

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
    owner: PodOwner | None = None
    members: dict[str, Pod] = field(default_factory=dict)
    size: int | None = None
    """How many pods it has when it is whole; None while nobody has said."""
    wanted: int | None = None
    """How many pods its controller wants now, where it was asked because some are missing."""
    stage: Stage = Stage.GATHERING
    job: Job | None = None
    """What the engine was told of it."""
    placement: Placement = ()
    places: list[PodSlot] = field(default_factory=list)
    seated: dict[str, PodSlot] = field(default_factory=dict)
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
    lost_pods: bool = False
    """Whether pods have gone since its size was asked: it may be smaller now."""
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
        return sorted((pod for pod in self.members.values() if pod.phase is PodPhase.SUCCEEDED), key=rank)

    @property
    def is_whole(self) -> bool:
        """Whether all pods that still have something to do wait to be bound."""
        waiting = self.waiting
        return self.size is not None and bool(waiting) and len(waiting) + len(self.finished) >= self.size

    @property
    def missing(self) -> list[PodSlot]:
        """Seats that nobody has come to, or come back to."""
        return [place for place in self.places if place.outcome is None and not place.bound]

    @property
    def holders(self) -> list[Pod]:
        """Pods with a seat, or told to give theirs up, that still take something of their node."""
        uids = (*self.seated, *self.leavers)
        return [self.members[uid] for uid in uids if uid in self.members and self.members[uid].holds]

    def is_counted(self, uid: str) -> bool:
        """Whether what a pod holds is what the engine has given to the gang."""
        return uid in self.seated or uid in self.leavers

    def seat(self, place: PodSlot, pod: Pod) -> None:
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
        return is_there or (self.owner is not None and self.key.source is not GangSource.POD)

    @property
    def nodes(self) -> set[str]:
        """Where it has seats."""
        return {str(place.seat.node.id) for place in self.places}


def key_of(pod: Pod) -> GangKey:
    """The gang that a pod belongs to."""
    if LATE in pod.annotations:
        return GangKey(pod.namespace, GangSource.POD, pod.uid)
    named = pod.says("job")
    if named is not None:
        return GangKey(pod.namespace, GangSource.LABEL, named)
    for label in GROUP_LABELS:
        if label in pod.labels:
            return GangKey(pod.namespace, GangSource.GROUP, pod.labels[label])
    if _JOB_SET_LABEL in pod.labels:
        return GangKey(pod.namespace, GangSource.JOB_SET, pod.labels[_JOB_SET_LABEL])
    if all(label in pod.labels for label in _TRAINER_LABELS):  # a launcher of MPI has another owner than its workers
        return GangKey(pod.namespace, GangSource.TRAINER, "/".join(pod.labels[label] for label in _TRAINER_LABELS))
    if pod.owner is None or pod.owner.kind in _ALONE:
        return GangKey(pod.namespace, GangSource.POD, pod.uid)
    return GangKey(pod.namespace, GangSource.OWNER, pod.owner.uid)


def said_size(pod: Pod, key: GangKey) -> int | None:
    """How many pods the gang has, if the pod says so itself; an elastic one as many as it may ever run."""
    if key.source is GangSource.POD:
        return 1
    tasks = pod.number("tasks")
    return tasks if tasks is None else max(tasks, pod.number("max-tasks") or 0)


def rank(pod: Pod) -> tuple[list[int | str], str]:
    """The order of a gang's pods: that of their names, numbers as numbers."""
    parts = _DIGITS.split(pod.name)
    return [int(part) if index % 2 else part for index, part in enumerate(parts)], pod.uid
