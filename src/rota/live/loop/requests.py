"""Requests of users as entries for the loop; each is checked before it changes anything."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from rota.core.codec.cluster_diff import tenants_affected
from rota.core.errors import RotaError
from rota.core.messages.events import (
    Event,
    JobArrived,
    JobCancelled,
    JobHeld,
    JobReleased,
    NodeAdded,
    NodeDrained,
    NodeRemoved,
    NodeUndrained,
    PromisesChanged,
)
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job, JobId, JobState, NodeId
from rota.files.auto import settled, unsettled
from rota.files.job import apart, job_file, job_of, with_amounts
from rota.files.job_shape import JobFile
from rota.live.estimates.learning import Learning
from rota.live.loop.control import Control, LoopEntry
from rota.live.loop.planned_models import within_memory
from rota.live.loop.quotas import SubmissionQuotas
from rota.live.loop.record import Record, dump
from rota.live.loop.submission_limits import LARGE, MOST_AT_ONCE, MOST_NEEDED, Allowance, Pauses, refuse_large
from rota.live.workers.forecast import Forecast
from rota.live.workers.forecast_worker import ForecastWorker
from rota.store.jobs import FINAL
from rota.store.records import Records

log = logging.getLogger("rota.live")
Json = dict[str, Any]
MOST_NAMES = 10_000
"""Names whose latest jobs are kept in memory; those of others are read from the database."""
UNNAMED = JobId("unnamed")
"""The id of a job until it gets its own."""


class NotFound(RotaError):
    """The thing does not exist, or the caller may not see it."""


class Conflict(RotaError):
    """The thing is in a state that does not allow the request."""


class Outdated(RotaError):
    """The thing has changed since the caller read it."""


class CantStore(RotaError):
    """The database can't be written; nothing was accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """The origin of a request: a name for the audit log."""

    name: str = "local"


@dataclass(frozen=True, slots=True)
class _NewJob:
    """A job that was checked and has no id yet."""

    job: Job
    record: Record
    needs: list[JobId]


