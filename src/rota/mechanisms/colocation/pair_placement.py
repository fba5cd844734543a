"""Placement of two packed jobs on the same devices, also where one is larger than the other."""

from __future__ import annotations

from rota.core.model.job import WHOLE
from rota.core.model.placement import Placement, Slot, lowest, packed
from rota.mechanisms.rounds.rule import Contender

HALF = WHOLE // 2
"""Thousandths of a device that each of two packed jobs holds."""


def shared(place: Placement, first: Contender, second: Contender) -> tuple[Placement, Placement] | None:
    """Return what each of two jobs holds on the devices of the first; None if the second does not fit on them.

    A smaller second job shares only as many devices as it needs; the first keeps the others to itself.
    """
    if first.shape is None or second.shape is None:
        return None
    if first.shape == second.shape:
        return packed(place, HALF), packed(place, HALF)
    missing, per_task = second.shape
    of_lead: list[Slot] = []
    of_mate: list[Slot] = []
    for slot in place:
        tasks = min(slot.devices.bit_count() // per_task, missing)
        devices = lowest(slot.devices, tasks * per_task)
        alongside = tasks * per_task // first.shape[1]
        missing -= tasks
        if tasks:
            of_mate.append(Slot(slot.node, devices, tasks, milli=HALF))
            of_lead.append(slot._replace(devices=devices, tasks=alongside, milli=HALF))
        if slot.tasks > alongside:
            of_lead.append(slot._replace(devices=slot.devices ^ devices, tasks=slot.tasks - alongside))
    return None if missing else (tuple(of_lead), tuple(of_mate))
