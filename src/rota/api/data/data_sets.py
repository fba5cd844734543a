"""Routes for data sets: list those that a caller may use; admins add and remove them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from rota.api.access import Principal
from rota.api.service import Service, principal, service
from rota.api.wire import PROBLEMS
from rota.core.errors import RotaError
from rota.files.job_shape import Name
from rota.live.intake.audit_entry import audit_entry
from rota.live.intake.requests import Conflict, NotFound
from rota.store.data.data_sets import DataSet, DataSets

router = APIRouter(tags=["data sets"], responses=PROBLEMS)
Caller = Annotated[Principal, Depends(principal)]
DataPath = Annotated[Name, Path(description="The data set's name.")]


Option = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,64}(\.[A-Za-z0-9_]{1,64}){0,3}$")]
Value = Annotated[str, Field(max_length=8192)]


class _DataSet(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: Annotated[
        str, Field(min_length=1, max_length=4096, description="A folder of the manager's machine, or a bucket's URL.")
    ]
    read_only: bool = True
    tenants: Annotated[list[Name], Field(max_length=1000)] = []
    about: Annotated[str, Field(max_length=500)] = ""
    options: Annotated[
        dict[Option, Value], Field(max_length=50, description="What its URL is opened with, e.g. `endpoint_url`.")
    ] = {}


class DataSetIn(_DataSet):
    """A folder or bucket, and the tenants that may use it; none means all."""

    secrets: Annotated[
        dict[Option, Value], Field(max_length=50, description="Options that are kept encrypted and never shown.")
    ] = {}


class DataSetOut(_DataSet):
    """A data set."""

    name: str
    secrets: Annotated[list[str], Field(description="The names of its secrets.")] = []


@router.get("/data-sets", response_model=list[DataSetOut])
async def listed(request: Request, caller: Caller) -> Response:
    """List the data sets that the caller's tenants may use."""
    found = await asyncio.to_thread(_kept(service(request)).all)
    return JSONResponse([_out(each) for each in found if each.is_for(caller.tenants)])


@router.put("/data-sets/{name}", response_model=DataSetOut)
async def put(request: Request, caller: Caller, name: DataPath, wanted: DataSetIn) -> Response:
    """Add a data set, or replace it; for admins, since its path is one of the machine."""
    return JSONResponse(_out(await put_data_set(service(request), caller, name, wanted)))


async def put_data_set(
    parts: Service, caller: Principal, name: str, wanted: DataSetIn, *, is_new: bool = False
) -> DataSet:
    """Add or change a data set as an admin; one that is to be new must not be there."""
    caller.must_be_admin()
    for tenant in wanted.tenants:
        parts.must_exist(tenant)
    kept = _kept(parts)
    if is_new and name in {each.name for each in await asyncio.to_thread(kept.all)}:
        raise Conflict(f"there is a data set {name!r} already; change that one, or choose another name")
    given = wanted.model_dump(include=set(DataSetIn.model_fields))
    made = DataSet(name=name, **{**given, "tenants": tuple(wanted.tenants)})
    was_added = await asyncio.to_thread(kept.put, made)
    await _note(parts, caller, "add" if was_added else "change", name, wanted.path)
    return made


@router.delete("/data-sets/{name}", response_model=dict[str, str])
async def remove(request: Request, caller: Caller, name: DataPath) -> Response:
    """Forget a data set; its files stay. Jobs that name it and have not started can't start any more."""
    await remove_data_set(service(request), caller, name)
    return JSONResponse({"name": name})


async def remove_data_set(parts: Service, caller: Principal, name: str) -> None:
    """Forget a data set as an admin."""
    caller.must_be_admin()
    if not await asyncio.to_thread(_kept(parts).remove, name):
        raise NotFound(f"there is no data set {name[:64]!r}")
    await _note(parts, caller, "remove", name, "")


async def _note(parts: Service, caller: Principal, what: str, name: str, detail: str) -> None:
    await asyncio.to_thread(parts.audit.append, [audit_entry(caller.asker, f"data-set-{what}", name, detail)])


def _kept(parts: Service) -> DataSets:
    if parts.snapshots is None:
        raise RotaError("data sets are for a manager of processes; this one schedules the jobs of another system")
    return DataSets(parts.home)


def _out(data_set: DataSet) -> dict[str, Any]:
    return {"name": data_set.name, **data_set.values()}
