"""Routes for budgets: users read those of their tenants, admins change them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from rota.api.access import Principal
from rota.api.service import Service, principal, service
from rota.api.wire import PROBLEMS
from rota.core.errors import RotaError
from rota.files.job_shape import Name
from rota.live.accounts.budget import MOST_BUDGETS, AtLimit, Period, UsageBudget
from rota.live.accounts.keeper import BudgetKeeper, BudgetUse
from rota.live.intake.requests import Conflict, NotFound

router = APIRouter(tags=["accounts"], responses=PROBLEMS)
Caller = Annotated[Principal, Depends(principal)]
BudgetPath = Annotated[Name, Path(description="The budget's name.")]
Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Part = Annotated[float, Field(gt=0, le=1)]


class BudgetIn(BaseModel):
    """What a tenant, one of its users or projects may use in a period: GPU hours or cost."""

    model_config = ConfigDict(extra="forbid")

    tenant: Name
    user: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    project: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    gpu_hours: Amount | None = None
    cost: Amount | None = None
    period: Literal["day", "month", "quarter", "year", "total"] = "month"
    warn: Annotated[tuple[Part, ...], Field(max_length=10)] = (0.8,)
    at_limit: Literal["warn", "hold", "stop"] = "stop"


class BudgetOut(BaseModel):
    """A budget, and what is used of it in the present period."""

    name: str
    tenant: str
    user: str | None
    project: str | None
    gpu_hours: float | None
    cost: float | None
    period: str
    warn: list[float]
    at_limit: str = Field(description="warn; hold: no job starts; stop: running jobs are stopped and held too.")
    used: float
    reached: bool


def keeper_of(parts: Service) -> BudgetKeeper:
    """Return what keeps the budgets; raises `NotFound` where there are none."""
    if parts.accounts is None:
        raise NotFound("budgets are kept by a manager of processes; this one schedules the jobs of another system")
    return parts.accounts.budgets


def budget_out(use: BudgetUse) -> dict[str, Any]:
    """Return a budget as JSON."""
    return {**use.budget.encode(), "used": use.used, "reached": use.is_reached}


@router.get("/budgets", response_model=list[BudgetOut])
async def listed(request: Request, caller: Caller) -> Response:
    """List the budgets of the caller's tenants, and what is used of them."""
    found = keeper_of(service(request)).all()
    return JSONResponse([budget_out(use) for use in found if caller.may_see(use.budget.tenant)])


@router.put("/budgets/{name}", response_model=BudgetOut)
async def put(request: Request, caller: Caller, name: BudgetPath, wanted: BudgetIn) -> Response:
    """Add or change a budget; for admins."""
    return JSONResponse(budget_out(await put_budget(service(request), caller, name, wanted)))


async def put_budget(
    parts: Service, caller: Principal, name: str, wanted: BudgetIn, *, is_new: bool = False
) -> BudgetUse:
    """Add or change a budget as an admin; one that is to be new must not be there."""
    caller.must_be_admin()
    parts.must_exist(wanted.tenant)
    keeper = keeper_of(parts)
    known = {use.budget.name for use in keeper.all()}
    if is_new and name in known:
        raise Conflict(f"there is a budget {name!r} already; change that one, or choose another name")
    if len(known) >= MOST_BUDGETS and name not in known:
        raise RotaError(f"there are {MOST_BUDGETS} budgets already; remove some")
    given = wanted.model_dump(include=set(BudgetIn.model_fields) - {"period", "at_limit"})
    budget = UsageBudget(name=name, **given, period=Period(wanted.period), at_limit=AtLimit(wanted.at_limit))
    return await keeper.put(budget, caller.asker)


@router.delete("/budgets/{name}", status_code=204)
async def remove(request: Request, caller: Caller, name: BudgetPath) -> Response:
    """Remove a budget; jobs that only it held are released. For admins."""
    await remove_budget(service(request), caller, name)
    return Response(status_code=204)


async def remove_budget(parts: Service, caller: Principal, name: str) -> None:
    """Remove a budget as an admin."""
    caller.must_be_admin()
    await keeper_of(parts).remove(name, caller.asker)
