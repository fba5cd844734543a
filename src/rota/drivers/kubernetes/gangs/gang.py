"""A gang: the pods of one job. All are bound or none; each has a slot while the job holds its devices."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from rota.core.messages.decisions import Cause
from rota.core.messages.events import Event
from rota.core.model.job import Job, JobId
from rota.core.model.placement import Placement
from rota.core.model.ranks import TaskRank
from rota.drivers.kubernetes.api.quantity import plain_number
from rota.drivers.kubernetes.objects.pod_annotations import LATE, RANK
from rota.drivers.kubernetes.objects.pods import Pod, PodOwner, PodPhase, PodRequests
from rota.network.link_guide import LinkTerms

_ALONE = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Node", "Deployment"})
"""Controllers whose pods are independent: each pod is a job of its own."""
GROUP_LABELS = ("rota.dev/pod-group", "scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io/name")
VOLCANO_GROUP = "scheduling.k8s.io/group-name"
KAI_GROUP = "pod-group-name"
_GROUPS_OF_OTHERS = {VOLCANO_GROUP: "volcano", KAI_GROUP: "kai"}
_KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
_KUEUE_SIZE = "kueue.x-k8s.io/pod-group-total-count"
KAI_SIZE = "kai.scheduler/batch-min-member"
_JOB_SET_LABEL = "jobset.sigs.k8s.io/jobset-name"
_TRAINER_LABELS = ("training.kubeflow.org/operator-name", "training.kubeflow.org/job-name")
_DIGITS = re.compile(r"(\d+)")


class Stage(Enum):
    """The stage of a gang."""

    GATHERING = "gathering"
    """Pods are missing; the engine does not know the job, or the job is held."""
    WAITING = "waiting"
    PLACED = "placed"
    """It was started: its pods are being bound, or run."""
    LEAVING = "leaving"
    """Its pods are being evicted."""
    OVER = "over"


class GangSource(Enum):
    """What makes pods a gang."""

    POD = "pod"
    OWNER = "owner"
    LABEL = "label"
    GROUP = "group"
    VOLCANO = "volcano"
    KAI = "kai"
    KUEUE = "kueue"
    JOB_SET = "jobset"
    TRAINER = "trainer"


class GangKey(NamedTuple):
    """The key that the pods of one gang share."""

    namespace: str
    source: GangSource
    name: str


@dataclass(slots=True)
class PodSlot:
    """A slot and its pod. `bound` once the API server has accepted the binding, `outcome` once the pod has ended."""

    task: TaskRank
    pod: str | None = None
    bound: bool = False
    outcome: PodPhase | None = None

    @property
    def is_open(self) -> bool:
        """Whether a pod may take it: it is unassigned, or its pod has ended."""
        return self.pod is None or self.outcome is not None

    def take(self, pod: Pod) -> None:
        """Assign it to a pod."""
        self.pod, self.outcome = pod.uid, None
        self.bound = pod.node is not None


@dataclass(slots=True, eq=False)
class Gang:
    """The pods of one job."""

    key: GangKey
    owner: PodOwner | None = None
    members: dict[str, Pod] = field(default_factory=dict)
    size: int | None = None
    """The number of pods of the complete gang; None while it is unknown."""
    wanted: int | None = None
    """The number of pods that its controller wants now, asked when some are missing."""
    stage: Stage = Stage.GATHERING
    job: Job | None = None
    """The job as announced to the engine."""
    placement: Placement = ()
    slots: list[PodSlot] = field(default_factory=list)
    assigned: dict[str, PodSlot] = field(default_factory=dict)
    """Slots by pod."""
    started: bool = False
    resizing: bool = False
    leavers: set[str] = field(default_factory=set)
    """Pods whose slots a resize removed, until they are gone."""
    ordered: Cause | None = None
    """The cause of the engine's stop order."""
    answer: Event | None = None
    """The event for the engine once its pods are gone, if they stopped without an order."""
    why: str = ""
    deadline_s: float | None = None
    """When the present fault has lasted too long."""
    touched_s: float = 0.0
    """When a pod was last added or removed."""
    asked_size: bool = False
    lost_pods: bool = False
    """Whether pods were lost since its size was asked: it may have shrunk."""
    watched: bool = False
    """Whether its controller is being watched."""
    left_alone: bool = False
    """Whether its pods run on devices that the present settings do not describe: nothing is done to them."""
    refused: str = ""
    """Why it was not announced to the engine."""
    barred: str = ""
    """Why no nodes suit its pods at present, beyond what the engine counts."""
    role_requests: tuple[PodRequests, ...] = ()
    """What the pods of each role of its job ask for."""
    note: str = ""
    """Its placement as written onto its pods."""
    links: LinkTerms | None = None
    """What its pods are told about the network; None without one."""

    @property
    def id(self) -> JobId:
        """The id of its job."""
        assert self.job is not None
        return self.job.id

    @property
    def waiting(self) -> list[Pod]:
        """Pods that can be bound, in rank order."""
        found = [pod for pod in self.members.values() if pod.node is None and not pod.ending and not pod.phase.is_over]
        return sorted(found, key=rank)

    @property
    def finished(self) -> list[Pod]:
        """Succeeded pods in rank order; they are not recreated with the others."""
        return sorted((pod for pod in self.members.values() if pod.phase is PodPhase.SUCCEEDED), key=rank)

    @property
    def is_whole(self) -> bool:
        """Whether all unfinished pods exist and wait to be bound."""
        waiting = self.waiting
        return self.size is not None and bool(waiting) and len(waiting) + len(self.finished) >= self.size

    @property
    def missing(self) -> list[PodSlot]:
        """Slots without a bound pod."""
        return [slot for slot in self.slots if slot.outcome is None and not slot.bound]

    @property
    def holders(self) -> list[Pod]:
        """Pods with a slot, or being evicted from one, that still hold resources of their node."""
        uids = (*self.assigned, *self.leavers)
        return [self.members[uid] for uid in uids if uid in self.members and self.members[uid].holds]

    def is_counted(self, uid: str) -> bool:
        """Whether a pod's resources are part of the gang's placement."""
        return uid in self.assigned or uid in self.leavers

    def assign(self, slot: PodSlot, pod: Pod) -> None:
        """Assign a slot to a pod."""
        if slot.pod is not None:
            self.assigned.pop(slot.pod, None)
        slot.take(pod)
        self.assigned[pod.uid] = slot

    def clear_slots(self) -> None:
        """Remove all slots."""
        self.slots, self.placement, self.started, self.resizing = [], (), False, False
        self.assigned.clear()
        self.leavers.clear()

    @property
    def may_come_back(self) -> bool:
        """Whether it has live pods, or a controller that may create new ones."""
        is_there = any(not pod.ending and not pod.phase.is_over for pod in self.members.values())
        return is_there or (self.owner is not None and self.key.source is not GangSource.POD)

    @property
    def nodes(self) -> set[str]:
        """The nodes of its slots."""
        return {str(slot.task.node.id) for slot in self.slots}


