"""Start of a loop: the state is rebuilt from the jobs' records, and a new journal segment begins."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rota.core.codec import snapshot
from rota.core.codec.values import decode_job
from rota.core.engine.driver import DriverContract
from rota.core.engine.engine import Engine, Journal
from rota.core.engine.protocols import Allocator, Policy
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import OPPORTUNISTIC, JobId, JobState, NodeId
from rota.core.state.state import State
from rota.files.network.network_file import network_from_spec
from rota.live.intake.planned_models import planned_speeds
from rota.live.loop.cluster_config import KEY as CLUSTER_KEY
from rota.live.loop.cluster_config import ClusterConfig, as_json, kept_from
from rota.live.loop.control import PAST_KEY, Control
from rota.live.loop.entry import LoopEntry, StepRecorder
from rota.live.loop.policy_faults import FaultyPolicy
from rota.live.loop.policy_memory import PolicyMemory
from rota.live.loop.record import Record
from rota.mechanisms.declare import Knowledge
from rota.perf.speed.link_estimates import LinkEstimates
from rota.perf.speed.model import Costs
from rota.placement import on_network, style
from rota.policies import find_policy
from rota.scenario import Scenario
from rota.store import clock
from rota.store.disk_reserve import DiskReserve
from rota.store.journal import JournalHeader, encode_header
from rota.store.records import Records
from rota.tenancy import allocator

log = logging.getLogger("rota.live")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """How the manager schedules."""

    cluster: Cluster
    policy: str = "priority"
    placement: str | None = None
    tenancy: str = "none"
    has_fixed_nodes: bool = False
    """Whether the nodes are this machine's own and not read from a file."""
    network: str | None = None
    """The network between the nodes, as scenarios name it; forecasts have jobs wait for its links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The state of a manager when it stopped, and how it schedules."""

    state: State
    kept: dict[JobId, Record]
    present: ClusterConfig
    first: LoopEntry
    """Events that lead from the stored cluster to the given one."""
    policy: str
    """By name, with the options of live use."""
    placement: str
    in_rounds: bool
    build: Callable[[], tuple[Policy, Allocator]]
    """Builds a policy and its allocator, with separate accounts where the allocator keeps any."""
    network: str | None = None

    def engine(self, journal: Journal | None = None) -> Engine:
        """Return an engine in this state."""
        policy, alloc = self.build()
        _demote(self.state, alloc)
        return Engine(self.state, policy, alloc, journal=journal)


EndOfTasks = Callable[[JobId, int], float | None]
"""Returns when the last task of an attempt ended; None if one may still run."""
RowChoice = Callable[[Sequence[Any]], Sequence[Any]]
"""Returns which of the rows of unfinished jobs are restored, with those that they depend on."""


def restored(
    records: Records, scheduling: Scheduling, choice: RowChoice | None = None, end_of_tasks: EndOfTasks | None = None
) -> Restored:
    """Return the state in the records; raise a `RotaError` if it does not fit the scheduling.

    With a `choice`, which only copies of a state may have, some jobs are left out. By `end_of_tasks`, jobs are not
    charged for the time since their tasks ended while no manager ran.
    """
    declared, _ = find_policy(scheduling.policy)
    given = scheduling.cluster
    known = None if scheduling.has_fixed_nodes else kept_from(records.setting(CLUSTER_KEY))
    allocator(scheduling.tenancy, style("any"), given)
    current, removed = (given, ()) if known is None else (known.current, known.removed)
    recall = PolicyMemory(records, declared.name)
    rows: Sequence[Any] = records.live_jobs()
    if choice is not None:
        rows = choice(rows)
    state, kept = _restore(records, recall, current, removed, rows, declared.plans_in_rounds, end_of_tasks)
    present = ClusterConfig(given, current, scheduling.tenancy, has_fixed_nodes=scheduling.has_fixed_nodes)
    is_as_given = known is None or known.given != as_json(given)
    first = LoopEntry([], cluster=given if is_as_given else current)
    if is_as_given:
        first.events = present.way_to(given, state)
    return as_scheduled(scheduling, state, kept, present, first)


def as_scheduled(
    scheduling: Scheduling, state: State, kept: dict[JobId, Record], present: ClusterConfig, first: LoopEntry
) -> Restored:
    """Return a state together with the scheduler that continues with it."""
    declared, asked = find_policy(scheduling.policy)
    options = declared.live_options(asked)
    declared.refuse_tenancy(scheduling.tenancy)
    placement = on_network(scheduling.placement or declared.placement_with(options), scheduling.network)

    def build() -> tuple[Policy, Allocator]:
        cluster = present.whole(state)
        alloc = allocator(scheduling.tenancy, style(placement), cluster)

        def policy() -> Policy:
            links = _link_estimates(scheduling.network, cluster)
            return declared.build(options, alloc, Knowledge(speed=replace(planned_speeds(cluster), links=links)))

        return policy() if declared.user is None else FaultyPolicy(policy), alloc

    return Restored(
        state=state,
        kept=kept,
        present=present,
        first=first,
        policy=scheduling.policy if options == asked else f"{declared.name}:{options}",
        placement=placement,
        in_rounds=declared.plans_in_rounds,
        build=build,
        network=scheduling.network,
    )


