"""Routes for snapshots of code: what has arrived, and the next part."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel

from rota.api.access import Principal
from rota.api.service import Service, principal, service
from rota.api.wire import PROBLEMS
from rota.live.intake.audit_entry import audit_entry
from rota.live.intake.requests import NotFound
from rota.live.loop.storage import CantStore
from rota.store.data.snapshots import MOST_BYTES, Snapshots

router = APIRouter(tags=["jobs"], responses=PROBLEMS)
Caller = Annotated[Principal, Depends(principal)]
Digest = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="The SHA-256 digest of the archive.")]
Tenant = Annotated[str | None, Query(max_length=128)]
Size = Annotated[int, Query(ge=1, le=MOST_BYTES, description="The size of the whole archive.")]
_BODY = {"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string"}}}}}


class ReceivedOut(BaseModel):
    """How many bytes of a snapshot have arrived; all of them once jobs may name it."""

    have: int


@router.get("/snapshots/{digest}", response_model=ReceivedOut)
async def received(request: Request, caller: Caller, digest: Digest, size: Size, tenant: Tenant = None) -> ReceivedOut:
    """Return how many bytes of a snapshot the manager has."""
    kept, owner = _kept(service(request), caller, tenant)
    return ReceivedOut(have=await asyncio.to_thread(kept.received, owner, digest, caller.name, size))


@router.put("/snapshots/{digest}", response_model=ReceivedOut, openapi_extra=_BODY)
async def receive(
    request: Request,
    caller: Caller,
    digest: Digest,
    size: Size,
    offset: Annotated[int, Query(ge=0, le=MOST_BYTES)] = 0,
    tenant: Tenant = None,
) -> ReceivedOut:
    """Send the part of a snapshot from an offset on: a gzipped tar archive. The last part makes it whole."""
    parts = service(request)
    kept, owner = _kept(parts, caller, tenant)
    part = await request.body()
    async with parts.large_bodies:  # one after the other: parts of one archive may arrive at once
        try:
            have = await asyncio.to_thread(kept.receive, owner, digest, caller.name, offset, part, size)
        except OSError as error:
            raise CantStore(f"the snapshot can't be stored: {error.strerror}; try again later") from error
    if have == size and part:
        await asyncio.to_thread(parts.audit.append, [audit_entry(caller.asker, "snapshot", digest, owner)])
    return ReceivedOut(have=have)


def _kept(parts: Service, caller: Principal, tenant: str | None) -> tuple[Snapshots, str]:
    """The snapshots, and the tenant that the caller means and may change."""
    if parts.snapshots is None:
        raise NotFound("snapshots are for a manager of processes; this one schedules the jobs of another system")
    owner = tenant or caller.default_tenant
    caller.must_change(owner)
    parts.must_exist(owner)
    return parts.snapshots, owner
