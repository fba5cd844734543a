"""How much of its work a job is let do by what it holds of its devices, and what that leaves to its neighbours."""

from __future__ import annotations

from collections.abc import Iterable

from rota.core.model.job import WHOLE, Job
from rota.core.model.placement import Placement

PAUSED = 1
"""Thousandths of a device with which a job does nothing."""


def left_by(factor: float, duties: Iterable[float]) -> float:
    """What neighbours leave of a speed: each this factor, and more in proportion if it is held back."""
    left = 1.0
    for each in duties:
        left *= 1.0 - (1.0 - factor) * each
    return left


def duty(job: Job, placement: Placement, mates: int = 1) -> float:
    """What a job does of what it would do by itself: all with an equal part of its devices, else in proportion.

    Who is held back without any mates does as much as with one. A task that asked for part of a device does all of its
    own with that part. A thousandth keeps a job's place on a device, no more.
    """
    for slot in placement:
        if slot.milli != WHOLE:
            role = job.roles[slot.role]
            enough = role.device_milli * slot.tasks if role.is_fraction else WHOLE // (max(mates, 1) + 1)
            if slot.milli >= enough:
                return 1.0
            return slot.milli / enough if slot.milli > PAUSED else 0.0
    return 1.0
