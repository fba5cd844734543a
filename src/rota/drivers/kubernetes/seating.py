"""Seats on the wire: what a Binding tells a pod, and what pods that are bound tell whoever starts after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import orjson

from rota.core.cluster import Node
from rota.core.codec import decode_placement, encode_placement
from rota.core.model import Job, JobId
from rota.core.placement import Placement, Slot
from rota.core.seats import Seat, seats
from rota.drivers.kubernetes.gang import Gang, Place, is_elastic, job_of, key_of, rank, role_index
from rota.drivers.kubernetes.hived_pods import REQUEST, told
from rota.drivers.kubernetes.notes import DEVICES, JOB_ID, LATE, PLACEMENT, SEAT, SIZE
from rota.drivers.kubernetes.pods import Phase, Pod
from rota.drivers.kubernetes.settings import ClusterSettings


def sit_down(gang: Gang, placement: Placement, nodes: Sequence[Node]) -> None:
    """Give a gang the seats of a placement; pods take them one by one."""
    gang.placement = placement
    gang.places = [Place(seat) for seat in seats(placement, nodes)]
    gang.seated.clear()
    gang.note = orjson.dumps(encode_placement(placement, [str(node.id) for node in nodes])).decode()


def resit(gang: Gang, placement: Placement, nodes: Sequence[Node]) -> list[Pod]:
    """Give a gang other seats: pods whose seat stays keep it and their rank; those that have none now are told."""
    before: dict[tuple[str, tuple[int, ...]], list[Place]] = {}
    for place in gang.places:
        before.setdefault(_spot(place.seat), []).append(place)
    sit_down(gang, placement, nodes)
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


def _spot(seat: Seat) -> tuple[str, tuple[int, ...]]:
    return str(seat.node.id), seat.devices


def binding_note(gang: Gang, seat: Seat, pod: Pod) -> dict[str, str]:
    """What a pod is told when it is bound; one of HiveD's in HiveD's words too."""
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


def fill(gang: Gang) -> list[tuple[Place, Pod]]:
    """Give open seats to pods that wait, and tell who got which; who has done an elastic job's work has done it all."""
    assert gang.job is not None
    given = []
    by_role: dict[int, list[Place]] = {}
    for place in gang.places:
        is_done = gang.job.elastic is not None and place.outcome is Phase.SUCCEEDED
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
    """Pods for which there is no seat, nor will be one: they came after the gang had started whole."""
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


def _is_kept(gang: Gang, place: Place) -> bool:
    """Whether whoever has a seat means to stay."""
    pod = None if place.pod is None else gang.members.get(place.pod)
    return place.outcome is Phase.SUCCEEDED or (pod is not None and not pod.ending and not pod.phase.is_over)


def found_again(gang: Gang, nodes: Sequence[Node], settings: ClusterSettings) -> tuple[Job, Placement] | None:
    """The job and the placement that bound pods tell of; None if they do not tell enough any more."""
    told = [pod for pod in gang.members.values() if PLACEMENT in pod.annotations and pod.node]
    holding = [pod for pod in told if pod.holds and not pod.ending]
    if not holding:
        return None
    if is_elastic(holding[0]):
        return _found_elastic(gang, holding, nodes, settings)
    first = max(holding, key=lambda pod: (pod.created_s, rank(pod)))
    bound = [pod for pod in told if pod.annotations[PLACEMENT] == first.annotations[PLACEMENT]]
    index_by_node = {str(node.id): index for index, node in enumerate(nodes)}
    try:
        placement = decode_placement(orjson.loads(first.annotations[PLACEMENT]), index_by_node)
        places = seats(placement, nodes)
        by_role = {places[int(pod.annotations[SEAT])].role: pod for pod in bound if _is_seat(pod, places)}
    except (KeyError, ValueError, TypeError):
        return None
    if len(by_role) < len({seat.role for seat in places}):
        return None
    pods = [by_role[seat.role] for seat in places]
    job = job_of(gang, pods, settings, JobId(first.annotations[JOB_ID]))
    return job, placement


def _found_elastic(
    gang: Gang, holding: list[Pod], nodes: Sequence[Node], settings: ClusterSettings
) -> tuple[Job, Placement] | None:
    """As many seats as pods hold: what each was told of itself is true, of the others it may have changed since."""
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
    return job, tuple(placement)


def _devices(pod: Pod) -> tuple[int, ...] | None:
    parts = [part for part in pod.annotations.get(DEVICES, "").split(",") if part]
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else None


def _is_seat(pod: Pod, places: Sequence[Seat]) -> bool:
    number = pod.annotations.get(SEAT, "")
    return number.isdigit() and int(number) < len(places) and str(places[int(number)].node.id) == pod.node


def reseat(gang: Gang) -> None:
    """After a restart: pods that are bound take the seats that they were given."""
    if gang.job is not None and gang.job.elastic is not None:
        _reseat_elastic(gang)
        return
    for pod in gang.members.values():
        number = pod.annotations.get(SEAT, "")
        if pod.node is None or not number.isdigit() or int(number) >= len(gang.places):
            continue
        place = gang.places[int(number)]
        is_its = str(place.seat.node.id) == pod.node and pod.annotations.get(PLACEMENT) == gang.note
        if is_its and place.pod is None and not pod.phase.is_over:
            gang.seat(place, pod)
    for pod in gang.members.values():
        number = pod.annotations.get(SEAT, "")
        if pod.phase.is_over and number.isdigit() and int(number) < len(gang.places):
            place = gang.places[int(number)]
            if place.pod is None and pod.annotations.get(PLACEMENT) == gang.note:
                gang.seat(place, pod)
                place.outcome = pod.phase


def _reseat_elastic(gang: Gang) -> None:
    """Each pod where it is, with the rank that it was told."""
    for pod in sorted(gang.members.values(), key=rank):
        if PLACEMENT not in pod.annotations or not pod.holds or pod.ending:
            continue
        spot = (str(pod.node), _devices(pod))
        place = next((each for each in gang.places if each.pod is None and _spot(each.seat) == spot), None)
        if place is not None:
            number = pod.annotations.get(SEAT, "")
            place.seat = replace(place.seat, rank=int(number) if number.isdigit() else place.seat.rank)
            gang.seat(place, pod)
