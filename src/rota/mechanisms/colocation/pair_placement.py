"""Two jobs on the same devices: what each of them holds of them, also where one is larger than the other."""

from __future__ import annotations

from rota.core.model.job import WHOLE
from rota.core.model.placement import Placement, Slot, lowest, packed
from rota.mechanisms.rounds.rule import Contender

HALF = WHOLE // 2
"""What each of two packed jobs holds of a device."""


def shared(place: Placement, lead: Contender, mate: Contender) -> tuple[Placement, Placement] | None:
    """What each of two jobs holds, on devices that are the first one's; None if the second finds no room on them.

    A smaller mate shares as many devices as it needs; the first has the rest of its devices for itself.
    """
    if lead.shape is None or mate.shape is None:
        return None
    if lead.shape == mate.shape:
        return packed(place, HALF), packed(place, HALF)
    missing, per_task = mate.shape
    of_lead: list[Slot] = []
    of_mate: list[Slot] = []
    for slot in place:
        tasks = min(slot.devices.bit_count() // per_task, missing)
        devices = lowest(slot.devices, tasks * per_task)
        beside = tasks * per_task // lead.shape[1]
        missing -= tasks
        if tasks:
            of_mate.append(Slot(slot.node, devices, tasks, milli=HALF))
            of_lead.append(slot._replace(devices=devices, tasks=beside, milli=HALF))
        if slot.tasks > beside:
            of_lead.append(slot._replace(devices=slot.devices ^ devices, tasks=slot.tasks - beside))
    return None if missing else (tuple(of_lead), tuple(of_mate))
