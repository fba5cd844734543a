"""Slots as annotations: written with each Binding, read back from bound pods after a restart."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace

import orjson

from rota.core.codec.values import decode_placement, encode_placement
from rota.core.model.cluster import Node
from rota.core.model.job import Job, JobId
from rota.core.model.placement import Placement, Slot
from rota.core.model.ranks import TaskRank, task_ranks
from rota.drivers.kubernetes.api.quantity import plain_number
from rota.drivers.kubernetes.filters.facts import NO_NEEDS
from rota.drivers.kubernetes.gangs.gang import Gang, PodSlot, key_of, rank
from rota.drivers.kubernetes.objects.gang_jobs import is_elastic, job_that_runs, pods_by_role, role_index, role_indexes
from rota.drivers.kubernetes.objects.hived_pods import REQUEST, hived_annotations
from rota.drivers.kubernetes.objects.pod_annotations import (
    DEVICES,
    JOB_ID,
    LATE,
    LINK_VARIABLES,
    PLACEMENT,
    PLAN,
    PLAN_VARIABLES,
    RANK,
    SIZE,
)
from rota.drivers.kubernetes.objects.pods import Pod, PodPhase, PodRequests
from rota.drivers.kubernetes.objects.reading import NONSENSE
from rota.drivers.kubernetes.settings import ClusterSettings
from rota.network.link_guide import LinkTerms, in_order
from rota.planner.parallel.plan_environment import plan_variables

_TIME = re.compile(r"[0-9]{1,9}\.[0-9]{6}", re.ASCII)
MOST_DEVICES = 1024
"""Devices of a node; a larger index in an annotation is nonsense."""


def assign_slots(
    gang: Gang, placement: Placement, node_at: Callable[[int], Node], terms: LinkTerms | None = None
) -> None:
    """Assign a gang the slots of a placement, in the order of its terms on the links; pods fill them one by one."""
    gang.placement, gang.links = placement, terms
    placement = in_order(placement, terms.order) if terms is not None else placement
    used = sorted({slot.node for slot in placement})  # a few of the many fields
    nodes = [node_at(index) for index in used]
    near = tuple(slot._replace(node=used.index(slot.node)) for slot in placement)
    gang.slots = [PodSlot(task) for task in task_ranks(near, nodes)]
    gang.assigned.clear()
    gang.note = orjson.dumps(encode_placement(near, [str(node.id) for node in nodes])).decode()


def reassign_slots(gang: Gang, placement: Placement, node_at: Callable[[int], Node]) -> list[Pod]:
    """Assign a gang a new placement: pods whose slot remains keep it and their rank; return the others."""
    before: dict[tuple[str, tuple[int, ...]], list[PodSlot]] = {}
    for slot in gang.slots:
        before.setdefault(_position(slot.task), []).append(slot)
    terms = gang.links
    assign_slots(gang, placement, node_at)
    gang.links = None if terms is None else replace(terms, order=())
    fresh = []
    for slot in gang.slots:
        old = before[_position(slot.task)].pop(0) if before.get(_position(slot.task)) else None
        if old is None:
            fresh.append(slot)
            continue
        slot.task = replace(slot.task, rank=old.task.rank)
        if old.pod in gang.members:
            gang.assign(slot, gang.members[old.pod])
    taken = {slot.task.rank for slot in gang.slots if slot not in fresh}
    free = (number for number in range(len(gang.slots) + len(taken)) if number not in taken)
    for slot in fresh:
        slot.task = replace(slot.task, rank=next(free))
    left = [slot.pod for slots in before.values() for slot in slots]
    return [gang.members[uid] for uid in left if uid in gang.members and not gang.members[uid].phase.is_over]


def _position(task: TaskRank) -> tuple[str, tuple[int, ...]]:
    return str(task.node.id), task.devices


def binding_note(gang: Gang, task: TaskRank, pod: Pod) -> dict[str, str]:
    """The annotations that a pod gets with its binding; a HiveD pod gets HiveD's too."""
    note = {
        DEVICES: ",".join(map(str, task.devices)),
        PLACEMENT: gang.note,
        RANK: str(task.rank),
        SIZE: str(len(gang.slots)),
        JOB_ID: str(gang.id),
    }
    if gang.links is not None:
        values = gang.links.environment
        note |= {name: values[variable] for variable, name in LINK_VARIABLES.items() if variable in values}
    if key_of(pod) != gang.key:
        note[LATE] = "true"
    elif gang.job is not None:
        tasks = [slot.task for slot in gang.slots]
        plan = plan_variables(gang.job, pod.annotations.get(PLAN), tasks, task)
        note |= {PLAN_VARIABLES[name]: value for name, value in plan.items()}
    return {**note, **hived_annotations(note, str(task.node.id))} if REQUEST in pod.annotations else note


