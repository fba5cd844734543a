"""Requests of users as entries for the loop; each is checked before it changes anything."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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
from rota.forecast.value import Forecast, NoForecast
from rota.live.estimates.learning import Learning
from rota.live.loop.control import Control, LoopEntry
from rota.live.loop.planned_models import within_memory
from rota.live.loop.record import Record, dump
from rota.store.jobs import FINAL
from rota.store.records import Records

log = logging.getLogger("rota.live")
Json = dict[str, Any]
MOST_AT_ONCE = 10_000
"""Jobs that can be submitted together."""
PAUSE_AFTER = 50
"""After how many jobs of a long list other requests are served."""
MOST_NEEDED = 1000
"""Jobs that one can depend on."""


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


class JobForecasts(Protocol):
    """Forecasts on request."""

    async def ask(self, job_id: JobId, arrives: JobArrived | None = None) -> Forecast:
        """Return when a job will start and end; `arrives` is a hypothetical job."""


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
    ) -> None:
        self._control = control
        self._records = records
        self._refuse = refuse
        self._refuse_trial = refuse_trial or refuse
        """Raises a `RotaError` for a hypothetical job that the driver can't run."""
        self._foresight = foresight
        self._learning = learning
        self._next = control.state.seq
        self._under_way: dict[str, asyncio.Future[list[JobId]]] = {}
        self._changing = asyncio.Lock()
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
        parts: list[tuple[Json, JobFile]] = []
        for number, values in enumerate(files, start=1):
            parts.extend(await self._parts(values, "job" if len(files) == 1 else f"job {number}"))
            if not number % PAUSE_AFTER:
                await asyncio.sleep(0)
        if len(parts) > MOST_AT_ONCE:
            raise RotaError(f"{len(parts)} jobs were submitted; submit 1 to {MOST_AT_ONCE} at once")
        for _, file in parts:
            self._refuse(file)
        needs = [await self._dependencies(file) for _, file in parts]
        entry = LoopEntry([])
        ids: list[JobId] = []
        together: dict[tuple[str, str], list[JobId]] = {}
        for (values, file), needed in zip(parts, needs, strict=True):
            job_id = JobId(str(self._next + len(ids) + 1))
            job = self._admitted(job_of(file, job_id, self._unmet(needed), asker.name))
            ids.append(job_id)
            entry.events.append(JobArrived(job, held))
            entry.records[job_id] = Record(dump(values), asker.name, file)
            entry.audit.append(_audit(asker, "submit", job_id, job.name))
            together.setdefault((job.tenant, job.name), []).append(job_id)
        self._latest.update(together)
        self._next += len(ids)
        if key is not None:
            answer = json.dumps({"ids": ids})
            entry.answers.append({"key": key, "digest": digest, "answer": answer, "created_s": time.time()})
        await self._control.apply(entry)
        more = {} if len(ids) == 1 else {"last_job": ids[-1], "jobs": len(ids)}
        log.info("submit", extra={"job": ids[0], "who": asker.name, **more})
        return ids

    async def _parts(self, values: Json, source: str = "job") -> list[tuple[Json, JobFile]]:
        """The jobs of a file, validated once: with amounts in place of `auto`, which are estimated again for a job
        that is submitted once more."""
        file = job_file(values, source)
        asked = unsettled(values) if values.get("estimated") else values
        made = settled(asked) if self._learning is None else await self._learning.settle(asked, file)
        if made != settled(values):  # which is what was validated
            file = with_amounts(file, made, source)
        return apart(made, source, file)

    async def _dependencies(self, file: JobFile) -> list[JobId]:
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
            raise RotaError(f"job: depends_on names {len(found)} jobs; a job can depend on at most {MOST_NEEDED}")
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

    def _unmet(self, needed: list[JobId]) -> tuple[JobId, ...]:
        """Return the unmet dependencies; a job that the loop has forgotten succeeded."""
        known = self._control.state.jobs
        pending = {name for entry in self._control.pending for name in entry.records}
        return tuple(dict.fromkeys(name for name in needed if name in known or name in pending))

    async def foresee(self, job_id: JobId) -> Forecast:
        """Return when a job will start and end, or the reason why there is no forecast."""
        live = self._control.state.jobs.get(job_id)
        if live is None or live.state.is_final:
            return Forecast(made_s=time.time(), reason=NoForecast.ENDED)
        return await self._foresight.ask(job_id)

    async def try_out(self, values: Json, asker: Asker) -> Forecast:
        """When a job would start if it were submitted now; nothing is changed."""
        _, file = (await self._parts(values))[0]
        self._refuse_trial(file)
        needs = self._unmet(await self._dependencies(file))
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
