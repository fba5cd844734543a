"""Routes for jobs: list, read, explain, cancel, hold, release."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from rota.api.access import Principal
from rota.api.service import Service, principal, service
from rota.api.wire import PROBLEMS, JobListOut, JobOut, WhyOut, forecast_out, job_out, reason_out
from rota.core.errors import RotaError, did_you_mean
from rota.core.model.job import JobId, JobState
from rota.live.loop.requests import Asker, NotFound
from rota.live.loop.submission_limits import Pauses
from rota.store import jobs as stored
from rota.store.run_folder import progress, usage

router = APIRouter(tags=["jobs"], responses=PROBLEMS)
Caller = Annotated[Principal, Depends(principal)]
JobPath = Annotated[str, Path(min_length=1, max_length=64, description="The job's id.")]
_STATES = frozenset(state.value for state in JobState)


@router.get("/jobs", response_model=JobListOut)
async def listed(
    request: Request,
    caller: Caller,
    state: Annotated[list[str] | None, Query(description="Only jobs in these states.")] = None,
    tenant: Annotated[str | None, Query(max_length=128)] = None,
    name: Annotated[str | None, Query(max_length=128)] = None,
    all: Annotated[bool, Query(description="Include jobs that have ended.")] = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: Annotated[int | None, Query(ge=0, le=1 << 62, description="`next` of the previous page.")] = None,
) -> Response:
    """List jobs, newest first, one page at a time."""
    for name_of_state in state or ():
        if name_of_state not in _STATES:
            raise RotaError(f"state: unknown state {name_of_state[:40]!r}; {did_you_mean(name_of_state[:40], _STATES)}")
    query = stored.Query(
        states=tuple(state or ()),
        live_only=not all and not state,
        tenants=_tenants(caller, tenant),
        name=name,
        before=after,
        limit=limit,
    )
    parts = service(request)
    rows = await asyncio.to_thread(parts.records.page, query)
    pauses, found = Pauses(), []
    for row in rows:
        found.append(job_out(row, parts.control))
        await pauses.take()
    return JSONResponse({"jobs": found, "next": str(rows[-1].seq) if len(rows) == limit else None})


def _tenants(caller: Principal, tenant: str | None) -> tuple[str, ...] | None:
    if tenant is not None:
        return (tenant,) if caller.may_see(tenant) else ()
    return None if caller.tenants is None else tuple(sorted(caller.tenants))


@router.get("/jobs/{job_id}", response_model=JobOut)
async def one(request: Request, caller: Caller, job_id: JobPath) -> Response:
    """Return one job with its job file; secrets are masked."""
    parts = service(request)
    row = await visible(parts, caller, job_id)
    answer = job_out(row, parts.control, whole=True)
    answer["progress"] = await asyncio.to_thread(progress, parts.home, JobId(row.id))
    answer["usage"] = await asyncio.to_thread(usage, parts.home, JobId(row.id), row.attempt)
    tag = f'"{row.version}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    return JSONResponse(answer, headers={"ETag": tag})


@router.get("/jobs/{job_id}/why", response_model=WhyOut)
async def why(request: Request, caller: Caller, job_id: JobPath) -> Response:
    """Return why a job waits, its position in the queue, and its expected start."""
    parts = service(request)
    row = await visible(parts, caller, job_id)
    reason = reason_out(parts.control.explain(JobId(job_id)))
    found = await parts.requests.foresee(JobId(job_id))
    return JSONResponse({"state": row.state, "reason": reason, "expected": forecast_out(found)})


@router.post("/jobs/{job_id}/{action}", response_model=JobOut)
async def act(
    request: Request,
    caller: Caller,
    job_id: JobPath,
    action: Annotated[str, Path(pattern="^(cancel|hold|release)$")],
    if_match: Annotated[str | None, Header(max_length=64)] = None,
) -> Response:
    """Cancel, hold or release a job. With If-Match, only if it has not changed."""
    parts = service(request)
    row = await visible(parts, caller, job_id)
    caller.must_change(row.tenant)
    if if_match is not None and if_match.strip('"') != str(row.version):
        return JSONResponse({"error": f"job {job_id} has changed: its version is {row.version}"}, status_code=412)
    asker = Asker(name=caller.name)
    match action:
        case "cancel":
            await parts.requests.cancel(JobId(job_id), asker)
        case "hold":
            await parts.requests.hold(JobId(job_id), asker)
        case _:
            await parts.requests.release(JobId(job_id), asker)
    return JSONResponse(job_out(await visible(parts, caller, job_id), parts.control))


async def visible(parts: Service, caller: Principal, job_id: str) -> Any:
    """Return a job's record; raises `NotFound` also for a job that the caller may not see."""
    row = await asyncio.to_thread(parts.records.job, job_id)
    if row is None or not caller.may_see(row.tenant):
        raise NotFound(f"there is no job {job_id[:64]!r}")
    return row
