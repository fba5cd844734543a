"""Routes for the audit log, for admins only."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse

from rota.api.access import Principal
from rota.api.guard.audit_anchor import FILE
from rota.api.service import principal, service
from rota.api.wire import Problem, moment
from rota.core.errors import RotaError
from rota.store.audit import head_in, read_head

router = APIRouter(tags=["audit"], responses={code: {"model": Problem} for code in (401, 403, 422)})
Caller = Annotated[Principal, Depends(principal)]


@router.get("/audit")
async def audit(
    request: Request,
    caller: Caller,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[int | None, Query(ge=0, le=1 << 62, description="Only entries with a smaller number.")] = None,
    who: Annotated[str | None, Query(max_length=128, description="Only entries of this user.")] = None,
    what: Annotated[str | None, Query(max_length=64, description="Only entries of this kind.")] = None,
) -> Response:
    """Return the audit log, newest first. The next page begins before the smallest number of this one."""
    caller.must_be_admin()
    log = service(request).audit
    rows = await asyncio.to_thread(log.page, limit, before=before, who=who, what=what)
    return JSONResponse([_out(row) for row in rows])


def _out(row: Any) -> dict[str, Any]:
    fields = {name: getattr(row, name) for name in ("who", "what", "thing", "detail", "hash")}
    return {"n": row.n, "at": moment(row.at_s), **fields}


@router.get("/audit/verify")
async def verify(
    request: Request,
    caller: Caller,
    head: Annotated[str | None, Query(max_length=100, description="A head that was noted, as NUMBER:HASH.")] = None,
) -> Response:
    """Recompute the chain of hashes; `fault` says what is wrong with the log, if anything is."""
    caller.must_be_admin()
    parts = service(request)
    known = [found for found in (head_in(parts.home / FILE),) if found is not None]
    if head is not None:
        given = read_head(head)
        if given is None:
            raise RotaError(f"head {head!r} is not NUMBER:HASH, as `rota audit verify` prints it")
        known.append(given)
    found = await asyncio.to_thread(parts.audit.verify, known)
    return JSONResponse({"entries": found.entries, "head": str(found.head), "fault": found.fault})
