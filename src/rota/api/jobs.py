"""Routes for jobs: list, read, explain, and change those that exist."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import DBAPIError

from rota.api.access import Forbidden, Principal
from rota.api.service import Service, principal, service
from rota.api.wire import (
    PROBLEMS,
    JobListOut,
    JobOut,
    WhyOut,
    demand_out,
    forecast_out,
    held_reason,
    host_memory_note,
    job_out,
    reason_out,
)
from rota.core.errors import RotaError, did_you_mean
from rota.core.model.job import JobId
from rota.forecast.value import NoForecast
from rota.live.health.failure_watch import verdicts_of
from rota.live.intake.requests import NotFound
from rota.live.intake.submission_limits import MOST_AT_ONCE, Pauses
from rota.live.loop.record import SHOWN_STATES
from rota.store import jobs as stored
from rota.store.data.preparing import preparing
from rota.store.run_folder import progress, usage

router = APIRouter(tags=["jobs"], responses=PROBLEMS)
Caller = Annotated[Principal, Depends(principal)]
JobPath = Annotated[str, Path(min_length=1, max_length=64, description="The job's id.")]
_STATES = frozenset(SHOWN_STATES)


@router.get("/jobs", response_model=JobListOut)
async def listed(
    request: Request,
    caller: Caller,
    state: Annotated[list[str] | None, Query(description="Only jobs in these states.")] = None,
    tenant: Annotated[str | None, Query(max_length=128)] = None,
    name: Annotated[str | None, Query(max_length=128)] = None,
    all: Annotated[bool, Query(description="Include jobs that have ended.")] = False,
    array: Annotated[str | None, Query(max_length=64, description="Only the jobs of this array.")] = None,
    collapse: Annotated[bool, Query(description="One entry for each array, with the number of its jobs.")] = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: Annotated[int | None, Query(ge=0, le=1 << 62, description="`next` of the previous page.")] = None,
) -> Response:
    """List jobs, newest first, one page at a time."""
    for name_of_state in state or ():
        if name_of_state not in _STATES:
            raise RotaError(f"state: unknown state {name_of_state[:40]!r}; {did_you_mean(name_of_state[:40], _STATES)}")
    parts = service(request)
    query = stored.Query(
        states=tuple(state or ()),
        live_only=not all and not state,
        tenants=_tenants(parts, caller, tenant),
        name=name,
        array=array,
        collapsed=collapse,
        before=after,
        limit=limit,
    )
    rows = await asyncio.to_thread(parts.records.page, query)
    pauses, found = Pauses(), []
    for row in rows:
        found.append(job_out(row, parts.control))
        await pauses.take()
    if collapse and array is None:
        counts = await asyncio.to_thread(parts.records.array_counts, [row.array_id for row in rows if row.array_id])
        for job in found:
            if job["array"] is not None:
                job["array"]["states"] = counts.get(job["array"]["id"], {})
    return JSONResponse({"jobs": found, "next": str(rows[-1].seq) if len(rows) == limit else None})


def _tenants(parts: Service, caller: Principal, tenant: str | None) -> tuple[str, ...] | None:
    if tenant is not None:
        caller.must_see(tenant)
        parts.must_exist(tenant)
        return (tenant,)
    return None if caller.tenants is None else tuple(sorted(caller.tenants))


@router.get("/jobs/{job_id}", response_model=JobOut)
async def one(request: Request, caller: Caller, job_id: JobPath) -> Response:
    """Return one job with its job file; secrets are masked, for callers who may not change it all variables."""
    parts = service(request)
    row = await visible(parts, caller, job_id)
    answer = job_out(row, parts.control, whole=True, shows_env=caller.may_act_on(row.tenant, row.owner))
    answer["reason"] = answer["reason"] or await asyncio.to_thread(_preparation, parts, row)
    answer["progress"] = await asyncio.to_thread(progress, parts.home, JobId(row.id))
    answer["usage"] = await asyncio.to_thread(usage, parts.home, JobId(row.id), row.attempt)
    tag = f'"{row.version}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    return JSONResponse(answer, headers={"ETag": tag})


@router.get("/jobs/{job_id}/why", response_model=WhyOut)
async def why(request: Request, caller: Caller, job_id: JobPath) -> Response:
    """Return why a job waits, its position in the queue, and its expected start and end, or why they are not known."""
    parts = service(request)
    row = await visible(parts, caller, job_id)
    reason = held_reason(reason_out(parts.control.explain(JobId(job_id))), row.message)
    if reason is not None:
        reason["sentence"] += host_memory_note(JobId(job_id), parts.control)
    else:
        reason = await asyncio.to_thread(_preparation, parts, row)
    found = await parts.requests.foresee(JobId(job_id), caller.name)
    asks_for_nodes = reason is not None and row.state != "starting" and found.reason is not NoForecast.COMPUTING
    demand = await parts.more_nodes(JobId(job_id)) if asks_for_nodes and parts.more_nodes is not None else []
    answer = {"state": row.state, "reason": reason, "expected": forecast_out(found)}
    verdicts = await asyncio.to_thread(verdicts_of, parts.home, job_id)
    return JSONResponse({**answer, "verdicts": verdicts, "more_nodes": demand_out(demand)})


@router.post("/jobs/{job_id}/{action}", response_model=JobOut)
async def act(
    request: Request,
    caller: Caller,
    job_id: JobPath,
    action: Annotated[str, Path(pattern="^(cancel|hold|release|requeue)$")],
    if_match: Annotated[str | None, Header(max_length=64)] = None,
    force: bool = False,
) -> Response:
    """Cancel, hold, release or requeue a job. With If-Match, only if it has not changed.

    `force` cancels without the job's grace. A job that has ended is requeued as a new job, which is returned.
    """
    parts = service(request)
    end_now = _end_now(parts, action) if force else None
    row = await visible(parts, caller, job_id)
    caller.must_act_on(row.tenant, row.owner, job_id)
    if if_match is not None and if_match.strip('"') != str(row.version):
        return JSONResponse({"error": f"job {job_id} has changed: its version is {row.version}"}, status_code=412)
    if action == "requeue" and row.ended_s is not None and row.owner and row.owner != caller.name:
        raise Forbidden(
            f"job {job_id} was {row.owner!r}'s and has ended; requeued by another user it would run as that user; "
            "ask its owner, or submit its command yourself"
        )
    asker = caller.asker
    match action:
        case "cancel":
            await parts.requests.cancel(JobId(job_id), asker)
            if end_now is not None:
                end_now(JobId(job_id))
        case "hold":
            await parts.requests.hold(JobId(job_id), asker)
        case "requeue":
            job_id = await parts.requests.requeue(JobId(job_id), asker)
        case _:
            await parts.requests.release(JobId(job_id), asker)
    try:
        row = await visible(parts, caller, job_id)
    except DBAPIError:  # it has ended since, and the database is away: what it was is all that is known
        if job_id != row.id:
            raise
    return JSONResponse(job_out(row, parts.control))


def _end_now(parts: Service, action: str) -> Callable[[JobId], None]:
    """What ends a job's tasks at once; raises a `RotaError` where `force` means nothing."""
    if action != "cancel":
        raise RotaError(f"force: it is for cancel, not for {action}")
    if parts.end_now is None:
        raise RotaError("force: pods are ended by Kubernetes; use kubectl delete pod --grace-period=0 --force")
    return parts.end_now


