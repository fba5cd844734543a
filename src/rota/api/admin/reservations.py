"""Routes of reservations, for admins only: nodes that only jobs of a group may use in a time."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from rota.api.access import Principal
from rota.api.accounts.usage import moment_in
from rota.api.service import Service, principal, service
from rota.api.wire import PROBLEMS, moment
from rota.core.errors import RotaError
from rota.core.model.job import DeviceType
from rota.files.job_shape import Name
from rota.live.intake.requests import NotFound
from rota.live.reservations.keeper import ReservationKeeper
from rota.live.reservations.reservation import NodeReservation
from rota.store import clock

router = APIRouter(tags=["reservations"], responses=PROBLEMS)
Caller = Annotated[Principal, Depends(principal)]
ReservationPath = Annotated[Name, Path(description="The reservation's name.")]
LONGEST_S = 366 * 86400.0
UserName = Annotated[str, Field(min_length=1, max_length=128)]


class ReservationIn(BaseModel):
    """A new reservation: nodes, or so many GPUs in whole nodes, for a tenant or some users, and when."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    name: Name
    from_: Annotated[
        str | None,
        Field(alias="from", max_length=40, description="ISO 8601, without an offset UTC; now if it is not given."),
    ] = None
    for_s: Annotated[float, Field(gt=0, le=LONGEST_S, allow_inf_nan=False)]
    nodes: Annotated[list[Name], Field(max_length=10_000)] = []
    gpus: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None
    type: Name | None = None
    tenant: Name | None = None
    users: Annotated[list[UserName], Field(max_length=1000)] = []


class ReservationOut(BaseModel):
    """A reservation that is not over."""

    name: str
    nodes: list[str]
    since: str = Field(alias="from", description="When it begins.")
    until: str
    active: bool = Field(description="Whether its time has begun.")
    tenant: str | None
    users: list[str]
    by: str


def _keeper(parts: Service) -> ReservationKeeper:
    if parts.reservations is None:
        raise NotFound("reservations are kept by a manager of processes; make them in the system that runs the jobs")
    return parts.reservations


def _out(found: NodeReservation) -> dict[str, Any]:
    return {
        "name": found.name,
        "nodes": list(found.nodes),
        "from": moment(clock.from_wall_s(found.from_s)),
        "until": moment(clock.from_wall_s(found.until_s)),
        "active": found.is_open(clock.shown_s(clock.now_s())),
        "tenant": found.tenant,
        "users": list(found.users),
        "by": found.by,
    }


@router.get("/reservations", response_model=list[ReservationOut])
async def listed(request: Request, caller: Caller) -> Response:
    """List the reservations that are not over, the next one first; for admins."""
    caller.must_be_admin()
    parts = service(request)
    found = parts.foreign_reservations() if parts.foreign_reservations is not None else _keeper(parts).all()
    return JSONResponse([_out(each) for each in found])


@router.post("/reservations", response_model=ReservationOut, status_code=201)
async def reserve(request: Request, caller: Caller, wanted: ReservationIn) -> Response:
    """Keep nodes for the jobs of a tenant, or of some users, in a time; for admins."""
    caller.must_be_admin()
    parts = service(request)
    keeper = _keeper(parts)
    if bool(wanted.nodes) == (wanted.gpus is not None):
        raise RotaError("give either nodes or gpus: the nodes by name, or how many GPUs in whole nodes")
    if wanted.type is not None and wanted.gpus is None:
        raise RotaError("type: it belongs to gpus; nodes that are named have theirs")
    if bool(wanted.users) == (wanted.tenant is not None):
        raise RotaError("give either tenant or users: whose jobs may use the nodes")
    if wanted.tenant is not None:
        parts.must_exist(wanted.tenant)
    from_s = clock.shown_s(clock.now_s()) if wanted.from_ is None else moment_in(wanted.from_, "from")
    asked = NodeReservation(
        name=wanted.name,
        id="",
        nodes=tuple(dict.fromkeys(wanted.nodes)),
        from_s=from_s,
        until_s=from_s + wanted.for_s,
        tenant=wanted.tenant,
        users=tuple(dict.fromkeys(wanted.users)),
    )
    kind = None if wanted.type is None else DeviceType(wanted.type)
    return JSONResponse(_out(await keeper.add(asked, caller.asker, gpus=wanted.gpus, kind=kind)), status_code=201)


@router.delete("/reservations/{name}", status_code=204)
async def cancel(request: Request, caller: Caller, name: ReservationPath) -> Response:
    """End a reservation now, or before it begins; for admins."""
    caller.must_be_admin()
    await _keeper(service(request)).cancel(name, caller.asker)
    return Response(status_code=204)
