"""The loop on a Slurm cluster: the state is rebuilt from Slurm's queue, and each look at it becomes a step."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rota.core.codec import snapshot
from rota.core.codec.values import encode_placement
from rota.core.engine.driver import LiveDriver
from rota.core.engine.protocols import Policy
from rota.core.errors import RotaError, Unavailable
from rota.core.messages.events import (
    Event,
    JobArrived,
    JobCancelled,
    JobEnded,
    JobUpdated,
    SpeedChanged,
    StartFailed,
)
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job, JobId, JobState, NodeId
from rota.core.model.placement import Placement
from rota.core.state.inventory import Inventory
from rota.core.state.state import State
from rota.drivers.slurm.changes.running_jobs import suspension_words
from rota.drivers.slurm.commands import UNREADABLE, SlurmReader
from rota.drivers.slurm.observer import message_of
from rota.drivers.slurm.printed.accounts import Association
from rota.drivers.slurm.printed.records import SlurmJob
from rota.drivers.slurm.translate import Misfit, claim_of, cluster_of, job_of, node_of
from rota.drivers.slurm.view import SlurmView
from rota.live.loop.boot import Scheduling, as_scheduled, begin
from rota.live.loop.cluster_config import ClusterConfig
from rota.live.loop.control import PAST_KEY, Control
from rota.live.loop.entry import LoopEntry
from rota.live.loop.policy_memory import PolicyMemory
from rota.live.loop.record import Record, dump
from rota.live.slurm.slurm_records import close_ended, record_found, unseen_runs
from rota.policies import find_policy
from rota.store import clock
from rota.store.records import Records

Json = dict[str, Any]
log = logging.getLogger("rota.live")
MOST_AT_ONCE = 500
"""Jobs that are recorded in one transaction."""
NODES_EVERY_S = 10.0
"""How often nodes are read; jobs are read at every look."""


class LookingDriver(LiveDriver, Protocol):
    """A driver that learns what happened by looking."""

    view: SlurmView
    outdated: asyncio.Event

    def needs_nodes(self, state: State) -> bool:
        """Return whether nodes have to be read again before this look."""

    def look(self, state: State, now_s: float, wall_s: float) -> list[Event]:
        """Return the events since the last look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often Slurm is asked."""

    jobs_s: float = 2.0
    nodes_s: float = NODES_EVERY_S


class SlurmLoop:
    """Looks at Slurm again and again, and passes on to the loop what happened."""

    def __init__(
        self,
        control: Control,
        records: Records,
        reader: SlurmReader,
        driver: LookingDriver,
        pace: Pace,
        cluster: Cluster,
    ) -> None:
        """`cluster` has the nodes of the state; once Slurm has others, the state is outdated."""
        self._nodes = {str(node.id): node for node in cluster.nodes}
        self._control = control
        self._records = records
        self._reader = reader
        self._driver = driver
        self._pace = pace
        self._nodes_due_s = 0.0
        self._said: set[str] = set()
        self.looked_s = 0.0
        """When the last look succeeded."""
        self.trouble: str | None = None
        """Why the last look failed, if it did."""
        self.beat: Callable[[], None] = lambda: None
        """Is called after each look that succeeded."""
        self.defer: Callable[[Sequence[JobId]], None] = lambda jobs: None
        """Is told of jobs that ran between two looks, before they end here."""
        self.settle: Callable[[Sequence[Json]], None] = lambda outcomes: None
        """Is told how and when they ran, by Slurm's record."""

    async def run(self) -> None:
        """Look until cancelled; a look that fails is reported once, and repeated."""
        while True:
            begun = time.monotonic()
            try:
                await self.look()
                if self.trouble is not None:
                    log.info("Slurm answers again")
                self.trouble, self.looked_s = None, clock.now_s()
                self.beat()
            except (*UNREADABLE, Unavailable) as error:
                if self.trouble != str(error):
                    log.error("Slurm can't be read; the last known state stays", extra={"why": str(error)})
                self.trouble = str(error)
            await asyncio.sleep(max(self._pace.jobs_s - (time.monotonic() - begun), 0.05))

    async def look(self) -> None:
        """Read Slurm once, and pass on what changed; return when it is durable."""
        jobs = await self._reader.jobs()
        self._report(jobs.faults)
        now_s = clock.now_s()
        self._driver.view.take(jobs, now_s)
        await self._control.at_rest()
        if now_s >= self._nodes_due_s or self._driver.needs_nodes(self._control.state):
            nodes = await self._reader.nodes()
            self._report(nodes.faults)
            self._driver.view.take_nodes(nodes)
            self._report_mixed()
            if {name: node_of(node) for name, node in self._driver.view.nodes.items()} != self._nodes:
                log.info("Slurm's nodes have changed; the state is read again")
                self._driver.outdated.set()
            self._nodes_due_s = clock.now_s() + self._pace.nodes_s
            await self._control.at_rest()
        events = self._driver.look(self._control.state, now_s, clock.shown_s(now_s))
        if events:
            unseen = unseen_runs(events, self._driver.view)
            self.defer(unseen)
            await self._control.apply(self._entry(events))
            if unseen:
                self.settle(await asyncio.to_thread(self._close, unseen))

    def _close(self, names: Sequence[JobId]) -> list[Json]:
        outcomes: list[Json] = []
        for at in range(0, len(names), MOST_AT_ONCE):
            rows = self._records.whole_jobs(names[at : at + MOST_AT_ONCE])
            outcomes += close_ended(self._records, self._driver.view, rows)
        return outcomes

    def _entry(self, events: Sequence[Event]) -> LoopEntry:
        entry = LoopEntry(list(events))
        for event in events:
            if isinstance(event, JobArrived):
                entry.records[event.job.id] = Record(dump(spec_of(event.job)), event.job.user)
            elif isinstance(event, JobUpdated):
                entry.specs[event.job_id] = dump(spec_of(event.job))
            elif isinstance(event, JobEnded | JobCancelled) and event.job_id in self._control.kept:
                job = self._driver.view.jobs.get(str(event.job_id))
                self._control.kept[event.job_id].message = "" if job is None else message_of(job)
            elif isinstance(event, SpeedChanged) and event.job_id in self._control.kept:
                self._note_suspension(event.job_id)
            elif isinstance(event, StartFailed) and event.job_id in self._control.kept:
                self._control.kept[event.job_id].message = event.why
        return entry

    def _note_suspension(self, job_id: JobId) -> None:
        """Say of a job that runs here whether Slurm has suspended it."""
        job, record = self._driver.view.jobs.get(str(job_id)), self._control.kept[job_id]
        if job is not None and job.is_suspended != record.paused:
            record.paused = job.is_suspended
            record.message = suspension_words(job) if job.is_suspended else ""

    def _report_mixed(self) -> None:
        for node in self._driver.view.mixed_among:
            if node.is_mixed and node.name not in self._said:
                self._said.add(node.name)
                about = {"node": node.name, "types": ", ".join(node.gpu_types)}
                log.warning("has GPUs of several types; they count as of the first", extra=about)

    def _report(self, faults: Sequence[str]) -> None:
        """Log each fault of a record once."""
        for fault in faults:
            if fault not in self._said and len(self._said) < 1000:
                self._said.add(fault)
                log.warning("a record of Slurm's was left out", extra={"why": fault})


