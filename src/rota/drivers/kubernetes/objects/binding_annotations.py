"""Slots as annotations: written with each Binding, read back from bound pods after a restart."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace

import orjson

from rota.core.codec.values import decode_placement, encode_placement
from rota.core.model.cluster import Node
from rota.core.model.job import Job, JobId
from rota.core.model.placement import Placement, Slot
from rota.core.model.ranks import TaskRank, seats
from rota.drivers.kubernetes.gangs.gang import Gang, PodSlot, key_of, rank
from rota.drivers.kubernetes.objects.gang_jobs import is_elastic, job_of, role_index
from rota.drivers.kubernetes.objects.hived_pods import REQUEST, told
from rota.drivers.kubernetes.objects.pod_annotations import DEVICES, JOB_ID, LATE, PLACEMENT, SEAT, SIZE
from rota.drivers.kubernetes.objects.pods import Pod, PodPhase
from rota.drivers.kubernetes.settings import ClusterSettings


def sit_down(gang: Gang, placement: Placement, node_at: Callable[[int], Node]) -> None:
    """Assign a gang the slots of a placement; pods fill them one by one."""
    used = sorted({slot.node for slot in placement})  # a few of the many fields
    nodes = [node_at(index) for index in used]
    near = tuple(slot._replace(node=used.index(slot.node)) for slot in placement)
    gang.placement = placement
    gang.places = [PodSlot(seat) for seat in seats(near, nodes)]
    gang.seated.clear()
    gang.note = orjson.dumps(encode_placement(near, [str(node.id) for node in nodes])).decode()


def resit(gang: Gang, placement: Placement, node_at: Callable[[int], Node]) -> list[Pod]:
    """Assign a gang a new placement: pods whose slot remains keep it and their rank; return the others."""
    before: dict[tuple[str, tuple[int, ...]], list[PodSlot]] = {}
    for place in gang.places:
        before.setdefault(_spot(place.seat), []).append(place)
    sit_down(gang, placement, node_at)
    fresh = []
    for place in gang.places:
        old = before[_spot(place.seat)].pop(0) if before.get(_spot(place.seat)) else None
        if old is None:
            fresh.append(place)
            continue
        place.seat = replace(place.seat, rank=old.seat.rank)
        if old.pod in gang.members:
            gang.seat(place, gang.members[old.pod])
    taken = {place.seat.rank for place in gang.places if place not in fresh}
    free = (number for number in range(len(gang.places) + len(taken)) if number not in taken)
    for place in fresh:
        place.seat = replace(place.seat, rank=next(free))
    left = [place.pod for places in before.values() for place in places]
    return [gang.members[uid] for uid in left if uid in gang.members and not gang.members[uid].phase.is_over]


def _spot(seat: TaskRank) -> tuple[str, tuple[int, ...]]:
    return str(seat.node.id), seat.devices


def binding_note(gang: Gang, seat: TaskRank, pod: Pod) -> dict[str, str]:
    """The annotations that a pod gets with its binding; a HiveD pod gets HiveD's too."""
    note = {
        DEVICES: ",".join(map(str, seat.devices)),
        PLACEMENT: gang.note,
        SEAT: str(seat.rank),
        SIZE: str(len(gang.places)),
        JOB_ID: str(gang.id),
    }
    if key_of(pod) != gang.key:
        note[LATE] = "true"
    return {**note, **told(note, str(seat.node.id))} if REQUEST in pod.annotations else note


def fill(gang: Gang) -> list[tuple[PodSlot, Pod]]:
    """Assign waiting pods to open slots and return the pairs; a succeeded pod of an elastic job completes the job."""
    assert gang.job is not None
    given = []
    by_role: dict[int, list[PodSlot]] = {}
    for place in gang.places:
        is_done = gang.job.elastic is not None and place.outcome is PodPhase.SUCCEEDED
        if place.is_open and not is_done:
            by_role.setdefault(place.seat.role, []).append(place)
    for pod in gang.waiting:
        if pod.uid in gang.seated:
            continue
        open_places = by_role.get(-1 if (role := role_index(gang.job, pod)) is None else role)
        if open_places:
            place = open_places.pop(0)
            gang.seat(place, pod)
            given.append((place, pod))
    for pod in gang.finished:
        left = [] if pod.uid in gang.seated else by_role.get(role_index(gang.job, pod) or 0, [])
        if left and left[0].pod is None:
            gang.seat(left[0], pod)
            left.pop(0).outcome = pod.phase
    return given


def late(gang: Gang) -> list[Pod]:
    """Surplus pods, created after the complete gang had started."""
    assert gang.job is not None
    if gang.job.elastic is not None:
        return []
    to_come = [place.seat.role for place in gang.places if not _is_kept(gang, place)]
    found = []
    for pod in gang.waiting:
        if pod.uid in gang.seated:
            continue
        role = role_index(gang.job, pod)
        if role in to_come:
            to_come.remove(role)
        else:
            found.append(pod)
    return found


def _is_kept(gang: Gang, place: PodSlot) -> bool:
    """Whether the slot's pod is alive and not being deleted."""
    pod = None if place.pod is None else gang.members.get(place.pod)
    return place.outcome is PodPhase.SUCCEEDED or (pod is not None and not pod.ending and not pod.phase.is_over)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTask:
    """A gang recovered from its bound pods. `ranks` are those of its slots, `note` is the placement annotation."""

    job: Job
    placement: Placement
    ranks: tuple[int, ...]
    note: str = ""


