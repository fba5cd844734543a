"""Which claims have to wait for jobs that have been ordered to leave and have not answered yet."""

from __future__ import annotations

from collections.abc import Iterable

from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob


def is_vacated(live: LiveJob, vacating: Iterable[tuple[LiveJob, Placement]]) -> bool:
    """Whether the devices that a job claims are vacated.

    Where host resources, fractions or whole nodes are claimed, any job still leaving the node counts.
    A job that is being resized does not block itself.
    """
    for leaver, held in vacating:
        if leaver is live:
            if live.stopping is not None:
                return False
        elif is_blocked_by(live, leaver, held):
            return False
    return True


def is_blocked_by(live: LiveJob, leaver: LiveJob, held: Placement) -> bool:
    """Whether a job has to wait until another has left what it holds: devices, or a node where the host matters."""
    job = live.job
    for old in held:
        for new in live.placement or ():
            if old.node != new.node:
                continue
            if old.devices & new.devices or job.exclusive or leaver.job.exclusive:
                return True
            if job.roles[new.role].needs_host and leaver.job.roles[old.role].needs_host:
                return True
    return False
