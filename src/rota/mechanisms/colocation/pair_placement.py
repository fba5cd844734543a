"""Placement of two packed jobs on the same devices, also where one is larger than the other."""

from __future__ import annotations

from rota.core.model.job import WHOLE
from rota.core.model.placement import Placement, Slot, lowest, packed

Shape = tuple[int, int]
"""Tasks of a job, and whole devices per task."""
HALF = WHOLE // 2
"""Thousandths of a device that each of two packed jobs holds."""


def shared(place: Placement, first: Shape | None, second: Shape | None) -> tuple[Placement, Placement] | None:
    """Return what each of two jobs holds on the devices of the first; None if the second does not fit on them.

    A smaller second job shares only as many devices as it needs; the first keeps the others to itself.
    """
    if first is None or second is None:
        return None
    if first == second:
        return packed(place, HALF), packed(place, HALF)
    missing, per_task = second
    of_lead: list[Slot] = []
    of_mate: list[Slot] = []
    for slot in place:
        tasks = min(slot.devices.bit_count() // per_task, missing)
        devices = lowest(slot.devices, tasks * per_task)
        alongside = tasks * per_task // first[1]
        missing -= tasks
        if tasks:
            of_mate.append(Slot(slot.node, devices, tasks, milli=HALF))
            of_lead.append(slot._replace(devices=devices, tasks=alongside, milli=HALF))
        if slot.tasks > alongside:
            of_lead.append(slot._replace(devices=slot.devices ^ devices, tasks=slot.tasks - alongside))
    return None if missing else (tuple(of_lead), tuple(of_mate))