def spec_of(job: Job) -> Json:
    """A job in the form of a job file, for display."""
    return {
        "name": job.name,
        "tenant": str(job.tenant),
        "run": f"# job {job.id} of Slurm",
        "roles": {
            role.name: {"count": role.count, "gpus": role.device_milli / 1000, "cpus": role.cpu_milli / 1000}
            for role in job.roles
        },
    }


async def read_cluster(reader: SlurmReader, view: SlurmView, *, needs_accounts: bool) -> Cluster:
    """Read nodes, accounts and jobs; raise a `RotaError` where Slurm can't be read or has no nodes.

    Accounts that can't be read just now are left out unless they are needed.
    """
    nodes = await reader.nodes()
    if not nodes.found:
        raise RotaError(f"Slurm lists no nodes{': ' + nodes.faults[0] if nodes.faults else ''}")
    view.take_nodes(nodes)
    jobs = await reader.jobs()
    view.take(jobs, clock.now_s())
    accounts: Sequence[Association] = ()
    try:
        accounts = (await reader.associations()).found
    except UNREADABLE as error:
        if needs_accounts:
            raise
        log.warning("Slurm's accounts can't be read yet", extra={"why": str(error)})
    return cluster_of(nodes.found, accounts)


def boot_on_slurm(
    records: Records,
    driver: LookingDriver,
    scheduling: Scheduling,
    scope: Callable[[SlurmJob], bool],
    policy: Policy | None = None,
    qos: Mapping[str, int] | None = None,
) -> Control:
    """Return the loop, ready to run, in the state of Slurm's queue; `scope` says which jobs belong to it.

    With a `policy` that one plans, and the one of the scheduling is what forecasts assume. `qos` has the priorities of
    qualities of service.
    """
    declared, options = find_policy(scheduling.policy)
    if policy is None:
        declared.refuse_driver(options, driver.contract, live=True)
    recall = PolicyMemory(records, declared.name)
    rows = {JobId(row.id): row for row in records.live_jobs()}
    jobs = [job for job in driver.view.jobs.values() if scope(job) and not job.has_ended]
    jobs = [job for job in jobs if JobId(job.id) in rows or records.job(job.id) is None]
    close_ended(records, driver.view, [row for name, row in rows.items() if name not in {job.id for job in jobs}])
    found = _QueueStanding(scheduling.cluster, rows, records.next_seq(), qos or {})
    for job in sorted(jobs, key=lambda job: (job.submit_s, job.number, job.id)):
        found.add(job)
    nodes = driver.view.nodes.values()
    frame = snapshot.Snapshot(
        now_s=max([clock.now_s(), *(value["since_s"] for _, value in found.pairs)]),
        seq=found.seq,
        down=tuple(NodeId(node.name) for node in nodes if node.is_down),
        drained=tuple(NodeId(node.name) for node in nodes if node.is_drained),
        memory=recall.memory(),
        past=records.setting(PAST_KEY) or {},
    )
    pairs = [(job, recall.standing(value)) for job, value in found.pairs]
    state = snapshot.rebuild(scheduling.cluster, pairs, frame)
    record_found(records, state, found.kept, rows)
    present = ClusterConfig(scheduling.cluster, scheduling.cluster, scheduling.tenancy, has_fixed_nodes=False)
    was = as_scheduled(scheduling, state, found.kept, present, LoopEntry([], cluster=scheduling.cluster))
    if policy is not None:
        following, build = policy, was.build
        was = replace(was, build=lambda: (following, build()[1]))
    about = f"Resynced: {len(jobs)} jobs found on {len(scheduling.cluster.nodes)} nodes of a Slurm cluster"
    return begin(records, scheduling, was, about)