def _preparation(parts: Service, row: Any) -> dict[str, Any] | None:
    """Return what a job that has its devices is made ready by, in the form of a reason."""
    said = preparing(parts.home, JobId(row.id), row.attempt) if row.state == "starting" else ""
    if not said:
        return None
    return {"code": "preparing", "sentence": said, "need_gpus": 0.0, "free_gpus": 0.0, "job": None, "until": None}


class ActionsIn(BaseModel):
    """An action on several jobs: those with these ids, and all unfinished ones of a name."""

    model_config = ConfigDict(extra="forbid")

    action: Literal["cancel", "hold", "release"]
    ids: Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=MOST_AT_ONCE)] = []
    name: Annotated[str | None, Field(min_length=1, max_length=128)] = None
    force: Annotated[bool, Field(description="Cancel without the jobs' grace.")] = False


class RefusedOut(BaseModel):
    """A job on which an action was refused, and why."""

    id: str
    error: str


class ActionsOut(BaseModel):
    """What became of an action on several jobs."""

    done: list[str]
    refused: list[RefusedOut]


@router.post("/jobs/actions", response_model=ActionsOut)
async def act_on_all(request: Request, caller: Caller, wanted: ActionsIn) -> Response:
    """Cancel, hold or release several jobs in one request; each that is refused is named with the reason."""
    parts = service(request)
    end_now = _end_now(parts, wanted.action) if wanted.force else None
    if not wanted.ids and wanted.name is None:
        raise RotaError("ids and name are missing; give one of them")
    rows = {}
    refused: dict[str, str] = {}
    for job_id in dict.fromkeys(wanted.ids):
        try:
            rows[job_id] = await visible(parts, caller, job_id)
        except NotFound as error:
            refused[job_id] = str(error)
    if wanted.name is not None:
        query = stored.Query(
            live_only=True, tenants=_tenants(parts, caller, None), name=wanted.name, limit=MOST_AT_ONCE
        )
        rows |= {row.id: row for row in reversed(await asyncio.to_thread(parts.records.page, query))}
        if not rows:
            raise NotFound(f"there is no unfinished job {wanted.name!r}")
    allowed: list[JobId] = []
    for job_id, row in rows.items():
        try:
            caller.must_act_on(row.tenant, row.owner, job_id)
            allowed.append(JobId(job_id))
        except Forbidden as error:
            refused[job_id] = str(error)
    refused.update(
        {str(job_id): why for job_id, why in (await parts.requests.act(allowed, wanted.action, caller.asker)).items()}
    )
    done = [job_id for job_id in allowed if job_id not in refused]
    if end_now is not None:
        for job_id in done:
            end_now(job_id)
    return JSONResponse(
        {
            "done": done,
            "refused": [{"id": job_id, "error": why} for job_id, why in refused.items()],
        }
    )


