"""Routes for requested, estimated and used resources of jobs."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from rota.api.access import Principal
from rota.api.jobs import JobPath, visible
from rota.api.service import principal, service
from rota.api.wire import PROBLEMS
from rota.live.estimates.past_use import over_requested, past_uses
from rota.live.views.compare import compared
from rota.store import clock

router = APIRouter(tags=["estimates"], responses=PROBLEMS)
Caller = Annotated[Principal, Depends(principal)]
DAY_S = 86400.0


class ResourceOut(BaseModel):
    """One resource of a job, per task: GPUs, CPUs or bytes."""

    what: str
    asked: float
    auto: bool = Field(description="Whether the amount was left to the manager.")
    raised: int = Field(0, description="How often the manager raised it because the job ran out of it.")
    why: str | None = Field(None, description="Why the value is not the estimate, if it is not.")
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    error: float | None = Field(None, description="The median relative error on held-out jobs of its kind.")
    trusted: bool = False
    used: float | None = None


class OverOut(BaseModel):
    """A job that requested at least twice what it used."""

    id: str
    name: str
    tenant: str
    owner: str
    what: str
    asked: float
    used: float
    over: float
    run_s: float


@router.get("/jobs/{job_id}/resources", response_model=list[ResourceOut])
async def resources(request: Request, caller: Caller, job_id: JobPath) -> Response:
    """Return the requested, estimated and used resources of a job's tasks."""
    parts = service(request)
    row = await visible(parts, caller, job_id)
    return JSONResponse(await compared(row, parts.home, parts.learning, parts.defaults))


@router.get("/over-requested", response_model=list[OverOut])
async def over(
    request: Request,
    caller: Caller,
    days: Annotated[float, Query(gt=0, le=3650, description="The period, in days.")] = 7.0,
) -> Response:
    """List recent successful jobs that requested at least twice what they used, the most wasteful first."""
    parts = service(request)

    def find() -> list[dict[str, Any]]:
        uses = past_uses(parts.records, parts.home, clock.now_s() - days * DAY_S)
        return over_requested(use for use in uses if caller.may_see(use.tenant))

    return JSONResponse(await asyncio.to_thread(find))