class Requests:
    """The changes that users can make."""

    def __init__(
        self,
        control: Control,
        records: Records,
        refuse: Callable[[JobFile], None],
        foresight: ForecastWorker,
        learning: Learning | None = None,
        refuse_trial: Callable[[JobFile], None] | None = None,
        quotas: SubmissionQuotas | None = None,
    ) -> None:
        self._control = control
        self._records = records
        self._refuse = refuse
        self._refuse_trial = refuse_trial or refuse
        """Raises a `RotaError` for a hypothetical job that the driver can't run."""
        self._foresight = foresight
        self._learning = learning
        self._quotas = quotas
        """None: callers are not limited."""
        self._next = control.state.seq
        self._under_way: dict[str, asyncio.Future[list[JobId]]] = {}
        self._changing = asyncio.Lock()
        self._one_large = asyncio.Lock()
        """Held while a large submission is made durable, so that small ones wait for one of them at most."""
        self._latest: dict[tuple[str, str], list[JobId]] = {}
        """By tenant and name: the jobs that were submitted last, several if they came together."""

    async def submit(
        self, files: Sequence[Json], asker: Asker, *, key: str | None = None, held: bool = False
    ) -> list[JobId]:
        """Accept jobs, all or none; their ids once they are durable. A repeated key gets the first answer again."""
        if self._control.trouble is not None:
            raise CantStore(f"nothing can be stored now: {self._control.trouble}; try again later")
        if key is None:
            return await self._accept(files, asker, held, None, "")
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
        self, files: Sequence[Json], asker: Asker, held: bool, key: str | None, digest: str
    ) -> list[JobId]:
        pauses = Pauses()
        quotas = self._quotas
        allowance = Allowance(MOST_AT_ONCE if quotas is None else quotas.quota.at_once)
        if quotas is not None:
            quotas.charge(asker.name, len(files))
        new: list[_NewJob] = []
        for number, values in enumerate(files, start=1):
            source = "job" if len(files) == 1 else f"job {number}"
            for made, file in await self._parts(values, source, allowance):
                self._refuse(file)
                job = self._admitted(job_of(file, UNNAMED, (), asker.name))
                new.append(_NewJob(job, Record(dump(made), asker.name, file), await self._dependencies(file, pauses)))
                await pauses.take()
        if quotas is not None:
            quotas.charge(asker.name, len(new) - len(files))
        async with self._one_large if len(new) > LARGE else nullcontext():
            with nullcontext() if quotas is None else quotas.reserved(asker.name, len(new)):
                return await self._take(self._entry(new, asker, held), asker, key, digest)

    async def _take(self, entry: LoopEntry, asker: Asker, key: str | None, digest: str) -> list[JobId]:
        """Make new jobs durable; return their ids."""
        ids = list(entry.records)
        if key is not None:
            answer = json.dumps({"ids": ids})
            entry.answers.append({"key": key, "digest": digest, "answer": answer, "created_s": time.time()})
        await self._control.apply(entry)
        more = {} if len(ids) == 1 else {"last_job": ids[-1], "jobs": len(ids)}
        log.info("submit", extra={"job": ids[0], "who": asker.name, **more})
        return ids

    def _entry(self, new: Sequence[_NewJob], asker: Asker, held: bool) -> LoopEntry:
        """Give new jobs their ids, in order; the entry must be added before anything else is awaited."""
        entry = LoopEntry([])
        together: dict[tuple[str, str], list[JobId]] = {}
        known = self._known() if any(each.needs for each in new) else frozenset()
        for number, each in enumerate(new, start=self._next + 1):
            job_id = JobId(str(number))
            unmet = tuple(name for name in each.needs if name in known)
            name = each.record.file.name or str(job_id)
            job = replace(each.job, id=job_id, name=name, depends_on=unmet)
            entry.events.append(JobArrived(job, held))
            entry.records[job_id] = each.record
            entry.audit.append(_audit(asker, "submit", job_id, job.name))
            if each.record.file.name is not None:
                together.setdefault((job.tenant, job.name), []).append(job_id)
        for names, ids in together.items():
            self._latest.pop(names, None)
            self._latest[names] = ids
        while len(self._latest) > MOST_NAMES:
            del self._latest[next(iter(self._latest))]
        self._next += len(new)
        return entry

    async def _parts(
        self, values: Json, source: str = "job", allowance: Allowance | None = None
    ) -> Iterator[tuple[Json, JobFile]]:
        """The jobs of a file, validated once: with amounts in place of `auto`, which are estimated again for a job
        that is submitted once more."""
        refuse_large(values, source)
        file = job_file(values, source)
        (allowance or Allowance()).take(file, dump(values), source)
        asked = unsettled(values) if values.get("estimated") else values
        made = settled(asked) if self._learning is None else await self._learning.settle(asked, file)
        if made != settled(values):  # which is what was validated
            file = with_amounts(file, made, source)
        return apart(made, source, file)

    async def _dependencies(self, file: JobFile, pauses: Pauses) -> list[JobId]:
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
        found = self._latest.get((tenant, name))
        if found is None:
            found = [JobId(each) for each in await asyncio.to_thread(self._records.latest_named, name, tenant)]
        if not found:
            raise RotaError(f"job: depends_on: there is no job {name!r} in tenant {tenant!r}")
        return found

    def _known(self) -> Set[JobId]:
        """Return the jobs that can be depended on; one that the loop has forgotten succeeded."""
        pending = {name for entry in self._control.pending for name in entry.records}
        return pending.union(self._control.state.jobs) if pending else self._control.state.jobs.keys()

    async def foresee(self, job_id: JobId) -> Forecast | None:
        """Return when a waiting job will start; None if it does not wait."""
        live = self._control.state.jobs.get(job_id)
        if live is None or live.state is not JobState.WAITING:
            return None
        return await self._foresight.ask(job_id)

    async def try_out(self, values: Json, asker: Asker) -> Forecast:
        """When a job would start if it were submitted now; nothing is changed."""
        _, file = next(await self._parts(values))
        self._refuse_trial(file)
        needed = await self._dependencies(file, Pauses())
        known = self._known()
        needs = tuple(name for name in needed if name in known)
        job_id = JobId("dry-run")
        return await self._foresight.ask(job_id, JobArrived(self._admitted(job_of(file, job_id, needs, asker.name))))

    def _admitted(self, job: Job) -> Job:
        """The job, unless its tenant can never have what it asks for, or its model fits on no devices it may have."""
        why = self._control.engine.refuse(job)
        if why is not None:
            raise RotaError(f"job: {why}")
        return job if self._control.present is None else within_memory(job, self._control.present.cluster)

    async def cancel(self, job_id: JobId, asker: Asker) -> None:
        """End a job, whatever it is doing."""
        self._must_be_unfinished(job_id)
        await self._apply(JobCancelled(job_id), asker, "cancel", job_id)

    async def hold(self, job_id: JobId, asker: Asker) -> None:
        """Keep a waiting job from starting."""
        live = self._must_be_unfinished(job_id)
        if live not in (JobState.WAITING, JobState.HELD):
            raise Conflict(f"job {job_id} is {live.value}; only a waiting job can be held")
        await self._apply(JobHeld(job_id), asker, "hold", job_id)

    async def release(self, job_id: JobId, asker: Asker) -> None:
        """Let a held job run."""
        state = self._must_be_unfinished(job_id)
        if state is not JobState.HELD:
            raise Conflict(f"job {job_id} is {state.value}; only a held job can be released")
        await self._apply(JobReleased(job_id), asker, "release", job_id)

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
            changed = _by_kind(events, present.cluster, after)
            if events and not dry_run:
                words = ", ".join(f"{len(found)} {kind}" for kind, found in changed.items())
                gone = {str(event.node_id): False for event in events if isinstance(event, NodeRemoved)}
                entry = LoopEntry(
                    events, cluster=after, drained=gone, audit=[_audit(asker, "change", "cluster", words)]
                )
                await self._control.apply(entry)
        return changed

    async def _apply(
        self, event: Event, asker: Asker, what: str, thing: str, drained: dict[str, bool] | None = None
    ) -> None:
        await self._control.apply(LoopEntry([event], drained=drained or {}, audit=[_audit(asker, what, thing)]))
        log.info(what, extra={"job" if drained is None else "node": thing, "who": asker.name})

    def _must_be_unfinished(self, job_id: JobId) -> JobState:
        live = self._control.state.jobs.get(job_id)
        if live is None or live.state.is_final:
            raise Conflict(f"job {job_id} has ended already")
        return live.state


def _audit(asker: Asker, what: str, thing: str, detail: str = "") -> Json:
    return {"at_s": time.time(), "who": asker.name, "what": what, "thing": thing, "detail": detail}


def _by_kind(events: Sequence[Event], before: Cluster, after: Cluster) -> dict[str, list[str]]:
    """Return a change of the cluster in words, for users and the audit log."""
    found: dict[str, list[str]] = {}
    for event in events:
        match event:
            case NodeAdded(node):
                found.setdefault("nodes added", []).append(node.id)
            case NodeRemoved(node_id):
                found.setdefault("nodes removed", []).append(node_id)
            case PromisesChanged(cells, _):
                names = [str(name) for name in tenants_affected(before, after)]
                rules = ["fairness" if cells is None else "physicalCluster"]
                found |= {"promises to tenants": names} if names else {"rules": rules}
    return found