def fill(gang: Gang) -> list[tuple[PodSlot, Pod]]:
    """Assign waiting pods to open slots and return the pairs; a succeeded pod of an elastic job completes the job."""
    assert gang.job is not None
    given = []
    by_role: dict[int, list[PodSlot]] = {}
    for slot in gang.slots:
        is_done = gang.job.elastic is not None and slot.outcome is PodPhase.SUCCEEDED
        if slot.is_open and not is_done:
            by_role.setdefault(slot.task.role, []).append(slot)
    for pod in gang.waiting:
        if pod.uid in gang.assigned:
            continue
        open_slots = next((by_role[role] for role in role_indexes(gang, pod) if by_role.get(role)), None)
        if open_slots:
            slot = open_slots.pop(0)
            gang.assign(slot, pod)
            given.append((slot, pod))
    for pod in gang.finished:
        roles = [] if pod.uid in gang.assigned else role_indexes(gang, pod) or [0]
        left = next((by_role[role] for role in roles if by_role.get(role)), [])
        if left and left[0].pod is None:
            gang.assign(left[0], pod)
            left.pop(0).outcome = pod.phase
    return given


def planned_nodes(gang: Gang) -> list[tuple[Pod, str]]:
    """The nodes that waiting pods would get if open slots were filled now."""
    pairs = fill(gang)
    for slot, pod in pairs:
        gang.assigned.pop(pod.uid, None)
        slot.pod, slot.bound, slot.outcome = None, False, None
    return [(pod, str(slot.task.node.id)) for slot, pod in pairs]


def late(gang: Gang) -> list[Pod]:
    """Surplus pods, created after the complete gang had started."""
    assert gang.job is not None
    if gang.job.elastic is not None:
        return []
    to_come = [slot.task.role for slot in gang.slots if not _is_kept(gang, slot)]
    found = []
    for pod in gang.waiting:
        if pod.uid in gang.assigned:
            continue
        role = next((role for role in role_indexes(gang, pod) if role in to_come), None)
        if role is not None:
            to_come.remove(role)
        else:
            found.append(pod)
    return found


def _is_kept(gang: Gang, slot: PodSlot) -> bool:
    """Whether the slot's pod is alive and not being deleted."""
    pod = None if slot.pod is None else gang.members.get(slot.pod)
    return slot.outcome is PodPhase.SUCCEEDED or (pod is not None and not pod.ending and not pod.phase.is_over)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTask:
    """A gang recovered from its bound pods. `ranks` are those of its slots, `note` is the placement annotation."""

    job: Job
    placement: Placement
    ranks: tuple[int, ...]
    note: str = ""


class Unreadable(Exception):
    """Pods run with annotations that do not say where their gang belongs: users have changed them."""


def recover_gang(gang: Gang, nodes: Sequence[Node], settings: ClusterSettings) -> BoundTask | None:
    """The job and the placement recovered from bound pods; None if too few of them are left to go on.

    Raises `Unreadable` if the annotations that Rota wrote are nonsense.
    """
    try:
        return _recovered(gang, nodes, settings)
    except NONSENSE as error:
        raise Unreadable(f"{type(error).__name__}: {str(error)[:200]}") from error


def _recovered(gang: Gang, nodes: Sequence[Node], settings: ClusterSettings) -> BoundTask | None:
    annotated = [pod for pod in gang.members.values() if PLACEMENT in pod.annotations and pod.node]
    holding = [pod for pod in annotated if pod.holds and not pod.ending]
    if not holding:
        return None
    elastic = [pod for pod in holding if is_elastic(pod)]
    if elastic:
        return _found_elastic(gang, min(elastic, key=rank), holding, nodes, settings)
    index_by_node = {str(node.id): index for index, node in enumerate(nodes)}
    first, placement = _newest_placement(holding, index_by_node)
    note, tasks = first.annotations[PLACEMENT], task_ranks(placement, nodes)
    bound = _pods_by_rank([pod for pod in annotated if pod.annotations[PLACEMENT] == note], tasks)
    kept = _still_wanted(gang.wanted, tasks, bound)
    by_role = {tasks[number].role: pod for number, pod in bound.items()}
    name = JobId(first.annotations[JOB_ID])
    if first.wants.needs is not NO_NEEDS:
        return _found_constrained(gang, placement, note, name, settings)
    if not bound:
        raise ValueError("no pod is on the node that its placement names")
    if any(task.role not in by_role for task in kept):
        return None
    job = job_that_runs(gang, [by_role[task.role] for task in kept], settings, name)
    if len(kept) < len(tasks):
        placement = tuple(
            Slot(
                index_by_node[str(task.node.id)],
                sum(1 << device for device in task.devices),
                role=role_index(job, by_role[task.role]) or 0,
            )
            for task in kept
        )
    return BoundTask(job=job, placement=placement, ranks=tuple(task.rank for task in kept), note=note)


