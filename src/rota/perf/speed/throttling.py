"""Duty cycle of a throttled job by the fraction of devices it holds, and its effect on neighbours."""

from __future__ import annotations

from collections.abc import Iterable

from rota.core.model.job import WHOLE, Job
from rota.core.model.placement import Placement

PAUSED = 1
"""Thousandths of a device with which a job is paused."""


def left_by(factor: float, duties: Iterable[float]) -> float:
    """Return the speed left by neighbours: this factor for each, proportionally more if it is throttled."""
    left = 1.0
    for each in duties:
        left *= 1.0 - (1.0 - factor) * each
    return left


def duty(job: Job, placement: Placement, mates: int = 1) -> float:
    """Return a job's work relative to what it would do alone: all with an equal fraction, else in proportion.

    A job throttled without mates does as much as with one. A task that requested a fraction does all of its work with
    that fraction. A thousandth only keeps a job's place on a device.
    """
    for slot in placement:
        if slot.milli != WHOLE:
            role = job.roles[slot.role]
            enough = role.device_milli * slot.tasks if role.is_fraction else WHOLE // (max(mates, 1) + 1)
            if slot.milli >= enough:
                return 1.0
            return slot.milli / enough if slot.milli > PAUSED else 0.0
    return 1.0
