"""Routes for templates of jobs: list, read, fill in, add and remove."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from rota.api.access import AccessRole, Forbidden, Principal
from rota.api.service import Service, principal, service
from rota.api.wire import PROBLEMS
from rota.files.job_shape import Name
from rota.live.data.template_registry import JobTemplate, TemplateRegistry
from rota.live.intake.requests import Conflict, NotFound

router = APIRouter(tags=["templates"], responses=PROBLEMS)
Caller = Annotated[Principal, Depends(principal)]
TemplatePath = Annotated[Name, Path(description="The template's name.")]
Tenant = Annotated[str | None, Query(max_length=128, description="The tenant; by default the token's.")]
Json = dict[str, Any]


class TemplateOut(BaseModel):
    """A template; `tenant` is null for those that come with Rota."""

    name: str
    tenant: str | None
    description: str
    parameters: Json
    job: Json | None
    sweep: Json | None
    array: int | str | None


class FilledOut(BaseModel):
    """What a template stands for with the given values: jobs to submit, or a sweep to start."""

    jobs: list[Json] | None = None
    sweep: Json | None = None


class FillIn(BaseModel):
    """Values of parameters; the others have their defaults."""

    parameters: dict[str, bool | int | float | str | None] = {}


@router.get("/templates", response_model=list[TemplateOut])
async def listed(request: Request, caller: Caller) -> Response:
    """List the templates that come with Rota, and those of the caller's tenants."""
    return JSONResponse([_out(each) for each in _registry(service(request)).visible(caller.tenants)])


@router.get("/templates/{name}", response_model=TemplateOut)
async def one(request: Request, caller: Caller, name: TemplatePath, tenant: Tenant = None) -> Response:
    """Return a template."""
    parts = service(request)
    return JSONResponse(_out(_registry(parts).find(name, _seen(parts, caller, tenant))))


@router.post("/templates/{name}/fill", response_model=FilledOut)
async def fill(request: Request, caller: Caller, name: TemplatePath, wanted: FillIn, tenant: Tenant = None) -> Response:
    """Return the jobs or the sweep that a template stands for; nothing is submitted."""
    parts = service(request)
    owner = _seen(parts, caller, tenant)
    filled = _registry(parts).find(name, owner).file.filled(wanted.parameters, f"template {name}")
    if tenant is not None:
        for values in (*filled.get("jobs", ()), *([filled["sweep"]] if "sweep" in filled else ())):
            values["tenant"] = tenant
    return JSONResponse(filled)


@router.put("/templates/{name}", response_model=TemplateOut)
async def put(request: Request, caller: Caller, name: TemplatePath, values: Json, tenant: Tenant = None) -> Response:
    """Add a template to a tenant, or replace it; for the tenant's maintainers."""
    return JSONResponse(_out(await put_template(service(request), caller, name, values, tenant)))


async def put_template(
    parts: Service, caller: Principal, name: str, values: Json, tenant: str | None, *, is_new: bool = False
) -> JobTemplate:
    """Add or change a template as a maintainer of its tenant; one that is to be new must not be there."""
    owner = _changed(parts, caller, tenant)
    registry = _registry(parts)
    if is_new and any((each.tenant, each.name) == (owner, name) for each in registry.visible((owner,))):
        raise Conflict(f"tenant {owner} has a template {name!r} already; change that one, or choose another name")
    return await registry.put(name, owner, values, caller.asker)


@router.delete("/templates/{name}", response_model=dict[str, str])
async def remove(request: Request, caller: Caller, name: TemplatePath, tenant: Tenant = None) -> Response:
    """Remove a template of a tenant; for the tenant's maintainers."""
    owner = await remove_template(service(request), caller, name, tenant)
    return JSONResponse({"name": name, "tenant": owner})


async def remove_template(parts: Service, caller: Principal, name: str, tenant: str | None) -> str:
    """Remove a template as a maintainer of its tenant; return the tenant."""
    owner = _changed(parts, caller, tenant)
    await _registry(parts).remove(name, owner, caller.asker)
    return owner


def _registry(parts: Service) -> TemplateRegistry:
    if parts.templates is None:
        raise NotFound("templates are for a manager of processes; this one schedules the jobs of another system")
    return parts.templates


def _seen(parts: Service, caller: Principal, tenant: str | None) -> str:
    owner = tenant or caller.default_tenant
    if tenant is not None:
        caller.must_see(owner)
        parts.must_exist(owner)
    return owner


def _changed(parts: Service, caller: Principal, tenant: str | None) -> str:
    owner = tenant or caller.default_tenant
    caller.must_change(owner)
    parts.must_exist(owner)
    if caller.role is AccessRole.MEMBER:
        raise Forbidden(f"token {caller.name!r} has the role member; templates are changed by maintainers of a tenant")
    return owner


def _out(template: JobTemplate) -> Json:
    return {"name": template.name, "tenant": template.tenant, **template.file.model_dump(mode="json")}
