"""Job files as they are submitted: validated once, taken apart into jobs, and their dependencies found."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Set
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.job import JobId, JobState
from rota.files.auto import settled, unsettled
from rota.files.job import apart, job_file, with_amounts
from rota.files.job_shape import JobFile
from rota.files.job_strictness import refuse_ambiguous
from rota.live.estimates.learning import Learning
from rota.live.intake.latest_names import LatestNames
from rota.live.intake.submission_limits import MOST_NEEDED, Allowance, Pauses, refuse_large
from rota.live.loop.control import Control
from rota.live.loop.record import dump
from rota.store.jobs import FINAL
from rota.store.records import Records

Json = dict[str, Any]


class SubmittedFiles:
    """Reads the job files of one manager."""

    def __init__(self, control: Control, records: Records, learning: Learning | None) -> None:
        self._control = control
        self._records = records
        self._learning = learning
        self.latest = LatestNames()
        """The jobs that names mean."""

    async def parts(
        self, values: Json, source: str = "job", allowance: Allowance | None = None
    ) -> Iterator[tuple[Json, JobFile]]:
        """The jobs of a file, validated once: with amounts in place of `auto`, which are estimated again for a job
        that is submitted once more."""
        refuse_large(values, source)
        file = job_file(values, source)
        refuse_ambiguous(values, source)
        (allowance or Allowance()).take(file, dump(values), source)
        asked = unsettled(values) if values.get("estimated") else values
        made = settled(asked) if self._learning is None else await self._learning.settle(asked, file)
        if made != settled(values):  # which is what was validated
            file = with_amounts(file, made, source)
        return apart(made, source, file)

    async def dependencies(self, file: JobFile, pauses: Pauses) -> list[JobId]:
        """The jobs that a file depends on, by id or by name: the newest of a name, with those submitted with it."""
        found: dict[JobId, None] = {}
        for name in file.depends_on:
            for job_id in await self._meant(name, file.tenant):
                live = self._control.state.jobs.get(job_id)
                row = None if live is not None else await asyncio.to_thread(self._records.job, job_id)
                if row is not None and row.state in FINAL and row.state != JobState.SUCCEEDED.value:
                    raise RotaError(
                        f"job: depends_on: job {name!r} has ended as {row.state}; no job can depend on it any more"
                    )
                found[job_id] = None
                if len(found) > MOST_NEEDED:
                    raise RotaError(f"job: depends_on: {name!r} is too many; a job can depend on {MOST_NEEDED} jobs")
                await pauses.take()
        return list(found)

    async def _meant(self, name: str, tenant: str) -> list[JobId]:
        """The jobs of a tenant that go by an id or a name."""
        live = self._control.state.jobs.get(JobId(name))
        owner = None if live is None else live.job.tenant
        if live is None and (row := await asyncio.to_thread(self._records.job, name)) is not None:
            owner = row.tenant
        if owner == tenant:
            return [JobId(name)]
        found = self.latest.get((tenant, name))
        if found is None:
            found = [JobId(each) for each in await asyncio.to_thread(self._records.latest_named, name, tenant)]
        if not found:
            raise RotaError(f"job: depends_on: there is no job {name!r} in tenant {tenant!r}")
        return found

    def known(self) -> Set[JobId]:
        """Return the jobs that can be depended on; one that the loop has forgotten succeeded."""
        pending = {name for entry in self._control.pending for name in entry.records}
        return pending.union(self._control.state.jobs) if pending else self._control.state.jobs.keys()
