"""Seats on the wire: what a Binding tells a pod, and what pods that are bound tell whoever starts after a crash."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from rota.core.cluster import Node
from rota.core.codec import decode_placement, encode_placement
from rota.core.model import Job, JobId
from rota.core.placement import Placement
from rota.core.seats import Seat, seats
from rota.drivers.kubernetes.gang import Gang, Place, job_of, rank, role_index
from rota.drivers.kubernetes.hived_pods import REQUEST, told
from rota.drivers.kubernetes.notes import DEVICES, JOB_ID, PLACEMENT, SEAT
from rota.drivers.kubernetes.pods import Pod
from rota.drivers.kubernetes.settings import ClusterSettings


def sit_down(gang: Gang, placement: Placement, nodes: Sequence[Node]) -> None:
    """Give a gang the seats of a placement; pods take them one by one."""
    gang.placement = placement
    gang.places = [Place(seat) for seat in seats(placement, nodes)]
    gang.seated.clear()
    gang.note = orjson.dumps(encode_placement(placement, [str(node.id) for node in nodes])).decode()


def binding_note(gang: Gang, seat: Seat, pod: Pod) -> dict[str, str]:
    """What a pod is told when it is bound; one of HiveD's in HiveD's words too."""
    note = {
        DEVICES: ",".join(map(str, seat.devices)),
        PLACEMENT: gang.note,
        SEAT: str(seat.rank),
        JOB_ID: str(gang.id),
    }
    return {**note, **told(note, str(seat.node.id))} if REQUEST in pod.annotations else note


def fill(gang: Gang) -> list[tuple[Place, Pod]]:
    """Give open seats to pods that wait, and tell who got which."""
    assert gang.job is not None
    given = []
    by_role: dict[int, list[Place]] = {}
    for place in gang.places:
        if place.is_open:
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


def found_again(gang: Gang, nodes: Sequence[Node], settings: ClusterSettings) -> tuple[Job, Placement] | None:
    """The job and the placement that bound pods tell of; None if they do not tell enough any more."""
    told = [pod for pod in gang.members.values() if PLACEMENT in pod.annotations and pod.node]
    holding = [pod for pod in told if pod.holds and not pod.ending]
    if not holding:
        return None
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


def _is_seat(pod: Pod, places: Sequence[Seat]) -> bool:
    number = pod.annotations.get(SEAT, "")
    return number.isdigit() and int(number) < len(places) and str(places[int(number)].node.id) == pod.node


def reseat(gang: Gang) -> None:
    """After a restart: pods that are bound take the seats that they were given."""
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
