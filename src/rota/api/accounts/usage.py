"""Routes for used device time: reports, prices and the fair-share standing."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from rota.api.access import Principal
from rota.api.service import Service, principal, service
from rota.api.wire import PROBLEMS
from rota.core.errors import RotaError, did_you_mean
from rota.files.job_shape import Name
from rota.live.accounts.fair_share import HALF_LIFE_S, SPAN_HALF_LIVES, standings
from rota.live.accounts.prices import ANY, Prices, prices_of, set_prices
from rota.live.accounts.report import GROUPINGS, UsageQuery, grouped, month_of, open_rows, rows_of
from rota.live.views.tenant_usage import TenantGuarantees
from rota.store import clock

router = APIRouter(tags=["accounts"], responses=PROBLEMS)
Caller = Annotated[Principal, Depends(principal)]
Json = dict[str, Any]
Price = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
NameFilter = Annotated[str | None, Query(max_length=128)]


class UsageRowOut(BaseModel):
    """A line of the report: what it is grouped by, and the sums."""

    model_config = ConfigDict(extra="allow")

    gpu_hours: float
    cost: float | None = Field(description="None where no prices are set.")
    energy_kwh: float = Field(description="Of ended jobs that had their GPUs to themselves, where GPUs count it.")
    jobs: int = Field(description="Jobs that ended.")


class UsageOut(BaseModel):
    """Used device time in a span."""

    since: str
    until: str
    by: list[str]
    currency: str
    rows: list[UsageRowOut]
    total: UsageRowOut


class PricesOut(BaseModel):
    """What device time and energy cost now."""

    currency: str
    per_gpu_hour: dict[str, float]
    per_kwh: float
    since: str | None = Field(description="From when on; hours before keep the prices that held then.")


class PricesIn(BaseModel):
    """Prices from the present hour on."""

    model_config = ConfigDict(extra="forbid")

    currency: Annotated[str, Field(max_length=8)] = ""
    per_gpu_hour: Annotated[dict[Name | str, Price], Field(max_length=1000)] = {}
    per_kwh: Price = 0.0


class StandingOut(BaseModel):
    """How a tenant, or one of its users, stands, as `sshare` shows it."""

    tenant: str
    user: str = Field(description="Empty for the tenant itself.")
    shares: float
    norm_shares: float
    raw_usage_s: float = Field(description="Device-seconds; each counts half after every half-life.")
    usage: float
    factor: float = Field(description="1 unused, 0.5 exactly its share, towards 0 above it.")


@router.get("/usage", response_model=UsageOut)
async def usage(
    request: Request,
    caller: Caller,
    since: Annotated[str | None, Query(description="A date or month; by default this month.")] = None,
    until: Annotated[str | None, Query(description="A date or month, exclusive; by default now.")] = None,
    by: Annotated[str, Query(max_length=64, description="Commas between: " + ", ".join(GROUPINGS))] = "tenant,user",
    tenant: NameFilter = None,
    user: NameFilter = None,
    project: NameFilter = None,
) -> Response:
    """Report GPU hours, energy, cost and ended jobs, by time, tenant, user, project and device type."""
    parts = service(request)
    groups = [each.strip() for each in by.split(",") if each.strip()]
    for name in groups:
        if name not in GROUPINGS:
            raise RotaError(f"by: unknown {name[:40]!r}; {did_you_mean(name[:40], GROUPINGS)}")
    now_s = clock.shown_s(clock.now_s())
    query = UsageQuery(
        since_s=month_of(now_s) if since is None else moment_in(since, "since"),
        until_s=now_s if until is None else moment_in(until, "until"),
        tenants=tenants_of(parts, caller, tenant),
        owner=user,
        project=project,
    )
    stored = await asyncio.to_thread(rows_of, parts.records, query)
    unwritten = [row for row in open_rows(parts.control) if query.has(row)]

    def report() -> Json:
        prices = prices_of(parts.records)
        rows = [*stored, *unwritten]
        total = grouped(rows, (), prices) or grouped([], (), prices)
        none = {"gpu_hours": 0.0, "cost": 0.0 if prices.lists else None, "energy_kwh": 0.0, "jobs": 0}
        return {
            "since": date_text(query.since_s),
            "until": date_text(query.until_s),
            "by": list(dict.fromkeys(groups)),
            "currency": prices.currency,
            "rows": grouped(rows, tuple(dict.fromkeys(groups)), prices) if groups else total,
            "total": total[0] if total else none,
        }

    return JSONResponse(await asyncio.to_thread(report))


def tenants_of(parts: Service, caller: Principal, tenant: str | None) -> tuple[str, ...] | None:
    """Return the tenants that a caller may ask about: one, its own, or all (None)."""
    if tenant is None:
        return None if caller.tenants is None else tuple(sorted(caller.tenants))
    caller.must_see(tenant)
    parts.must_exist(tenant)
    return (tenant,)


def moment_in(text: str, field: str) -> float:
    """Return a month, date or moment as Unix time; without an offset it is UTC."""
    try:
        at = datetime.fromisoformat(f"{text}-01" if len(text) == 7 else text)
    except ValueError:
        raise RotaError(f"{field}: {text[:40]!r} is not a date; write it like 2026-11 or 2026-11-18") from None
    found = (at.replace(tzinfo=UTC) if at.tzinfo is None else at).timestamp()
    if not 0 <= found < 1e11:
        raise RotaError(f"{field}: {text[:40]!r} is out of range")
    return found


def date_text(at_s: float) -> str:
    """Return Unix time as ISO 8601 in UTC."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at_s)).isoformat(timespec="seconds")


