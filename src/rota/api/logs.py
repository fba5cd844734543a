"""What tasks say, at once or as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from rota.api.access import Principal
from rota.api.jobs import JobPath, visible
from rota.api.service import Service, principal, service
from rota.api.wire import Problem
from rota.core.model.job import JobId
from rota.live.loop.control import News
from rota.live.loop.requests import NotFound
from rota.store.jobs import FINAL
from rota.store.run_folder import attempt_folder, output_end, read_output

router = APIRouter(tags=["logs"], responses={code: {"model": Problem} for code in (401, 403, 404, 422)})
CHUNK = 1 << 20
LOOK_EVERY_S = 0.1


@router.get("/jobs/{job_id}/logs", response_class=Response)
async def logs(
    request: Request,
    who: Annotated[Principal, Depends(principal)],
    job_id: JobPath,
    task: Annotated[int, Query(ge=0, le=1 << 16, description="The task's rank.")] = 0,
    attempt: Annotated[int | None, Query(ge=1, le=1 << 31, description="Which attempt; the last by default.")] = None,
    offset: Annotated[int, Query(ge=0, le=1 << 62)] = 0,
    tail: Annotated[int | None, Query(ge=0, le=1 << 40, description="Only the last so many bytes.")] = None,
    follow: Annotated[bool, Query(description="Go on until the job ends.")] = False,
) -> Response:
    """A task's output. With `follow` it goes on, over restarts, until the job has ended."""
    parts = service(request)
    row = await visible(parts, who, job_id)
    folder = attempt_folder(parts.home, JobId(row.id), attempt or max(row.attempt, 1)) / str(task)
    if task and not folder.exists():
        raise NotFound(f"job {job_id} has no task {task}, or it has not started yet")
    if attempt is not None and attempt > max(row.attempt, 1) and not follow:
        raise NotFound(f"job {job_id} has had no attempt {attempt}; its last is {row.attempt}")
    if tail is not None:
        offset = max(offset, output_end(folder) - tail)
    said = _follow(parts, row.id, task, attempt, offset) if follow else _whole(folder, offset)
    return StreamingResponse(
        said, media_type="text/plain; charset=utf-8", headers={"X-Content-Type-Options": "nosniff"}
    )


async def _whole(folder: FilePath, offset: int) -> AsyncIterator[bytes]:
    async for said, _ in _read(folder, offset):
        yield said


async def _read(folder: FilePath, offset: int) -> AsyncIterator[tuple[bytes, int]]:
    """What is there from an offset on, each piece with where it ends: what was dropped meanwhile is passed over."""
    while True:
        at, said = await asyncio.to_thread(read_output, folder, offset, CHUNK)
        if not said:
            return
        offset = at + len(said)
        yield said, offset


async def _follow(parts: Service, job_id: str, task: int, attempt: int | None, offset: int) -> AsyncIterator[bytes]:
    """What is there, then what comes, attempt after attempt, until the job has ended."""
    changed = asyncio.Event()

    def heard(news: object) -> None:
        if isinstance(news, list) and any(isinstance(each, News) and each.job_id == job_id for each in news):
            changed.set()

    stop = parts.control.listen(heard)
    shown = attempt
    try:
        while True:
            row = await asyncio.to_thread(parts.records.job, job_id)
            if row is None:
                return
            if shown is None and row.attempt:
                shown = row.attempt
            if shown is not None:
                folder = attempt_folder(parts.home, JobId(job_id), shown) / str(task)
                async for said, end in _read(folder, offset):
                    offset = end
                    yield said
                if attempt is None and row.attempt > shown:
                    shown, offset = shown + 1, 0
                    continue
            if row.state in FINAL:
                return
            changed.clear()
            try:
                await asyncio.wait_for(changed.wait(), LOOK_EVERY_S)
            except TimeoutError:
                continue
    finally:
        stop()