def _newest_placement(holding: Sequence[Pod], index_by_node: Mapping[str, int]) -> tuple[Pod, Placement]:
    """The placement that the newest pod states whose annotation can be read, and that pod."""
    fault: Exception = ValueError("no placement can be read")
    for pod in sorted(holding, key=lambda pod: (pod.created_s, rank(pod)), reverse=True):
        try:
            return pod, decode_placement(orjson.loads(pod.annotations[PLACEMENT]), index_by_node)
        except NONSENSE as error:
            fault = error
    raise fault


def _pods_by_rank(pods: Sequence[Pod], tasks: Sequence[TaskRank]) -> dict[int, Pod]:
    """The pods of a placement by their ranks; one whose rank is wrong takes a rank of its node that is left."""
    found = {_rank_of(pod): pod for pod in pods if _is_recorded(pod, tasks)}
    for pod in pods:
        if not _is_recorded(pod, tasks) and pod.holds:
            left = (task.rank for task in tasks if task.rank not in found and str(task.node.id) == pod.node)
            number = next(left, None)
            if number is not None:
                found[number] = pod
    return found


def _found_constrained(
    gang: Gang, placement: Placement, note: str, name: JobId, settings: ClusterSettings
) -> BoundTask | None:
    """A gang whose pods are roles of their own: all of them must be there, bound or not."""
    pods = [pod for pod in gang.members.values() if not pod.ending and not pod.phase.is_over]
    job = job_that_runs(gang, pods, settings, name)
    if len(job.roles) != len(placement):
        # Under other settings its devices counted as such; the job tells that the present ones do not describe them.
        is_other = any(slot.devices and not role.device_milli for slot in placement for role in job.roles)
        ranks = tuple(range(sum(slot.tasks for slot in placement)))
        return BoundTask(job=job, placement=placement, ranks=ranks, note=note) if is_other else None
    gang.role_requests = requests_by_role(pods)
    return BoundTask(job=job, placement=placement, ranks=tuple(range(len(placement))), note=note)


def requests_by_role(pods: Sequence[Pod]) -> tuple[PodRequests, ...]:
    """What the pods of each role ask for, in the order of a job's roles."""
    return tuple(group[0].wants for group in pods_by_role(pods))


def _still_wanted(wanted: int | None, tasks: Sequence[TaskRank], bound: Container[int]) -> list[TaskRank]:
    """The slots of a gang that may have shrunk: the taken ones, and as many others as are still wanted."""
    taken = [task for task in tasks if task.rank in bound]
    others = [task for task in tasks if task.rank not in bound]
    to_come = len(others) if wanted is None else max(wanted - len(taken), 0)
    return sorted((*taken, *others[:to_come]), key=lambda task: task.rank)


def has_gaps(gang: Gang) -> bool:
    """Whether bound pods may be fewer than there should be, by their annotations; of an elastic gang none says so."""
    annotated = [pod for pod in gang.members.values() if PLACEMENT in pod.annotations and pod.node]
    if annotated and is_elastic(annotated[0]):
        return gang.size is None
    return any(len(annotated) < _number(pod, SIZE) for pod in annotated)


def _number(pod: Pod, note: str) -> int:
    return plain_number(pod.annotations.get(note)) or 0


def restore_slots(gang: Gang, bound: BoundTask, nodes: Sequence[Node]) -> None:
    """Restore a gang's slots from the annotations of its pods."""
    gang.job = bound.job
    assign_slots(gang, bound.placement, nodes.__getitem__)
    gang.note = bound.note or gang.note
    gang.links = _written_terms(gang)
    for slot, number in zip(gang.slots, bound.ranks, strict=True):
        slot.task = replace(slot.task, rank=number)
    _restore_pods(gang)