class UpdateIn(BaseModel):
    """Fields of a job file to change; null removes one."""

    model_config = ConfigDict(extra="forbid")

    name: Any = None
    priority: Any = None
    estimate: Any = None
    time_limit: Any = None
    deadline: Any = None
    max_restarts: Any = None
    checkpoint: Any = None
    preemptible: Any = None


@router.patch("/jobs/{job_id}", response_model=JobOut)
async def update(
    request: Request,
    caller: Caller,
    job_id: JobPath,
    wanted: UpdateIn,
    if_match: Annotated[str | None, Header(max_length=64)] = None,
) -> Response:
    """Change a job that waits or is held. With If-Match, only if it has not changed."""
    parts = service(request)
    row = await visible(parts, caller, job_id)
    caller.must_act_on(row.tenant, row.owner, job_id)
    if if_match is not None and if_match.strip('"') != str(row.version):
        return JSONResponse({"error": f"job {job_id} has changed: its version is {row.version}"}, status_code=412)
    changes = wanted.model_dump(include=wanted.model_fields_set)
    if not changes:
        raise RotaError(f"nothing to change; give one of {', '.join(UpdateIn.model_fields)}")
    await parts.requests.update(JobId(job_id), changes, caller.asker)
    return JSONResponse(job_out(await visible(parts, caller, job_id), parts.control, whole=True))


async def visible(parts: Service, caller: Principal, job_id: str) -> Any:
    """Return a job's record; raises `NotFound` also for a job that the caller may not see."""
    row: Any
    try:
        row = await asyncio.to_thread(parts.records.job, job_id)
    except DBAPIError as error:
        parts.control.storage.fails(error)
        row = parts.control.remembered(JobId(job_id))
        if row is None:
            raise
    if row is None or not caller.may_see(row.tenant):
        raise NotFound(f"there is no job {job_id[:64]!r}")
    return row
