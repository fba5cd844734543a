"""Routes for sweeps: start, list, read and stop."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from rota.api.access import Principal
from rota.api.service import Service, SweepParts, principal, service
from rota.api.wire import PROBLEMS, moment
from rota.core.errors import RotaError
from rota.files.job_shape import name_of
from rota.live.intake.requests import NotFound
from rota.live.sweeps.rows import LiveSweep

router = APIRouter(tags=["sweeps"], responses=PROBLEMS)
Caller = Annotated[Principal, Depends(principal)]
SweepPath = Annotated[str, Path(min_length=1, max_length=64, description="The sweep's id.")]
Json = dict[str, Any]


class BestOut(BaseModel):
    """The best trial so far."""

    trial: int
    job: str
    value: float | None
    step: int
    params: Json


class SweepOut(BaseModel):
    """A sweep in a line."""

    id: str
    name: str
    tenant: str
    owner: str
    state: Annotated[str, Field(description="running, finished, stopped or failed")]
    why: str
    created: str
    ended: str | None
    sampler: str
    rule: str
    metric: str
    goal: str
    trials: Annotated[int, Field(description="Trials of the whole sweep.")]
    begun: Annotated[int, Field(description="Trials that have begun.")]
    states: dict[str, int]
    best: BestOut | None


class TrialOut(BaseModel):
    """A trial of a sweep."""

    trial: int
    job: str
    state: Annotated[str, Field(description="active, paused, stopped, completed, failed or cancelled")]
    why: str
    params: Json
    value: Annotated[float | None, Field(description="Its best value so far.")]
    last: float | None
    step: int
    device_s: float | None
    curve: list[tuple[int, float]]


class WholeSweepOut(SweepOut):
    """A sweep with its file and its trials."""

    file: Json
    device_s: Annotated[float, Field(description="Device time of all trials.")]
    importance: Json
    runs: list[TrialOut]


class SweepListOut(BaseModel):
    """Sweeps, newest first."""

    sweeps: list[SweepOut]


@router.post("/sweeps", status_code=201, response_model=SweepOut)
async def start(request: Request, caller: Caller, values: dict[str, Any]) -> Response:
    """Start a sweep: the body is a sweep file. Its trials are jobs of the caller."""
    parts = service(request)
    keeper = _parts(parts).keeper
    if "tenant" not in values:
        values = {"tenant": caller.default_tenant, **values}
    try:
        tenant = str(name_of(values["tenant"]))
    except ValueError as error:
        raise RotaError(f"sweep: tenant: {error}") from error
    caller.must_change(tenant)
    parts.must_exist(tenant)
    sweep = await keeper.start(values, caller.asker)
    answer = _shown(_parts(parts).views.summary(sweep))
    return JSONResponse(answer, status_code=201, headers={"Location": f"/api/v1/sweeps/{sweep.id}"})


@router.get("/sweeps", response_model=SweepListOut)
async def listed(
    request: Request,
    caller: Caller,
    tenant: Annotated[str | None, Query(max_length=128)] = None,
    all: Annotated[bool, Query(description="Include sweeps that have ended.")] = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List sweeps, newest first."""
    parts = service(request)
    tenants = None if caller.tenants is None else tuple(sorted(caller.tenants))
    if tenant is not None:
        caller.must_see(tenant)
        parts.must_exist(tenant)
        tenants = (tenant,)
    found = await asyncio.to_thread(_parts(parts).views.listed, tenants, live_only=not all, limit=limit)
    return JSONResponse({"sweeps": [_shown(each) for each in found]})


@router.get("/sweeps/{sweep_id}", response_model=WholeSweepOut)
async def one(request: Request, caller: Caller, sweep_id: SweepPath) -> Response:
    """Return a sweep with its file, its trials and their curves, and the importance of its parameters."""
    parts = service(request)
    sweep = await visible(parts, caller, sweep_id)
    shows_env = caller.may_act_on(sweep.file.tenant, sweep.asker.name)
    return JSONResponse(_shown(await asyncio.to_thread(_parts(parts).views.whole, sweep, shows_env=shows_env)))


@router.post("/sweeps/{sweep_id}/stop", response_model=SweepOut)
async def stop(request: Request, caller: Caller, sweep_id: SweepPath) -> Response:
    """End a sweep: its trials are cancelled, and no more begin."""
    parts = service(request)
    sweep = await visible(parts, caller, sweep_id)
    caller.must_act_on(sweep.file.tenant, sweep.asker.name, sweep_id)
    await _parts(parts).keeper.stop(sweep_id, caller.asker)
    return JSONResponse(_shown(_parts(parts).views.summary(await visible(parts, caller, sweep_id))))


def _parts(parts: Service) -> SweepParts:
    if parts.sweeps is None:
        raise NotFound("sweeps run on a manager of processes; this one schedules the jobs of another system")
    return parts.sweeps


async def visible(parts: Service, caller: Principal, sweep_id: str) -> LiveSweep:
    """Return a sweep; raises `NotFound` also for one that the caller may not see."""
    found = await asyncio.to_thread(_parts(parts).views.find, sweep_id)
    if found is None or not caller.may_see(found.file.tenant):
        raise NotFound(f"there is no sweep {sweep_id[:64]!r}")
    return found


def _shown(value: Json) -> Json:
    """A sweep with its times as dates."""
    rest = {name: each for name, each in value.items() if name not in ("created_s", "ended_s")}
    return {**rest, "created": moment(value["created_s"]), "ended": moment(value["ended_s"])}