def _link_estimates(network: str | None, cluster: Cluster) -> LinkEstimates | None:
    """Return what policies expect links to cost jobs; None without a network that connects all nodes."""
    if network is None:
        return None
    try:
        model = network_from_spec(network, [str(node.id) for node in cluster.nodes])
        return LinkEstimates(model, cluster.nodes)
    except RotaError as error:
        log.warning("policies do without the network", extra={"why": str(error)})
        return None


def boot(
    records: Records,
    scheduling: Scheduling,
    driver: DriverContract,
    reserve: DiskReserve | None = None,
    end_of_tasks: EndOfTasks | None = None,
) -> Control:
    """Return the loop, ready to run, in the state in which the last one stopped.

    A policy that the driver can't serve is refused before anything is changed.
    """
    declared, options = find_policy(scheduling.policy)
    declared.refuse_driver(options, driver, live=True)
    was = restored(records, scheduling, end_of_tasks=end_of_tasks)
    return begin(records, scheduling, was, "a live manager", reserve)


def begin(
    records: Records, scheduling: Scheduling, was: Restored, about: str, reserve: DiskReserve | None = None
) -> Control:
    """Return the loop, ready to run from a state, with which a new journal segment begins."""
    recorder = StepRecorder()
    engine = was.engine(recorder)
    header = header_of(engine, was.present, was.policy, was.placement, scheduling, about)
    first_step = records.begin_segment(header)
    control = Control(
        engine,
        recorder,
        records,
        was.kept,
        first_step,
        plans_slowly=was.in_rounds,
        present=was.present,
        reserve=reserve,
    )
    control.happened(was.first)
    return control


def header_of(
    engine: Engine, present: ClusterConfig, policy: str, placement: str, scheduling: Scheduling, about: str
) -> dict[str, Any]:
    """Return the header of a journal segment that begins now."""
    return encode_header(
        JournalHeader(
            scenario=Scenario(
                policies=(policy,),
                placement=placement,
                tenancy=scheduling.tenancy,
                cluster=present.whole(engine.state),
                costs=Costs(checkpoint_interval_s=math.inf),
                network=scheduling.network,
            ),
            about=about,
            snapshot=snapshot.take(engine.state, engine.memory),
        )
    )


def _demote(state: State, alloc: Allocator) -> None:
    """Demote jobs that the present guarantees can never hold: they contend without a guarantee."""
    if alloc.ledger is None:
        return
    for live in state.jobs.values():
        is_guaranteed = not live.state.is_final and live.job.priority > OPPORTUNISTIC
        state.demote(live, is_guaranteed and not alloc.ledger.could_hold(live))


def _restore(
    records: Records,
    recall: PolicyMemory,
    cluster: Cluster,
    removed: tuple[NodeId, ...],
    rows: Sequence[Any],
    in_rounds: bool,
    end_of_tasks: EndOfTasks | None,
) -> tuple[State, dict[JobId, Record]]:
    now_s = clock.now_s()
    kept: dict[JobId, Record] = {}
    pairs = []
    for row in rows:
        job = decode_job(json.loads(row.job))
        live = recall.standing(json.loads(row.live))
        runs = live["state"] == JobState.RUNNING.value
        paused = runs and row.state == JobState.SUSPENDED.value
        if runs and not paused and not in_rounds:  # a lease of another policy is void
            live.pop("lease", None)
            live["rate"] = 1.0
        if end_of_tasks is not None and live.get("run_since_s") is not None:
            _leave_out(live, end_of_tasks(job.id, row.attempt), now_s)
        now_s = max(now_s, live["submitted_s"], live["since_s"])
        pairs.append((job, live))
        record = kept[job.id] = Record(records.opened_spec(row), row.owner, account=row.account)
        record.attempt, record.failures, record.paused = row.attempt, row.failures, paused
        record.exit_code, record.message, record.failure = row.exit_code, row.message, row.failure
    frame = snapshot.Snapshot(
        now_s=now_s,
        seq=records.next_seq(),
        drained=tuple(NodeId(name) for name in records.drained()),
        memory=recall.memory(),
        removed=removed,
        past=records.setting(PAST_KEY) or {},
    )
    try:
        return snapshot.rebuild(cluster, pairs, frame), kept
    except (KeyError, IndexError) as error:
        raise RotaError(
            f"node {error} is gone, but jobs run on it; start with the same nodes as before, "
            "or with an empty --data folder"
        ) from error


def _leave_out(live: dict[str, Any], ended_s: float | None, now_s: float) -> None:
    """Move the clocks of a job whose tasks have ended by the time since then: nothing of it has run in that."""
    idle_s = 0.0 if ended_s is None else max(now_s - max(ended_s, live["run_since_s"]), 0.0)
    for name in ("run_since_s", "work_from_s"):
        live[name] += idle_s
