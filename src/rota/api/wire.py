"""The formats of the API's responses."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, Field

from rota.core.engine.preemption_guard import can_resume
from rota.core.messages.decisions import Cause
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import JobId, JobState, NodeId
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.node_accounts import NodeAccount
from rota.files.job import masked
from rota.forecast.value import Forecast, TimeRange
from rota.live.loop.control import Control
from rota.live.loop.record import state_text
from rota.live.workers.node_demand import NodeDemand
from rota.store import clock

Json = dict[str, Any]


class ReasonOut(BaseModel):
    """Why a job waits."""

    code: str
    sentence: str
    need_gpus: float = 0
    free_gpus: float = 0
    job: str | None = None
    until: str | None = None


class RangeOut(BaseModel):
    """The 5%, 50% and 95% quantiles of a moment; null where that is more than a month away."""

    earliest: str | None = None
    usual: str | None = None
    latest: str | None = None


class ForecastOut(RangeOut):
    """When a job is expected to start and end; null if that is more than a month away."""

    position: int
    end: RangeOut | None = None
    known: bool = Field(description="Whether the run times of the jobs ahead are known.")
    basis: str = Field(description="What the forecast rests on.")
    reason: str | None = Field(None, description="Why there is no forecast of the start, or what it lacks.")


class NodeDemandOut(BaseModel):
    """Nodes of one type that would start a job."""

    type: str
    nodes: int
    devices: int = Field(description="Devices of one such node.")
    sentence: str


class WhyOut(BaseModel):
    """Why a job waits, and its expected start."""

    state: str
    reason: ReasonOut | None = None
    expected: ForecastOut | None = None
    verdicts: list[dict[str, Any]] = Field(default=[], description="Why its attempts failed, with evidence and advice.")
    more_nodes: list[NodeDemandOut] = Field(default=[], description="Nodes that would start it, on a cluster.")


class ArrayOut(BaseModel):
    """The array that a job belongs to."""

    id: str = Field(description="The id of its first job.")
    index: int | None = None
    states: dict[str, int] | None = Field(None, description="In a collapsed list: its jobs by state.")


class JobOut(BaseModel):
    """A job."""

    id: str
    name: str
    tenant: str
    owner: str
    state: str = Field(
        description="held, waiting, starting, running, suspended, preempted, succeeded, failed or cancelled"
    )
    state_text: str = Field("", description="The state in words, such as `preempted, starts over`.")
    reason: ReasonOut | None = None
    submitted: str
    started: str | None = None
    ended: str | None = None
    attempt: int = 0
    exit_code: int | None = None
    message: str = ""
    failure: str | None = Field(None, description="The class of the last failure, such as `out-of-memory`.")
    gpus: float = 0
    tasks: int = 1
    priority: int = 0
    version: int = 0
    array: ArrayOut | None = None
    spec: dict[str, Any] | None = None
    nodes: list[str] | None = None
    if_preempted: str | None = Field(
        None, description="What a preemption does to the work of a job that has not ended: `resumes` or `starts over`."
    )
    progress: dict[str, Any] | None = Field(None, description="The progress that the job reports through the SDK.")
    usage: dict[str, float] | None = Field(None, description="The resource usage of the latest attempt.")


class JobListOut(BaseModel):
    """A page of jobs, newest first."""

    jobs: list[JobOut]
    next: str | None = Field(None, description="Pass it as `after` to get the next page.")


class SubmitOut(BaseModel):
    """The ids of submitted jobs."""

    id: str
    ids: list[str]


class NodeOut(BaseModel):
    """A node and its free devices."""

    id: str
    type: str
    gpus: int
    free_gpus: int
    cpus: float | None = None
    memory_bytes: int | None = None
    state: str
    limits: str = Field(description="How the limits of tasks are enforced: `cgroup v2`, `cgroup v1`, `watched`.")
    health: str = Field("healthy", description="healthy, suspect, draining, bad or in-repair")
    health_why: str = Field("", description="The last sign against it.")
    broken_checks: str | None = Field(None, description="Checks that failed by themselves, and how.")


class Problem(BaseModel):
    """The error of a request."""

    error: str


PROBLEMS: dict[int | str, Json] = {code: {"model": Problem} for code in (400, 401, 403, 404, 409, 413, 422)}
"""Error responses of the routes of jobs."""


def moment(at_s: float | None) -> str | None:
    """Format a moment of the manager's clock as ISO 8601 in UTC, as the wall clock has it."""
    if at_s is None:
        return None
    return datetime.fromtimestamp(clock.shown_s(at_s), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def held_reason(reason: Json | None, message: str) -> Json | None:
    """Return a reason; that of a held job says why it is held, where that is known."""
    if reason is None or reason["code"] != ReasonCode.HELD.value or not message:
        return reason
    return {**reason, "sentence": f"it is held: {message}"}


def reason_out(reason: Reason | None) -> Json | None:
    """Return a reason as JSON."""
    if reason is None:
        return None
    return {
        "code": reason.code.value,
        "sentence": reason.sentence(),
        "need_gpus": reason.need_milli / 1000,
        "free_gpus": reason.free_milli / 1000,
        "job": reason.job,
        "until": moment(reason.until_s),
    }


def demand_out(found: Sequence[NodeDemand]) -> list[Json]:
    """Return nodes that would start a job as JSON."""
    return [{**asdict(each), "sentence": each.sentence()} for each in found]


def forecast_out(found: Forecast | None) -> Json | None:
    """Return a forecast as JSON."""
    if found is None:
        return None
    return {
        "position": found.position,
        **_range_out(found.start),
        "end": None if found.end is None else _range_out(found.end),
        "known": found.known,
        "basis": found.basis.sentence(),
        "reason": None if found.reason is None else found.reason.value,
    }


def _range_out(span: TimeRange | None) -> Json:
    if span is None:
        return {"earliest": None, "usual": None, "latest": None}
    return {"earliest": moment(span.low_s), "usual": moment(span.median_s), "latest": moment(span.high_s)}


def _ending(live: LiveJob | None) -> str:
    return ", being cancelled" if live is not None and live.stopping is Cause.CANCELLED else ""


def job_out(row: Any, control: Control, *, whole: bool = False, shows_env: bool = True) -> Json:
    """Return a job's record as JSON, with its current reason from the engine; `whole` adds job file and nodes.

    Without `shows_env`, the values of its variables are masked: they come from its owner's shell and are not for
    colleagues.
    """
    live = control.state.jobs.get(row.id)
    spec = json.loads(row.spec)
    out: Json = {
        "id": row.id,
        "name": row.name,
        "tenant": row.tenant,
        "owner": row.owner,
        "state": row.state,
        "state_text": state_text(row.state) + _ending(live),
        "reason": held_reason(reason_out(control.explain(row.id)), row.message),
        "submitted": moment(row.submitted_s),
        "started": moment(row.started_s),
        "ended": moment(row.ended_s),
        "attempt": row.attempt,
        "exit_code": row.exit_code,
        "message": row.message,
        "failure": row.failure,
        "gpus": _gpus(spec),
        "tasks": _tasks(spec),
        "priority": spec.get("priority") or (-1 if spec.get("class") == "opportunistic" else 0),
        "version": row.version,
        "array": None if row.array_id is None else {"id": row.array_id, "index": spec.get("array")},
    }
    if live is not None and live.held:
        out["tasks"] = sum(slot.tasks for slot in live.held)
        out["gpus"] = live.gpus
    if whole:
        out["spec"] = masked(spec, whole=not shows_env)
        out["nodes"] = []
        if live is not None:
            note = control.kept[row.id].not_suspended
            lost = f"starts over: {note}" if note else "starts over"
            out["if_preempted"] = "resumes" if can_resume(live.job) else lost
        if live is not None and live.held:
            nodes = control.state.inventory.nodes
            out["nodes"] = list(dict.fromkeys(str(nodes[slot.node].node.id) for slot in live.held))
    return out


def host_memory_note(waiting: JobId, control: Control) -> str:
    """Return which jobs would make room for a waiting one if the host had memory for what they hold on GPUs."""
    mine = control.state.jobs.get(waiting)
    if mine is None or mine.state is not JobState.WAITING:
        return ""
    notes = [
        f"; job {live.job.id} can't be suspended for it: {why}"
        for live in control.state.jobs.values()
        if live.placement
        and (live.job.priority < mine.job.priority or control.engine.slices)
        and (why := control.kept[live.job.id].not_suspended)
    ]
    return "".join(notes[:3])


def _tasks(spec: Json) -> int:
    roles = spec.get("roles") or {}
    return sum(role.get("count", 1) for role in roles.values()) if roles else _workers(spec)


def _workers(spec: Json) -> int:
    return int(spec.get("workers", (spec.get("elastic") or {}).get("max", 1)))


def _gpus(spec: Json) -> float:
    roles = spec.get("roles") or {}
    parts = [(role.get("count", 1), role.get("gpus", 0)) for role in roles.values()] or [
        (_workers(spec), (spec.get("resources") or {}).get("gpus", 0))
    ]
    return sum(float(count) * float(gpus or 0) for count, gpus in parts)


def nodes_out(inventory: Inventory, limits: str, health_of: Callable[[NodeId], dict[str, str]]) -> list[Json]:
    """Return all nodes as JSON."""
    return [
        {
            "id": account.node.id,
            "type": account.node.device_type,
            "gpus": account.node.devices,
            "free_gpus": account.free,
            "cpus": None if account.node.cpu_milli is None else account.node.cpu_milli / 1000,
            "memory_bytes": account.node.memory_bytes,
            "state": state_of(account),
            "limits": limits,
            "broken_checks": None,
            **health_of(account.node.id),
        }
        for account in inventory.nodes
        if not account.removed or account.users
    ]


def state_of(account: NodeAccount) -> str:
    """Return the state of a node: up, down, drained, or leaving (removed while jobs still run there)."""
    if account.removed:
        return "leaving"
    return "down" if not account.up else "drained" if account.drained else "up"
