"""The neighbours of each job, so that a start or an end changes only their speeds."""

from __future__ import annotations

from rota.core.model.job import WHOLE, JobId
from rota.core.model.placement import Placement


class Neighbours:
    """The jobs on each node, with the devices they hold there."""

    def __init__(self) -> None:
        self._devices_by_job_by_node: dict[int, dict[JobId, int]] = {}
        self._affected: dict[JobId, None] = {}

    def enter(self, job_id: JobId, placement: Placement) -> None:
        """A job starts somewhere."""
        for slot in placement:
            jobs = self._devices_by_job_by_node.setdefault(slot.node, {})
            self._affected.update(dict.fromkeys(jobs))
            jobs[job_id] = jobs.get(job_id, 0) | slot.devices
        self._affected.pop(job_id, None)

    def leave(self, job_id: JobId, placement: Placement) -> None:
        """A job is gone from there."""
        for slot in placement:
            jobs = self._devices_by_job_by_node.get(slot.node, {})
            jobs.pop(job_id, None)
            self._affected.update(dict.fromkeys(jobs))
        self._affected.pop(job_id, None)

    def around(self, job_id: JobId, placement: Placement) -> tuple[list[JobId], list[JobId]]:
        """Other jobs on the same devices, and others on the same nodes."""
        on_device: dict[JobId, None] = {}
        on_node: dict[JobId, None] = {}
        for slot in placement:
            for other, devices in self._devices_by_job_by_node.get(slot.node, {}).items():
                if other != job_id:
                    (on_device if devices & slot.devices else on_node)[other] = None
        return list(on_device), [other for other in on_node if other not in on_device]

    def mates(self, job_id: JobId, placement: Placement) -> list[JobId]:
        """The jobs that are packed on the same devices, or on some of them."""
        found: dict[JobId, None] = {}
        for slot in placement:
            if slot.milli != WHOLE and not slot.in_turn:
                on_node = self._devices_by_job_by_node.get(slot.node, {})
                found.update({other: None for other, devices in on_node.items() if devices & slot.devices})
        found.pop(job_id, None)
        return list(found)

    def pop_affected(self) -> list[JobId]:
        """Jobs whose neighbours changed since the last call."""
        affected = list(self._affected)
        self._affected.clear()
        return affected