def _written_terms(gang: Gang) -> LinkTerms | None:
    """The terms on the links that the pods of a gang were bound with; None without any."""
    for pod in gang.members.values():
        found = {
            variable: pod.annotations[note] for variable, note in LINK_VARIABLES.items() if note in pod.annotations
        }
        if PLACEMENT in pod.annotations and found:
            shift_s, period_s = (_seconds(found.pop(name, "")) for name in ("ROTA_SHIFT_S", "ROTA_PERIOD_S"))
            return LinkTerms(variables=found, shift_s=shift_s, period_s=period_s)
    return None


def _seconds(text: str) -> float:
    """A time as Rota wrote it; 0 where it is anything else."""
    return float(text) if _TIME.fullmatch(text) else 0.0


def _found_elastic(
    gang: Gang, first: Pod, holding: list[Pod], nodes: Sequence[Node], settings: ClusterSettings
) -> BoundTask | None:
    """The slots that pods hold. A pod's annotation is authoritative for its own slot only."""
    index_by_node = {str(node.id): index for index, node in enumerate(nodes)}
    there = [pod for pod in gang.members.values() if not pod.ending and not pod.phase.is_over]
    pods = max(gang.size or 0, gang.wanted or 0, len(there))
    job = job_that_runs(gang, [first] * pods, settings, JobId(first.annotations[JOB_ID]))
    if job.elastic is None or len(holding) < job.elastic.min_tasks:
        return None
    placement = []
    for pod in sorted(holding, key=rank):
        devices = _devices(pod)
        if str(pod.node) not in index_by_node:
            return None
        if devices is None or role_index(job, pod) is None:
            raise ValueError(f"pod {pod.name} states other devices than it was bound with")
        placement.append(Slot(index_by_node[str(pod.node)], sum(1 << device for device in devices)))
    return BoundTask(job=job, placement=tuple(placement), ranks=tuple(range(len(placement))))


def _devices(pod: Pod) -> tuple[int, ...] | None:
    found = [plain_number(part) for part in pod.annotations.get(DEVICES, "").split(",", MOST_DEVICES) if part]
    devices = tuple(device for device in found if device is not None and device < MOST_DEVICES)
    return devices if len(devices) == len(found) else None


def _is_recorded(pod: Pod, tasks: Sequence[TaskRank]) -> bool:
    number = _rank_of(pod)
    return 0 <= number < len(tasks) and str(tasks[number].node.id) == pod.node


def _rank_of(pod: Pod) -> int:
    """The slot index of a pod; -1 if it has none."""
    number = plain_number(pod.annotations.get(RANK))
    return -1 if number is None else number


def _restore_pods(gang: Gang) -> None:
    """Assign bound pods to their recorded slots; an ended pod only if no other pod holds its slot."""
    if gang.job is not None and gang.job.elastic is not None:
        _restore_elastic_pods(gang)
        return
    by_rank = {slot.task.rank: slot for slot in gang.slots}
    for pod in sorted(gang.members.values(), key=lambda pod: pod.phase.is_over):
        slot = by_rank.get(_rank_of(pod))
        if slot is None or slot.pod is not None or pod.annotations.get(PLACEMENT) != gang.note:
            continue
        if pod.phase.is_over:
            gang.assign(slot, pod)
            slot.outcome = pod.phase
        elif str(slot.task.node.id) == pod.node:
            gang.assign(slot, pod)
    for pod in gang.members.values():  # those whose rank a user has changed
        if pod.uid in gang.assigned or not pod.holds or pod.ending or pod.annotations.get(PLACEMENT) != gang.note:
            continue
        left = next((slot for slot in gang.slots if slot.pod is None and str(slot.task.node.id) == pod.node), None)
        if left is not None:
            gang.assign(left, pod)


def _restore_elastic_pods(gang: Gang) -> None:
    """Each bound pod with its node and rank."""
    for pod in sorted(gang.members.values(), key=rank):
        if PLACEMENT not in pod.annotations or not pod.holds or pod.ending:
            continue
        position = (str(pod.node), _devices(pod))
        slot = next((each for each in gang.slots if each.pod is None and _position(each.task) == position), None)
        if slot is not None:
            number = _rank_of(pod)
            slot.task = replace(slot.task, rank=number if number >= 0 else slot.task.rank)
            gang.assign(slot, pod)
