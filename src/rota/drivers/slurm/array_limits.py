"""How many tasks of an array may run at once (`--array=0-9%2`), which Slurm does not judge of held tasks."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rota.drivers.slurm.printed.records import SlurmJob


class ArrayLimits:
    """The tasks that may run, as of one look."""

    def __init__(self, jobs: Mapping[str, SlurmJob], ordered: Collection[str]) -> None:
        """`ordered` are jobs whose start or stop is under way."""
        self._jobs = jobs
        self._ordered = ordered
        self._first: dict[str, set[str]] = {}

    def is_full(self, job: SlurmJob) -> bool:
        """Whether the array has as many tasks before this one as it allows at once."""
        if not job.array or not job.array_limit:
            return False
        if job.array not in self._first:
            self._first[job.array] = self._first_tasks(job.array, job.array_limit)
        return job.id not in self._first[job.array]

    def _first_tasks(self, array: str, limit: int) -> set[str]:
        """The tasks of an array that may run: those that hold nodes, then the first that wait."""
        tasks = [each for each in self._jobs.values() if each.array == array and not each.has_ended]
        tasks.sort(key=lambda each: (not each.holds_nodes and each.id not in self._ordered, _task_of(each)))
        return {each.id for each in tasks[:limit]}


def _task_of(job: SlurmJob) -> int:
    return int(job.id.partition("_")[2] or 0)