def key_of(pod: Pod) -> GangKey:
    """The key of a pod's gang."""
    if LATE in pod.annotations:
        return GangKey(pod.namespace, GangSource.POD, pod.uid)
    named = pod.says("job")
    if named is not None:
        return GangKey(pod.namespace, GangSource.LABEL, named)
    for label in GROUP_LABELS:
        if label in pod.labels:
            return GangKey(pod.namespace, GangSource.GROUP, pod.labels[label])
    for note, source in _GROUPS_OF_OTHERS.items():
        if pod.annotations.get(note):
            return GangKey(pod.namespace, GangSource(source), pod.annotations[note])
    if pod.labels.get(_KUEUE_GROUP):
        return GangKey(pod.namespace, GangSource.KUEUE, pod.labels[_KUEUE_GROUP])
    if _JOB_SET_LABEL in pod.labels:
        return GangKey(pod.namespace, GangSource.JOB_SET, pod.labels[_JOB_SET_LABEL])
    if all(label in pod.labels for label in _TRAINER_LABELS):  # an MPI launcher has another owner than its workers
        return GangKey(pod.namespace, GangSource.TRAINER, "/".join(pod.labels[label] for label in _TRAINER_LABELS))
    if pod.owner is None or pod.owner.kind in _ALONE:
        return GangKey(pod.namespace, GangSource.POD, pod.uid)
    return GangKey(pod.namespace, GangSource.OWNER, pod.owner.uid)


def stated_size(pod: Pod, key: GangKey) -> int | None:
    """The gang size that the pod itself states; for an elastic gang its maximum."""
    if key.source is GangSource.POD:
        return 1
    if key.source is GangSource.KUEUE:
        return plain_number(pod.annotations.get(_KUEUE_SIZE)) or None
    tasks = pod.number("tasks") or plain_number(pod.annotations.get(KAI_SIZE)) or None
    return tasks if tasks is None else max(tasks, pod.number("max-tasks") or 0)


def rank(pod: Pod) -> tuple[list[int | str], str]:
    """The rank order of a gang's pods: by name, with numbers compared as numbers."""
    parts = _DIGITS.split(pod.name)
    return [int(part) if index % 2 else part for index, part in enumerate(parts)], pod.uid


def pod_of_task(pods: Iterable[Pod], task: int) -> Pod | None:
    """The pod of a rank, the newest if it was replaced; pods without ranks count by their names."""
    newest = sorted(pods, key=lambda pod: (-pod.created_s, rank(pod)))
    by_rank = {pod.annotations.get(RANK, ""): pod for pod in reversed(newest)}
    if str(task) in by_rank:
        return by_rank[str(task)]
    return sorted(newest, key=rank)[task] if task < len(newest) else None
