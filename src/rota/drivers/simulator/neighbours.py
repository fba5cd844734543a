"""Index of jobs by node and device, so that a start or stop changes only the speeds of neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.core.model.job import WHOLE, Job, JobId
from rota.core.model.placement import Placement
from rota.drivers.simulator.job_run import JobRun
from rota.perf.speed.throttling import duty


class Neighbours:
    """The jobs on each node, with the devices they hold there."""

    def __init__(self) -> None:
        self._devices_by_job_by_node: dict[int, dict[JobId, int]] = {}
        self._affected: dict[JobId, None] = {}

    def enter(self, job_id: JobId, placement: Placement) -> None:
        """Add a job."""
        for slot in placement:
            jobs = self._devices_by_job_by_node.setdefault(slot.node, {})
            self._affected.update(dict.fromkeys(jobs))
            jobs[job_id] = jobs.get(job_id, 0) | slot.devices
        self._affected.pop(job_id, None)

    def leave(self, job_id: JobId, placement: Placement) -> None:
        """Remove a job."""
        for slot in placement:
            jobs = self._devices_by_job_by_node.get(slot.node, {})
            jobs.pop(job_id, None)
            self._affected.update(dict.fromkeys(jobs))
        self._affected.pop(job_id, None)

    def around(self, job_id: JobId, placement: Placement) -> tuple[list[JobId], list[JobId]]:
        """Return the other jobs on the same devices, and those on the same nodes."""
        on_device: dict[JobId, None] = {}
        on_node: dict[JobId, None] = {}
        for slot in placement:
            for other, devices in self._devices_by_job_by_node.get(slot.node, {}).items():
                if other != job_id:
                    (on_device if devices & slot.devices else on_node)[other] = None
        return list(on_device), [other for other in on_node if other not in on_device]

    def mates(self, job_id: JobId, placement: Placement) -> list[JobId]:
        """Return the jobs that are packed on all or some of the same devices."""
        found: dict[JobId, None] = {}
        for slot in placement:
            if slot.milli != WHOLE and not slot.in_turn:
                on_node = self._devices_by_job_by_node.get(slot.node, {})
                found.update({other: None for other, devices in on_node.items() if devices & slot.devices})
        found.pop(job_id, None)
        return list(found)

    def pop_affected(self) -> list[JobId]:
        """Return the jobs whose neighbours changed since the last call."""
        affected = list(self._affected)
        self._affected.clear()
        return affected


def duty_among(neighbours: Neighbours | None, job: Job, placement: Placement) -> float:
    """Return the fraction of its work that a throttled job may do on a placement."""
    if neighbours is None or all(slot.milli == WHOLE for slot in placement):
        return 1.0
    return duty(job, placement, len(neighbours.mates(job.id, placement)))


def duties_among(neighbours: Neighbours, runs: Mapping[JobId, JobRun], names: Sequence[JobId]) -> list[float]:
    """Return for each of some jobs the fraction of its work that it may do where it is."""
    return [duty_among(neighbours, runs[name].job, runs[name].placement or ()) for name in names]


def mates_of(
    neighbours: Neighbours, runs: Mapping[JobId, JobRun], run: JobRun, placement: Placement, *, knows_pairs: bool
) -> list[tuple[Job, float]]:
    """Return the jobs packed with a job and how much each does; fractions only where that was measured."""
    if not knows_pairs and run.job.roles[placement[0].role].is_fraction:
        return []
    others = [runs[name] for name in neighbours.mates(run.job.id, placement)]
    return [(other.job, duty(other.job, other.placement or (), len(others))) for other in others]
