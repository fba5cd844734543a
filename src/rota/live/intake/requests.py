"""Requests of users as entries for the loop; each is checked before it changes anything."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from rota.core.errors import RotaError
from rota.core.messages.events import (
    Event,
    JobArrived,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobUpdated,
    NodeDrained,
    NodeRemoved,
    NodeUndrained,
)
from rota.core.messages.reasons import Reason
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job, JobId, JobState, NodeId
from rota.files.job import job_file, job_of
from rota.files.job_shape import JobFile
from rota.files.job_strictness import refuse_ambiguous
from rota.forecast.value import Forecast, NoForecast
from rota.live.estimates.learning import Learning
from rota.live.intake.audit_entry import Asker, audit_entry
from rota.live.intake.planned_models import within_memory
from rota.live.intake.prompt_forecasts import JobForecasts, PromptForecasts
from rota.live.intake.quotas import SubmissionQuotas
from rota.live.intake.submission_limits import LARGE, MOST_AT_ONCE, Allowance, Pauses
from rota.live.intake.submitted_files import SubmittedFiles
from rota.live.intake.tenant_registry import TenantRegistry
from rota.live.loop.cluster_config import changes_by_kind
from rota.live.loop.control import Control
from rota.live.loop.entry import LoopEntry
from rota.live.loop.record import Record, by_our_clock, dump
from rota.live.loop.storage import CantStore
from rota.store import clock
from rota.store.records import Records

log = logging.getLogger("rota.live")
Json = dict[str, Any]
UNNAMED = JobId("unnamed")
"""The id of a job until it gets its own."""
REVISED = (
    "name",
    "priority",
    "estimate_s",
    "deadline_s",
    "time_limit_s",
    "max_restarts",
    "checkpoint",
    "preemptible",
)
"""Fields of a job that may change while it waits."""
Along = Callable[[LoopEntry], None]
"""Adds to an entry of the loop what is stored with it."""


class NotFound(RotaError):
    """The thing does not exist, or the caller may not see it."""


class Conflict(RotaError):
    """The thing is in a state that does not allow the request."""


class Outdated(RotaError):
    """The thing has changed since the caller read it."""


@dataclass(frozen=True, slots=True)
class _NewJob:
    """A job that was checked and has no id yet."""

    job: Job
    record: Record
    needs: list[JobId]


def alone(entry: LoopEntry) -> None:
    """Nothing is stored along with the jobs."""


class Requests:
    """The changes that users can make."""

    def __init__(
        self,
        control: Control,
        records: Records,
        refuse: Callable[[JobFile], None],
        foresight: JobForecasts,
        learning: Learning | None = None,
        refuse_trial: Callable[[JobFile], None] | None = None,
        quotas: SubmissionQuotas | None = None,
        account_of: Callable[[str, str, str | None], str | None] | None = None,
        tenants: TenantRegistry | None = None,
    ) -> None:
        self._control = control
        self._records = records
        self._refuse = refuse
        self._refuse_trial = refuse_trial or refuse
        """Raises a `RotaError` for a hypothetical job that the driver can't run."""
        self._account_of = account_of
        """Returns the Unix account for a user's job in a tenant, given the one that its token names."""
        self._foresight = PromptForecasts(foresight, lambda: len(control.state.jobs))
        self._quotas = quotas
        """None: callers are not limited."""
        self._tenants = tenants
        """Which tenants exist and how high their priorities may be; None: the driver decides."""
        self._next = max(control.state.seq, records.last_number())
        """The last id that was given. Submissions that are refused late leave gaps, so ids run ahead of `seq`."""
        self._under_way: dict[str, asyncio.Future[list[JobId]]] = {}
        self._changing = asyncio.Lock()
        self._files = SubmittedFiles(control, records, learning)
        self._one_large = asyncio.Lock()
        """Held while a large submission is made durable, so that small ones wait for one of them at most."""

    async def submit(
        self, files: Sequence[Json], asker: Asker, *, key: str | None = None, held: bool = False, along: Along = alone
    ) -> list[JobId]:
        """Accept jobs, all or none; their ids once they are durable. A repeated key gets the first answer again.

        `along` adds to what is stored with the jobs, in one transaction; it is for submissions without a key.
        """
        self._control.storage.refuse_if_troubled()
        if key is None:
            return await self._accept(files, asker, held, None, "", along)
        digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
        known = await asyncio.to_thread(self._records.answer, key)
        if known is not None:
            if known[0] != digest:
                raise Conflict(f"idempotency key {key!r} was used for another request; use a new one")
            return [JobId(name) for name in known[1]["ids"]]
        if key not in self._under_way:
            work = asyncio.ensure_future(self._accept(files, asker, held, key, digest))
            self._under_way[key] = work
            work.add_done_callback(lambda _: self._under_way.pop(key, None))
        return await asyncio.shield(self._under_way[key])

    async def _accept(
        self, files: Sequence[Json], asker: Asker, held: bool, key: str | None, digest: str, along: Along = alone
    ) -> list[JobId]:
        quotas = self._quotas
        allowance = Allowance(MOST_AT_ONCE if quotas is None else quotas.quota.at_once)
        allowance.refuse_more(len(files))
        with nullcontext() if quotas is None else quotas.charged(asker.name, len(files)):
            new = await self._checked(files, asker, allowance)
            if quotas is not None:
                quotas.charge(asker.name, len(new) - len(files))
            async with self._one_large if len(new) > LARGE else nullcontext():
                with nullcontext() if quotas is None else quotas.reserved(asker.name, len(new)):
                    entry = self._entry(new, asker, held)
                    along(entry)
                    return await self._take(entry, asker, key, digest)

    async def _checked(self, files: Sequence[Json], asker: Asker, allowance: Allowance) -> list[_NewJob]:
        """Return the jobs of files that were submitted together; raise a `RotaError` if one of them is refused."""
        pauses = Pauses()
        new: list[_NewJob] = []
        for number, values in enumerate(files, start=1):
            source = "job" if len(files) == 1 else f"job {number}"
            for made, file in await self._files.parts(values, source, allowance):
                self._refuse(file)
                job = self._admitted(by_our_clock(job_of(file, UNNAMED, (), asker.name)), asker)
                record = Record(dump(made), asker.name, file, account=self._account(asker, file.tenant))
                new.append(_NewJob(job, record, await self._files.dependencies(file, pauses)))
                await pauses.take()
        return new

    async def _take(self, entry: LoopEntry, asker: Asker, key: str | None, digest: str) -> list[JobId]:
        """Make new jobs durable; return their ids."""
        ids = list(entry.records)
        if key is not None:
            answer = json.dumps({"ids": ids})
            entry.answers.append({"key": key, "digest": digest, "answer": answer, "created_s": clock.now_s()})
        try:
            await self._control.apply(entry)
        except CantStore:
            self._files.latest.forget(
                [(each.job.tenant, each.job.name) for each in entry.events if isinstance(each, JobArrived)]
            )
            raise
        more = {} if len(ids) == 1 else {"last_job": ids[-1], "jobs": len(ids)}
        log.info("submit", extra={"job": ids[0], "who": asker.name, **more})
        return ids

    def _entry(self, new: Sequence[_NewJob], asker: Asker, held: bool) -> LoopEntry:
        """Give new jobs their ids, in order; the entry must be added before anything else is awaited."""
        entry = LoopEntry([])
        together: dict[tuple[str, str], list[JobId]] = {}
        arrays: dict[tuple[str, str | None], str] = {}
        known = self._files.known() if any(each.needs for each in new) else frozenset()
        for number, each in enumerate(new, start=self._next + 1):
            job_id, file = JobId(str(number)), each.record.file
            unmet = tuple(name for name in each.needs if name in known)
            job = replace(each.job, id=job_id, name=file.name or str(job_id), depends_on=unmet)
            if file.array is not None:
                array = each.record.array_id = arrays.setdefault((job.tenant, file.name), job_id)
                if file.array_limit is not None:
                    job = replace(job, array=JobId(array), array_limit=file.array_limit)
            entry.events.append(JobArrived(job, held))
            entry.records[job_id] = each.record
            entry.audit.append(audit_entry(asker, "submit", job_id, job.name))
            if file.name is not None:
                together.setdefault((job.tenant, job.name), []).append(job_id)
        self._files.latest.update(together)
        self._next += len(new)
        return entry

    def _account(self, asker: Asker, tenant: str) -> str | None:
        return asker.account if self._account_of is None else self._account_of(asker.name, tenant, asker.account)

    async def foresee(self, job_id: JobId, asker: str = "") -> Forecast:
        """Return when a job will start and end, or the reason why there is no forecast."""
        live = self._control.state.jobs.get(job_id)
        if live is None or live.state.is_final:
            return Forecast(made_s=clock.now_s(), reason=NoForecast.ENDED)
        return await self._foresight.ask(job_id, asker=asker)

    async def obstacle(self, values: Json, asker: Asker) -> Reason | None:
        """Why a job would find no devices if it were submitted now; None if it would."""
        _, file = next(await self._files.parts(values))
        await self._control.at_rest()
        return self._control.engine.obstacle(job_of(file, JobId("dry-run"), (), asker.name))

    async def try_out(self, values: Json, asker: Asker) -> Forecast:
        """When a job would start if it were submitted now; nothing is changed."""
        _, file = next(await self._files.parts(values))
        self._refuse_trial(file)
        self._account(asker, file.tenant)
        needed = await self._files.dependencies(file, Pauses())
        known = self._files.known()
        needs = tuple(name for name in needed if name in known)
        job_id = JobId("dry-run")
        job = self._admitted(by_our_clock(job_of(file, job_id, needs, asker.name)), asker)
        return await self._foresight.ask(job_id, JobArrived(job), asker.name)

    def _admitted(self, job: Job, asker: Asker) -> Job:
        """The job, unless its tenant does not exist or can never have what it asks for, or its priority is too high."""
        job = self._of_tenant(job, asker)
        if typed := [role.device_types[0] for role in job.roles if role.device_types and not role.device_milli]:
            raise RotaError(f"job: `gpu` names the type {typed[0]!r} of 0 devices; say how many with `gpus`")
        why = self._control.engine.refuse(job)
        if why is not None:
            raise RotaError(f"job: {why}")
        return job if self._control.present is None else within_memory(job, self._control.present.cluster)

    def _of_tenant(self, job: Job, asker: Asker, before: Job | None = None) -> Job:
        """The job as its tenant may have it; `before` is what it was until now."""
        is_new = before is None or before.priority != job.priority
        try:
            return job if self._tenants is None else self._tenants.admitted(job, asker.role, has_new_priority=is_new)
        except RotaError as error:
            raise RotaError(f"job: {error}") from error

    async def act(self, job_ids: Sequence[JobId], action: str, asker: Asker) -> dict[JobId, str]:
        """Cancel, hold or release jobs in one entry of the loop; return why each of the others was refused."""
        refused: dict[JobId, str] = {}
        entry = LoopEntry([])
        for job_id in job_ids:
            try:
                entry.events.append(self._event(job_id, action))
                entry.audit.append(audit_entry(asker, action, job_id))
            except Conflict as error:
                refused[job_id] = str(error)
        if entry.events:
            await self._control.apply(entry)
            log.info(action, extra={"job": job_ids[0], "jobs": len(entry.events), "who": asker.name})
        return refused

    def _event(self, job_id: JobId, action: str) -> Event:
        """The event of an action on a job; raise `Conflict` if the job's state does not allow it."""
        state = self._must_be_unfinished(job_id)
        match action:
            case "cancel":
                return JobCancelled(job_id)
            case "hold":
                if state not in (JobState.WAITING, JobState.HELD):
                    raise Conflict(f"job {job_id} is {state.value}; only a waiting job can be held")
                return JobHeld(job_id)
            case _:
                if state is not JobState.HELD:
                    raise Conflict(f"job {job_id} is {state.value}; only a held job can be released")
                return JobReleased(job_id)

    async def update(self, job_id: JobId, changes: Json, asker: Asker) -> Json:
        """Change fields of a job that does not run; return what changed, old and new values by field."""
        live, record = self._control.state.jobs.get(job_id), self._control.kept.get(job_id)
        if live is None or record is None or live.state not in (JobState.WAITING, JobState.HELD):
            what = "has ended already" if live is None or live.state.is_final else f"is {live.state.value}"
            raise Conflict(f"job {job_id} {what}; only a job that waits or is held can be updated")
        refuse_ambiguous(changes)
        before = json.loads(record.spec)
        after = {name: value for name, value in {**before, **changes}.items() if value is not None}
        if "priority" in changes:
            after.pop("class", None)
        wanted = job_of(job_file(after), job_id, live.job.depends_on, live.job.user)
        job = self._of_tenant(replace(live.job, **{name: getattr(wanted, name) for name in REVISED}), asker, live.job)
        changed = {name: [before.get(name), after.get(name)] for name in changes if before.get(name) != after.get(name)}
        if not changed:
            return changed
        words = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in changed.items())
        entry = LoopEntry([JobUpdated(job_id, job)], specs={job_id: dump(after)})
        entry.audit.append(audit_entry(asker, "update", job_id, words[:500]))
        await self._control.apply(entry)
        if live.job is not job:
            raise Conflict(f"job {job_id} has started meanwhile; only a job that waits or is held can be updated")
        log.info("update", extra={"job": job_id, "who": asker.name})
        return changed

    async def requeue(self, job_id: JobId, asker: Asker) -> JobId:
        """Send a running job back to the queue, or submit one that has ended again; return the id of the job."""
        live = self._control.state.jobs.get(job_id)
        if live is None or live.state.is_final:
            values = await asyncio.to_thread(self._records.spec, str(job_id))
            if values is None:
                raise NotFound(f"there is no job {job_id!r}")
            if _has_secrets(values):
                raise Conflict(f"job {job_id} had secrets, which were deleted at its end; submit it again with them")
            values = {name: value for name, value in values.items() if name != "depends_on"}
            if self._tenants is not None:
                self._tenants.refuse_raised(job_id, job_of(job_file(values), job_id), asker.role)
            return (await self.submit([values], asker))[0]
        if live.state in (JobState.WAITING, JobState.HELD) or live.is_leaving:
            what = "is being stopped" if live.is_leaving else f"is {live.state.value}"
            raise Conflict(f"job {job_id} {what}; only a job that runs or has ended can be requeued")
        await self._apply(JobRequeued(job_id), asker, "requeue", job_id)
        return job_id

    async def cancel(self, job_id: JobId, asker: Asker) -> None:
        """End a job, whatever it is doing."""
        await self._apply(self._event(job_id, "cancel"), asker, "cancel", job_id)

    async def hold(self, job_id: JobId, asker: Asker) -> None:
        """Keep a waiting job from starting."""
        await self._apply(self._event(job_id, "hold"), asker, "hold", job_id)

    async def release(self, job_id: JobId, asker: Asker) -> None:
        """Let a held job run."""
        await self._apply(self._event(job_id, "release"), asker, "release", job_id)

    async def drain(self, node_id: NodeId, asker: Asker, *, drained: bool) -> None:
        """Let nothing new start on a node, or let it take jobs again."""
        if node_id not in self._control.state.inventory.by_name:
            raise NotFound(f"there is no node {node_id!r}")
        event: Event = NodeDrained(node_id) if drained else NodeUndrained(node_id)
        word = "drain" if drained else "undrain"
        await self._apply(event, asker, word, node_id, drained={node_id: drained})

    async def change_cluster(
        self, after: Cluster, asker: Asker, *, tag: str | None, dry_run: bool
    ) -> dict[str, list[str]]:
        """Change the cluster while jobs run; return the changes. With a tag, only if the cluster still has it."""
        present = self._control.present
        assert present is not None, "a manager knows its cluster"
        async with self._changing:
            await self._control.at_rest()
            if tag is not None and tag.strip('"') != present.tag:
                raise Outdated("the cluster has changed meanwhile; look at it again (GET /cluster), and repeat")
            present.refuse_broken_promises(after)
            events = present.way_to(after, self._control.state)
            changed = changes_by_kind(events, present.cluster, after)
            if events and not dry_run:
                words = ", ".join(f"{len(found)} {kind}" for kind, found in changed.items())
                gone = {str(event.node_id): False for event in events if isinstance(event, NodeRemoved)}
                entry = LoopEntry(
                    events, cluster=after, drained=gone, audit=[audit_entry(asker, "change", "cluster", words)]
                )
                await self._control.apply(entry)
        return changed

    async def _apply(
        self, event: Event, asker: Asker, what: str, thing: str, drained: dict[str, bool] | None = None
    ) -> None:
        await self._control.apply(LoopEntry([event], drained=drained or {}, audit=[audit_entry(asker, what, thing)]))
        log.info(what, extra={"job" if drained is None else "node": thing, "who": asker.name})

    def _must_be_unfinished(self, job_id: JobId) -> JobState:
        live = self._control.state.jobs.get(job_id)
        if live is None or live.state.is_final:
            raise Conflict(f"job {job_id} has ended already")
        return live.state


def _has_secrets(values: Json) -> bool:
    """Whether a job file has variables whose values are kept secret."""
    parts = [values, *(values.get("roles") or {}).values()]
    return any(isinstance(value, dict) for part in parts for value in (part.get("env") or {}).values())
