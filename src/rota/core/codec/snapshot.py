"""A state as plain values and back, job by job: what a restart, and a journal that begins midway, need.

Reservations are left out: they are a plan, and the policy makes it again when it adopts the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from rota.core.codec.values import Json, decode_job, decode_placement, encode_job, encode_placement, encode_plain
from rota.core.errors import InvariantBroken
from rota.core.messages.decisions import Cause, Lease
from rota.core.model.cluster import Cluster, NodeTrust
from rota.core.model.job import Job, JobId, JobState, NodeId
from rota.core.model.labels import Taint
from rota.core.state.derived_phase import derived_phase
from rota.core.state.job_record import LiveJob
from rota.core.state.node_accounts import NodeAccount
from rota.core.state.phases import Phase
from rota.core.state.state import State

_AMOUNTS: tuple[tuple[str, Any], ...] = (
    ("seq", 0),
    ("submitted_s", None),
    ("since_s", None),
    ("rate", 0.0),
    ("work", 0.0),
    ("work_from_s", None),
    ("run_since_s", None),
    ("run_milli", 0),
    ("ran_s", 0.0),
    ("attained_milli_s", 0.0),
    ("first_start_s", None),
    ("ended_s", None),
    ("preemptions", 0),
    ("suspensions", 0),
    ("moves", 0),
    ("restarts", 0),
    ("retry_s", None),
    ("has_turn", False),
    ("demoted", False),
    ("overhead_s", 0.0),
    ("lost_work", 0.0),
    ("undone", 0),
    ("scattered_s", 0.0),
    ("memo", None),
    ("reported", None),
)
"""Fields that are values already, and what need not be written because it is the rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A state between two steps: its jobs as `encode_live` writes them, in order of submission."""

    now_s: float
    seq: int = 0
    jobs: tuple[Json, ...] = ()
    drained: tuple[NodeId, ...] = ()
    down: tuple[NodeId, ...] = ()
    memory: Any = None
    """What the policy remembered at that time."""
    removed: tuple[NodeId, ...] = ()
    """Nodes that have left, but for jobs that still run there."""
    others: tuple[tuple[NodeId, int, int, int], ...] = ()
    """What pods and processes hold that are not scheduled here: node, devices, CPU thousandths, memory bytes."""
    trust: tuple[tuple[NodeId, str], ...] = ()
    """Nodes that are not proven, and how far each is trusted."""
    reserved: tuple[tuple[NodeId, tuple[Taint, ...]], ...] = ()
    """Nodes with reservations, and their taints."""
    past: Json = field(default_factory=dict)
    """What accounts have used, as the state keeps it."""


def encode_live(live: LiveJob, state: State, node_names: Sequence[str]) -> Json:
    """Where a job stands, without the job itself."""
    value: Json = {"state": live.state.value}
    for name, usual in _AMOUNTS:
        amount = getattr(live, name)
        if amount != usual:
            value[name] = amount
    if live.phase is Phase.SAVING:
        value["saves"] = True
    if live.nominal_rate != 1.0:
        value["nominal_rate"] = live.nominal_rate
    if live.stopping is not None:
        value["stopping"] = live.stopping.value
    if live.lease is not None:
        value["lease"] = encode_plain(live.lease)
    if live.suspended_on is not None:
        value["parked"] = encode_placement(live.suspended_on, node_names)
    if live.placement is not None and (not live.reserved or live.suspended_on is not None):
        value["on"] = encode_placement(state.where(live), node_names)
    leaving = state.vacating.get(live.job.id)
    if leaving is not None:
        value["leaving"] = encode_placement(leaving[1], node_names)
    return value


def take(state: State, memory: Any = None) -> Snapshot:
    """All jobs of a state that have not ended, and those that they depend on; and what the policy remembers."""
    names = [str(account.node.id) for account in state.inventory.nodes]
    needed: dict[JobId, None] = {}
    for live in state.jobs.values():
        if not live.state.is_final:
            needed.update(dict.fromkeys((*live.job.depends_on, live.job.id)))
    chosen = [state.jobs[name] for name in needed]
    chosen.sort(key=lambda live: live.seq)
    accounts = state.inventory.nodes
    return Snapshot(
        now_s=state.now_s,
        seq=state.seq,
        jobs=tuple({"job": encode_job(live.job), **encode_live(live, state, names)} for live in chosen),
        drained=tuple(each.node.id for each in accounts if each.drained),
        down=tuple(each.node.id for each in accounts if not each.up),
        memory=memory,
        removed=tuple(each.node.id for each in accounts if each.removed),
        others=tuple(_others(each) for each in accounts if _others(each)[1:] != (0, 0, 0)),
        trust=tuple((each.node.id, each.trust.value) for each in accounts if each.trust is not NodeTrust.PROVEN),
        reserved=tuple((each.node.id, each.reserved) for each in accounts if each.reserved),
        past=deepcopy(state.past),
    )


def _others(account: NodeAccount) -> tuple[NodeId, int, int, int]:
    return account.node.id, account.others_mask.bit_count(), account.others_cpu_milli, account.others_memory_bytes


def restore(cluster: Cluster, snapshot: Snapshot) -> State:
    """The state that a snapshot was taken of, but for its reservations."""
    pairs = ((decode_job(value["job"]), value) for value in snapshot.jobs)
    return rebuild(cluster, pairs, snapshot)


def rebuild(cluster: Cluster, pairs: Iterable[tuple[Job, Mapping[str, Any]]], frame: Snapshot) -> State:
    """Build a state from jobs and their records; `frame` has the rest (its own jobs are ignored)."""
    state = State(cluster)
    state.now_s = frame.now_s
    state.memory = frame.memory
    state.past = deepcopy(frame.past)
    index_by_node = {str(node.id): index for index, node in enumerate(cluster.nodes)}
    saving: set[JobId] = set()
    for job, value in pairs:
        _admit(state, job, value, index_by_node)
        if value.get("saves", False):
            saving.add(job.id)
    state.seq = max([frame.seq, *(live.seq + 1 for live in state.jobs.values())])
    for node_id in frame.drained:
        if node_id in state.inventory.by_name:
            state.inventory.set_drained(state.node(node_id), True)
    for node_id in frame.down:
        if node_id in state.inventory.by_name:
            state.inventory.set_up(state.node(node_id), False)
    for node_id, trust in frame.trust:
        if node_id in state.inventory.by_name:
            state.inventory.rate(state.node(node_id), NodeTrust(trust))
    for node_id, taints in frame.reserved:
        if node_id in state.inventory.by_name:
            state.inventory.nodes[state.node(node_id)].reserved = taints
    for node_id, devices, cpu_milli, memory_bytes in frame.others:
        state.inventory.occupy(state.node(node_id), devices, cpu_milli, memory_bytes)
    for node_id in frame.removed:
        state.inventory.remove(state.node(node_id))
    for live in state.jobs.values():
        if not live.state.is_final:
            _await_dependencies(state, live)
    state.turns.restore(state.jobs)
    for live in state.jobs.values():
        live.enter(derived_phase(live, state, saves=live.job.id in saving))
    return state


def _admit(state: State, job: Job, value: Mapping[str, Any], index_by_node: Mapping[str, int]) -> None:
    live = LiveJob(job, value.get("seq", 0), value["submitted_s"], value.get("nominal_rate", 1.0))
    for name, usual in _AMOUNTS:
        setattr(live, name, value.get(name, usual))
    live.state = JobState(value["state"])
    live.stopping = Cause(value["stopping"]) if "stopping" in value else None
    live.lease = Lease(**value["lease"]) if "lease" in value else None
    live.unmet = 0 if live.retry_s is None else 1
    if "parked" in value:
        live.suspended_on = decode_placement(value["parked"], index_by_node)
    if "on" in value:
        placement = decode_placement(value["on"], index_by_node)
        if not state.inventory.is_free(placement, job.roles, job.exclusive, back=True):
            raise InvariantBroken(f"job {job.id}: what it holds is held by another, or is not there any more")
        state.inventory.take(placement, job.roles, job.exclusive)
        live.set_placement(placement)
    if "leaving" in value:
        state.vacating[job.id] = (live, decode_placement(value["leaving"], index_by_node))
    state.jobs[job.id] = live


def _await_dependencies(state: State, live: LiveJob) -> None:
    for needed in live.job.depends_on:
        if state.live(needed).state is not JobState.SUCCEEDED:
            live.unmet += 1
            state.dependents.setdefault(needed, []).append(live)
