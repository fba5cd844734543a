"""The output of tasks, complete or followed live."""

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
from rota.live.intake.requests import NotFound
from rota.live.loop.entry import News
from rota.store.jobs import FINAL
from rota.store.run_folder import attempt_folder, output_end, read_output

DROPPED = b"[rota: %d bytes of output were dropped here; task_output says how much is kept]\n"
router = APIRouter(tags=["logs"], responses={code: {"model": Problem} for code in (401, 403, 404, 422)})
CHUNK = 1 << 20
POLL_S = 0.1


@router.get("/jobs/{job_id}/logs", response_class=Response)
async def logs(
    request: Request,
    caller: Annotated[Principal, Depends(principal)],
    job_id: JobPath,
    task: Annotated[int, Query(ge=0, le=1 << 16, description="The task's rank.")] = 0,
    attempt: Annotated[int | None, Query(ge=1, le=1 << 31, description="The attempt; by default the latest.")] = None,
    offset: Annotated[int, Query(ge=0, le=1 << 62)] = 0,
    tail: Annotated[int | None, Query(ge=0, le=1 << 40, description="Only the last bytes, this many.")] = None,
    follow: Annotated[bool, Query(description="Continue until the job ends.")] = False,
) -> Response:
    """Return a task's output. With `follow`, continue over restarts until the job has ended."""
    parts = service(request)
    row = await visible(parts, caller, job_id)
    folder = attempt_folder(parts.home, JobId(row.id), attempt or max(row.attempt, 1)) / str(task)
    if task and not folder.exists():
        raise NotFound(f"job {job_id} has no task {task}, or it has not started yet")
    if attempt is not None and attempt > max(row.attempt, 1) and not follow:
        raise NotFound(f"job {job_id} has no attempt {attempt}; its latest is {row.attempt}")
    if tail is not None:
        offset = max(offset, output_end(folder) - tail)
    output = _follow(parts, row.id, task, attempt, offset) if follow else _whole(folder, offset)
    return StreamingResponse(
        output, media_type="text/plain; charset=utf-8", headers={"X-Content-Type-Options": "nosniff"}
    )


async def _whole(folder: FilePath, offset: int) -> AsyncIterator[bytes]:
    async for output, _ in _read(folder, offset):
        yield output


async def _read(folder: FilePath, offset: int) -> AsyncIterator[tuple[bytes, int]]:
    """Yield the output from an offset on, each piece with its end offset; deleted output is skipped."""
    while True:
        at, output = await asyncio.to_thread(read_output, folder, offset, CHUNK)
        if not output:
            return
        if at > offset:
            yield DROPPED % (at - offset), at
        offset = at + len(output)
        yield output, offset


async def _follow(parts: Service, job_id: str, task: int, attempt: int | None, offset: int) -> AsyncIterator[bytes]:
    """Yield existing and new output, attempt after attempt, until the job has ended."""
    changed = asyncio.Event()

    def on_news(news: object) -> None:
        if isinstance(news, list) and any(isinstance(each, News) and each.job_id == job_id for each in news):
            changed.set()

    stop = parts.control.listen(on_news)
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
                async for output, end in _read(folder, offset):
                    offset = end
                    yield output
                if attempt is None and row.attempt > shown:
                    shown, offset = shown + 1, 0
                    continue
            if row.state in FINAL:
                return
            changed.clear()
            try:
                await asyncio.wait_for(changed.wait(), POLL_S)
            except TimeoutError:
                continue
    finally:
        stop()
