"""The list of a job's services, with the address of each."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel

from rota.api.access import Principal
from rota.api.jobs import JobPath, visible
from rota.api.proxy.places import ProxyPlace
from rota.api.service import principal, service
from rota.api.wire import PROBLEMS
from rota.core.model.job import JobId
from rota.live.intake.requests import Conflict
from rota.store.data.artefacts import list_services

router = APIRouter(tags=["sessions"], responses=PROBLEMS)


class ServiceOut(BaseModel):
    """A service of a job: its name, and its address below that of the manager."""

    name: str
    path: str


@router.get("/jobs/{job_id}/services", response_model=list[ServiceOut])
async def services(
    request: Request, caller: Annotated[Principal, Depends(principal)], job_id: JobPath
) -> list[ServiceOut]:
    """List what a running job serves, as it states itself in `$ROTA_RUN_DIR/.services`."""
    parts = service(request)
    row = await visible(parts, caller, job_id)
    caller.must_act_on(row.tenant, row.owner, job_id)
    if row.state != "running" or parts.proxy is None:
        raise Conflict(f"job {job_id} is {row.state}; only running jobs have services")
    names = await asyncio.to_thread(list_services, parts.home, JobId(row.id))
    return [ServiceOut(name=name, path=ProxyPlace(job_id=job_id, service=name).path) for name in names]