@router.get("/prices", response_model=PricesOut)
async def prices(request: Request, caller: Caller) -> Response:
    """Return the prices of device time and energy."""
    return JSONResponse(_prices_out(await asyncio.to_thread(prices_of, service(request).records)))


@router.put("/prices", response_model=PricesOut)
async def put_prices(request: Request, caller: Caller, wanted: PricesIn) -> Response:
    """Set the prices from the present hour on; for admins."""
    return JSONResponse(_prices_out(await put_prices_of(service(request), caller, wanted)))


async def put_prices_of(parts: Service, caller: Principal, wanted: PricesIn) -> Prices:
    """Set the prices as an admin."""
    caller.must_be_admin()
    types = {str(account.node.device_type) for account in parts.control.state.inventory.nodes}
    for kind in wanted.per_gpu_hour:
        if kind != ANY and kind not in types:
            raise RotaError(
                f"per_gpu_hour: no node has the type {kind[:40]!r}; {did_you_mean(kind[:40], [*types, ANY])}"
            )
    known = await asyncio.to_thread(prices_of, parts.records)
    return await set_prices(parts.control, known, wanted.per_gpu_hour, wanted.per_kwh, wanted.currency, caller.asker)


def _prices_out(found: Prices) -> Json:
    latest = found.lists[-1] if found.lists else None
    return {
        "currency": found.currency,
        "per_gpu_hour": {} if latest is None else dict(latest.per_gpu_hour),
        "per_kwh": 0.0 if latest is None else latest.per_kwh,
        "since": None if latest is None else date_text(latest.since_s),
    }


@router.get("/shares", response_model=list[StandingOut])
async def shares(
    request: Request,
    caller: Caller,
    tenant: NameFilter = None,
    half_life_days: Annotated[float, Query(gt=0, le=3650)] = HALF_LIFE_S / 86400,
) -> Response:
    """Return the fair-share standing of tenants and their users."""
    parts = service(request)
    allowed = tenants_of(parts, caller, tenant)
    found = await standing_of(parts, half_life_days * 86400)
    return JSONResponse([asdict(each) for each in found if allowed is None or each.tenant in allowed])


async def standing_of(parts: Service, half_life_s: float = HALF_LIFE_S) -> list[Any]:
    """Return the standing of all tenants and users: shares are the guarantees, or equal where there are none."""
    now_s = clock.shown_s(clock.now_s())
    query = UsageQuery(since_s=max(now_s - SPAN_HALF_LIVES * half_life_s, 0.0), until_s=now_s + 1)
    guaranteed = TenantGuarantees(parts.control, parts.scheduling).now()
    names = list(guaranteed) if parts.tenants is None else parts.tenants.names()
    weights = {name: float(guaranteed[name].devices) if name in guaranteed else 1.0 for name in names}
    stored = await asyncio.to_thread(rows_of, parts.records, query)
    return standings([*stored, *open_rows(parts.control)], now_s, weights, half_life_s)
