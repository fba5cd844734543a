"""Routes for the files that jobs wrote: list and fetch."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

from rota.api.access import Principal
from rota.api.jobs import JobPath, visible
from rota.api.service import Service, principal, service
from rota.api.wire import PROBLEMS, moment
from rota.core.model.job import JobId
from rota.live.intake.audit_entry import audit_entry
from rota.live.intake.requests import NotFound
from rota.store.data.artefacts import MOST_PATH, NoArtefact, list_artefacts, opened_artefact

router = APIRouter(tags=["jobs"], responses=PROBLEMS)
Caller = Annotated[Principal, Depends(principal)]
CHUNK = 1 << 18


class ArtefactOut(BaseModel):
    """A file that a job wrote."""

    path: str
    bytes: int
    modified: str


class ArtefactsOut(BaseModel):
    """Files that a job wrote, by path."""

    files: list[ArtefactOut]
    left_out: int
    truncated: bool


@router.get("/jobs/{job_id}/files", response_model=ArtefactsOut)
async def listed(
    request: Request,
    caller: Caller,
    job_id: JobPath,
    path: Annotated[str, Query(max_length=MOST_PATH, description="Only what is below this folder.")] = "",
) -> Response:
    """List the files that a job wrote to its own folder; for users with the right to change the job."""
    parts = service(request)
    await readable(parts, caller, job_id)
    try:
        found = await asyncio.to_thread(list_artefacts, parts.home, JobId(job_id), path)
    except NoArtefact as error:
        raise NotFound(str(error)) from error
    files = [{"path": each.path, "bytes": each.size, "modified": moment(each.modified_s)} for each in found.files]
    return JSONResponse({"files": files, "left_out": found.left_out, "truncated": found.is_cut})


@router.get("/jobs/{job_id}/files/{path:path}", response_class=Response)
async def fetched(
    request: Request,
    caller: Caller,
    job_id: JobPath,
    path: Annotated[str, Path(max_length=MOST_PATH, description="The file, relative to the job's folder.")],
) -> Response:
    """Return a file that a job wrote; for users with the right to change the job."""
    return await artefact(service(request), caller, job_id, path)


async def readable(parts: Service, caller: Principal, job_id: str) -> Any:
    """Return a job's record; raises a `RotaError` for callers without the right to its files."""
    row = await visible(parts, caller, job_id)
    caller.must_act_on(row.tenant, row.owner, job_id)
    return row


async def artefact(parts: Service, caller: Principal, job_id: str, path: str) -> Response:
    """Return the answer that carries a file; reading the files of another user is noted in the audit log."""
    row = await readable(parts, caller, job_id)
    with ExitStack() as stack:
        try:
            file, about = stack.enter_context(opened_artefact(parts.home, JobId(job_id), path))
        except NoArtefact as error:
            raise NotFound(str(error)) from error
        if row.owner != caller.name:
            await asyncio.to_thread(parts.audit.append, [audit_entry(caller.asker, "get", job_id, about.path)])
        kept = stack.pop_all()
        return StreamingResponse(
            _content(kept, file, about.size),
            media_type="application/octet-stream",
            headers={
                "Content-Length": str(about.size),
                "Content-Disposition": f"attachment; filename*=UTF-8''{quote(about.path.rpartition('/')[2], safe='')}",
                "X-Content-Type-Options": "nosniff",
                "Content-Security-Policy": "sandbox",
                "Cache-Control": "no-store",
            },
        )


async def _content(kept: ExitStack, file: int, size: int) -> AsyncIterator[bytes]:
    """Yield as many bytes as were announced: a file that grows is cut, one that shrinks breaks the answer off."""
    with kept:
        left = size
        while left > 0:
            read = await asyncio.to_thread(os.read, file, min(CHUNK, left))
            if not read:
                return
            left -= len(read)
            yield read
