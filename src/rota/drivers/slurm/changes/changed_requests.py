"""What users change in jobs that wait (`scontrol update`): a job here asks for what it asks for in Slurm now.

The engine takes some changes of a job that it knows. For all others (its devices, its account) the state has to be
rebuilt from Slurm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from operator import attrgetter

from rota.core.messages.events import JobUpdated
from rota.core.model.job import Job, is_revision
from rota.core.state.job_record import LiveJob
from rota.drivers.slurm.printed.records import SlurmJob
from rota.drivers.slurm.translate import job_of

log = logging.getLogger("rota.slurm")
_asked = attrgetter(
    *("name", "user", "account", "qos", "partitions", "nodes_wanted", "gpus", "gpus_per_node", "gpus_per_task"),
    *("cpus", "memory_bytes", "features", "excluded_nodes", "exclusive", "requeue", "reservation", "time_limit_s"),
)
"""All of a record that `job_of` reads: while it stays the same, so does the job."""


class ChangedRequests:
    """Compares the requests of waiting jobs from one look to the next."""

    def __init__(self, outdated: asyncio.Event, priorities: Mapping[str, int] | None = None) -> None:
        """`outdated` is set when the state has to be rebuilt."""
        self._outdated = outdated
        self._priorities = priorities
        self._known: dict[str, SlurmJob] = {}

    def note(self, job: SlurmJob) -> None:
        """Note what a job asks for that is taken up as it is."""
        self._known[job.id] = job

    def update(self, job: SlurmJob, live: LiveJob) -> list[JobUpdated]:
        """Return the update of a waiting job; none if it asks for the same as at the last look."""
        before = self._known.get(job.id)
        if before is job:
            return []
        self._known[job.id] = job
        if before is not None and _asked(job) == _asked(before):
            return []
        return self.change(live, job_of(job, self._priorities))

    def change(self, live: LiveJob, job: Job) -> list[JobUpdated]:
        """Return the update that makes one job of another; none where there is nothing to do, or it can't be done."""
        if job == live.job:
            return []
        if job.gpu_milli != live.job.gpu_milli or not is_revision(live.job, replace(job, roles=live.job.roles)):
            log.info("asks for something else than before; the state is read again", extra={"job": job.id})
            self._outdated.set()
            return []
        return [JobUpdated(job.id, job)]

    def keep(self, names: Collection[str]) -> None:
        """Forget all other jobs."""
        if len(self._known) > 2 * len(names) + 100:
            self._known = {name: job for name, job in self._known.items() if name in names}
