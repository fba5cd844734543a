"""The route of the full-text search over jobs."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from rota.api.access import Principal
from rota.api.service import principal, service
from rota.api.wire import PROBLEMS, JobOut, job_out
from rota.live.intake.requests import NotFound

router = APIRouter(tags=["jobs"], responses=PROBLEMS)
Caller = Annotated[Principal, Depends(principal)]


class MatchOut(BaseModel):
    """A job that matches, in which field, and the text around."""

    job: JobOut
    field: str
    excerpt: str


class SearchOut(BaseModel):
    """Jobs that match, the best first."""

    matches: list[MatchOut]


@router.get("/search", response_model=SearchOut)
async def search(
    request: Request,
    caller: Caller,
    q: Annotated[str, Query(min_length=1, max_length=256, description="Words that a job must have.")],
    tenant: Annotated[str | None, Query(max_length=128)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """Search names, owners, labels, commands, messages and the ends of outputs of the jobs that the caller may see."""
    parts = service(request)
    if parts.search is None:
        raise NotFound("the search is for a manager of processes; this one schedules the jobs of another system")
    tenants = caller.tenants
    if tenant is not None:
        caller.must_see(tenant)
        parts.must_exist(tenant)
        tenants = frozenset({tenant})
    async with parts.search.turns.turn(caller.name):
        found = await asyncio.to_thread(parts.search.search, q, tenants, limit)
    rows = {row.id: row for row in await asyncio.to_thread(parts.records.some, [each.job_id for each in found])}
    if gone := {each.job_id for each in found} - rows.keys():  # deleted since
        with contextlib.suppress(OSError):  # as on a full disk; the next search forgets them
            await asyncio.to_thread(parts.search.forget, gone)
    matches: list[dict[str, Any]] = [
        {"job": job_out(rows[each.job_id], parts.control), "field": each.field, "excerpt": each.excerpt}
        for each in found
        if each.job_id in rows and caller.may_see(rows[each.job_id].tenant)
    ]
    return JSONResponse({"matches": matches})
