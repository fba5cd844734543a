"""Routes that add and remove tenants, and set limits of their jobs; for admins only."""

from __future__ import annotations

import logging
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from rota.api.access import Principal
from rota.api.service import Service, principal, service
from rota.api.wire import Problem
from rota.core.errors import RotaError
from rota.core.model.job import OPPORTUNISTIC
from rota.files.job_shape import LONGEST_RUN_S, MOST_PRIORITY, Name
from rota.live.intake.tenant_registry import TenantRegistry

log = logging.getLogger("rota.api")
router = APIRouter(tags=["tenants"], responses={code: {"model": Problem} for code in (401, 403, 404, 422)})
Caller = Annotated[Principal, Depends(principal)]
TenantPath = Annotated[Name, Path(description="The tenant's name.")]
Cap = Annotated[int, Field(strict=True, ge=OPPORTUNISTIC, le=MOST_PRIORITY)]


class TenantIn(BaseModel):
    """What is set for a tenant; what is not given stays, and a limit that is null is removed."""

    model_config = ConfigDict(extra="forbid")

    max_priority: dict[Literal["member", "maintainer"], Cap] = {}
    max_time_s: Annotated[float, Field(gt=0, le=LONGEST_RUN_S, allow_inf_nan=False)] | None = None
    max_gpus_per_job: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] | None = None


class TenantOut(BaseModel):
    """A tenant, the highest priority of its jobs by role, and how long and large they may be."""

    tenant: str
    max_priority: dict[str, int]
    max_time_s: float | None
    max_gpus_per_job: float | None


@router.put("/tenants/{tenant}", response_model=TenantOut)
async def put(request: Request, caller: Caller, tenant: TenantPath, wanted: TenantIn) -> Response:
    """Add a tenant, or set the highest priority of its jobs by role, and how long and large they may be."""
    caller.must_be_admin()
    tenants = _registry(service(request))
    limits = {name: getattr(wanted, name) for name in wanted.model_fields_set - {"max_priority"}}
    await tenants.put(tenant, {str(role): cap for role, cap in wanted.max_priority.items()}, caller.asker, limits)
    log.info("tenant-put", extra={"tenant": tenant, "who": caller.name})
    return JSONResponse(_out(tenants, tenant))


@router.delete("/tenants/{tenant}", response_model=TenantOut)
async def remove(request: Request, caller: Caller, tenant: TenantPath) -> Response:
    """Remove a tenant without unfinished jobs."""
    caller.must_be_admin()
    tenants = _registry(service(request))
    found = _out(tenants, tenant)
    await tenants.remove(tenant, caller.asker)
    log.info("tenant-remove", extra={"tenant": tenant, "who": caller.name})
    return JSONResponse(found)


def _registry(parts: Service) -> TenantRegistry:
    if parts.tenants is None:
        raise RotaError("tenants: this manager takes them from Kubernetes; change them there")
    return parts.tenants


def _out(tenants: TenantRegistry, tenant: str) -> dict[str, Any]:
    return {"tenant": tenant, "max_priority": tenants.caps_of(tenant), **tenants.limits_of(tenant).encode()}