def found_again(gang: Gang, nodes: Sequence[Node], settings: ClusterSettings) -> BoundTask | None:
    """The job and the placement recovered from bound pods; None if the annotations are insufficient."""
    told = [pod for pod in gang.members.values() if PLACEMENT in pod.annotations and pod.node]
    holding = [pod for pod in told if pod.holds and not pod.ending]
    if not holding:
        return None
    if is_elastic(holding[0]):
        return _found_elastic(gang, holding, nodes, settings)
    first = max(holding, key=lambda pod: (pod.created_s, rank(pod)))
    note = first.annotations[PLACEMENT]
    index_by_node = {str(node.id): index for index, node in enumerate(nodes)}
    try:
        placement = decode_placement(orjson.loads(note), index_by_node)
        places = seats(placement, nodes)
    except (KeyError, ValueError, TypeError):
        return None
    bound = {_seat_of(pod): pod for pod in told if pod.annotations[PLACEMENT] == note and _is_seat(pod, places)}
    kept = _still_wanted(gang.wanted, places, bound)
    by_role = {places[number].role: pod for number, pod in bound.items()}
    if any(seat.role not in by_role for seat in kept):
        return None
    job = job_of(gang, [by_role[seat.role] for seat in kept], settings, JobId(first.annotations[JOB_ID]))
    if len(kept) < len(places):
        placement = tuple(
            Slot(
                index_by_node[str(seat.node.id)],
                sum(1 << device for device in seat.devices),
                role=role_index(job, by_role[seat.role]) or 0,
            )
            for seat in kept
        )
    return BoundTask(job=job, placement=placement, ranks=tuple(seat.rank for seat in kept), note=note)


def _still_wanted(wanted: int | None, places: Sequence[TaskRank], bound: Container[int]) -> list[TaskRank]:
    """The slots of a gang that may have shrunk: the taken ones, and as many others as are still wanted."""
    taken = [seat for seat in places if seat.rank in bound]
    others = [seat for seat in places if seat.rank not in bound]
    to_come = len(others) if wanted is None else max(wanted - len(taken), 0)
    return sorted((*taken, *others[:to_come]), key=lambda seat: seat.rank)


def has_gaps(gang: Gang) -> bool:
    """Whether the annotations of bound pods list more slots than there are pods."""
    told = [pod for pod in gang.members.values() if PLACEMENT in pod.annotations and pod.node]
    return any(len(told) < _number(pod, SIZE) for pod in told if not is_elastic(pod))


def _number(pod: Pod, note: str) -> int:
    said = pod.annotations.get(note, "")
    return int(said) if said.isdigit() else 0


def sit_down_again(gang: Gang, sitting: BoundTask, nodes: Sequence[Node]) -> None:
    """Restore a gang's slots from the annotations of its pods."""
    gang.job = sitting.job
    sit_down(gang, sitting.placement, nodes.__getitem__)
    gang.note = sitting.note or gang.note
    for place, number in zip(gang.places, sitting.ranks, strict=True):
        place.seat = replace(place.seat, rank=number)
    _reseat(gang)


def _found_elastic(
    gang: Gang, holding: list[Pod], nodes: Sequence[Node], settings: ClusterSettings
) -> BoundTask | None:
    """The slots that pods hold. A pod's annotation is authoritative for its own slot only."""
    index_by_node = {str(node.id): index for index, node in enumerate(nodes)}
    first = min(holding, key=rank)
    there = [pod for pod in gang.members.values() if not pod.ending and not pod.phase.is_over]
    job = job_of(gang, [first] * max(gang.size or 0, len(there)), settings, JobId(first.annotations[JOB_ID]))
    if job.elastic is None or len(holding) < job.elastic.min_tasks:
        return None
    placement = []
    for pod in sorted(holding, key=rank):
        devices = _devices(pod)
        if devices is None or str(pod.node) not in index_by_node or role_index(job, pod) is None:
            return None
        placement.append(Slot(index_by_node[str(pod.node)], sum(1 << device for device in devices)))
    return BoundTask(job=job, placement=tuple(placement), ranks=tuple(range(len(placement))))


def _devices(pod: Pod) -> tuple[int, ...] | None:
    parts = [part for part in pod.annotations.get(DEVICES, "").split(",") if part]
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else None


def _is_seat(pod: Pod, places: Sequence[TaskRank]) -> bool:
    number = _seat_of(pod)
    return 0 <= number < len(places) and str(places[number].node.id) == pod.node


def _seat_of(pod: Pod) -> int:
    """The slot index of a pod; -1 if it has none."""
    number = pod.annotations.get(SEAT, "")
    return int(number) if number.isdigit() else -1


def _reseat(gang: Gang) -> None:
    """Assign bound pods to their recorded slots; an ended pod only if no other pod holds its slot."""
    if gang.job is not None and gang.job.elastic is not None:
        _reseat_elastic(gang)
        return
    by_rank = {place.seat.rank: place for place in gang.places}
    for pod in sorted(gang.members.values(), key=lambda pod: pod.phase.is_over):
        place = by_rank.get(_seat_of(pod))
        if place is None or place.pod is not None or pod.annotations.get(PLACEMENT) != gang.note:
            continue
        if pod.phase.is_over:
            gang.seat(place, pod)
            place.outcome = pod.phase
        elif str(place.seat.node.id) == pod.node:
            gang.seat(place, pod)


def _reseat_elastic(gang: Gang) -> None:
    """Each bound pod with its node and rank."""
    for pod in sorted(gang.members.values(), key=rank):
        if PLACEMENT not in pod.annotations or not pod.holds or pod.ending:
            continue
        spot = (str(pod.node), _devices(pod))
        place = next((each for each in gang.places if each.pod is None and _spot(each.seat) == spot), None)
        if place is not None:
            number = _seat_of(pod)
            place.seat = replace(place.seat, rank=number if number >= 0 else place.seat.rank)
            gang.seat(place, pod)