class _QueueStanding:
    """Where the jobs of a queue stand, as values for a snapshot."""

    def __init__(self, cluster: Cluster, rows: dict[JobId, Any], seq: int, qos: Mapping[str, int]) -> None:
        self._qos = qos
        self._scratch = Inventory(cluster)
        self._index_by_node = {str(node.id): index for index, node in enumerate(cluster.nodes)}
        self._names = [str(node.id) for node in cluster.nodes]
        self._rows = rows
        self.seq = seq
        self.pairs: list[tuple[Job, Json]] = []
        self.kept: dict[JobId, Record] = {}

    def add(self, job: SlurmJob) -> None:
        """Add a job: running where Slurm says so, otherwise held until the first look says that it may start."""
        shaped, row = job_of(job, self._qos), self._rows.get(JobId(job.id))
        known: Json = {} if row is None else json.loads(row.live)
        for gone in ("leaving", "stopping", "retry_s", "lease", "on", "parked"):
            known.pop(gone, None)
        now_s = clock.now_s()
        submitted_s = min(clock.from_wall_s(job.submit_s), now_s) if job.submit_s else now_s
        value: Json = {"seq": self.seq, "submitted_s": submitted_s, "since_s": submitted_s, **known}
        self.seq += row is None
        shaped, placement = self._placement(job, shaped)
        if placement is None:
            value |= {"state": JobState.HELD.value, "rate": 0.0, "run_since_s": None, "work_from_s": value["since_s"]}
        else:
            started_s = min(clock.from_wall_s(job.start_s), now_s) if job.start_s else now_s
            started_s = max(started_s, value["since_s"])
            begun_s = started_s
            if job.suspended_s:  # it has run for less time than has passed
                begun_s = min(max(clock.from_wall_s(job.runs_since_s(clock.shown_s(now_s))), started_s), now_s)
            value |= _earlier_runs(known)
            value |= {"state": JobState.RUNNING.value, "rate": 1.0, "run_since_s": begun_s, "work_from_s": begun_s}
            value["since_s"] = started_s
            value["first_start_s"] = known.get("first_start_s") or started_s
            value["on"] = encode_placement(placement, self._names)
            value["run_milli"] = sum(slot.devices.bit_count() * slot.milli for slot in placement)
        self.pairs.append((shaped, value))
        record = Record(dump(spec_of(shaped)), shaped.user)
        if row is not None:
            record.attempt, record.failures, record.message = row.attempt, row.failures, row.message
        self.kept[shaped.id] = record

    def _placement(self, job: SlurmJob, shaped: Job) -> tuple[Job, Placement | None]:
        if not job.holds_nodes:
            return shaped, None
        taken = {index: ~account.free_mask for index, account in enumerate(self._scratch.nodes)}
        found = claim_of(job, shaped, self._index_by_node, taken)
        if isinstance(found, Misfit):
            return shaped, None
        held, placement = found
        if not self._scratch.is_free(placement, held.roles, held.exclusive, back=True):
            return held, None
        self._scratch.take(placement, held.roles, held.exclusive)
        return held, placement


def _earlier_runs(known: Json) -> Json:
    """What a job did before the run that Slurm tells of: of that run, what was counted already is counted again."""
    counted_s = 0.0
    if known.get("state") == JobState.RUNNING.value and known.get("run_since_s") is not None:
        counted_s = known["run_since_s"] - known["since_s"]
    ran_s, used = known.get("ran_s", 0.0) - counted_s, known.get("attained_milli_s", 0.0)
    used -= counted_s * known.get("run_milli", 0)
    return {"work": 0.0, "ran_s": max(ran_s, 0.0), "attained_milli_s": max(used, 0.0)}
