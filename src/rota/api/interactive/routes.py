"""The WebSocket of a session, and the list of a job's sessions."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response, WebSocket
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from rota.api.access import Access, Forbidden, Principal, Unknown, digest_of
from rota.api.guard.bearer import token_of
from rota.api.interactive.host_relay import HostRelay
from rota.api.interactive.relay import Relay, Wanted
from rota.api.jobs import JobPath, visible
from rota.api.service import Service, principal, service
from rota.api.wire import PROBLEMS
from rota.core.errors import RotaError, Unavailable
from rota.core.model.job import JobId
from rota.drivers.local.interactive.door import connect
from rota.drivers.local.task_runner.interactive.frames import OPEN, FrameReader, pack
from rota.live.intake.audit_entry import audit_entry
from rota.live.intake.requests import Conflict, NotFound
from rota.store.jobs import FINAL
from rota.store.run_folder import attempt_folder

router = APIRouter(tags=["sessions"], responses=PROBLEMS)
MODES = ("attach", "exec", "forward", "ssh")
MOST_PORT = 65535
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (Unknown, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (Conflict, 409),
    (RotaError, 422),
    (Unavailable, 503),
)


class SessionOut(BaseModel):
    """A session in a task: the task's own terminal (`main`), or a command beside it."""

    session: str
    command: str
    tty: bool
    clients: int
    idle_s: float


@router.websocket("/jobs/{job_id}/session")
async def session(websocket: WebSocket, job_id: str) -> None:
    """Open a session in a task of a job, or come back to one; messages are frames."""
    parts: Service = websocket.app.state.service
    access = parts.access
    try:
        caller = access.authenticate(websocket)
        token = token_of(websocket.scope)
        await serve_session(websocket, parts, caller, job_id, _holder(access, digest_of(token) if token else ""))
    except (RotaError, Unavailable) as error:
        await refuse(websocket, error)


def _holder(access: Access, digest: str) -> Any:
    """Return what finds the present rights of a caller; it raises a `RotaError` once there are none."""
    return (lambda: access.holder(digest)) if digest else None


async def refuse(websocket: WebSocket, error: Exception) -> None:
    """Answer the request for a socket as any other request that is refused."""
    status = next(code for kind, code in _STATUS if isinstance(error, kind))
    await websocket.send_denial_response(JSONResponse({"error": " ".join(str(error).split())}, status_code=status))


async def serve_session(websocket: WebSocket, parts: Service, caller: Principal, job_id: str, holder: Any) -> None:
    """Serve a session to a caller with the right to it, until the session or the right ends.

    `holder` returns the caller with its present rights, or raises a `RotaError`; None where no token is needed.
    Raises a `RotaError` before the socket is accepted if the session can't be opened.
    """
    asked = websocket.query_params
    mode, task = asked.get("mode", "attach"), asked.get("task", "0")
    if mode not in MODES:
        raise RotaError(f"mode: {mode[:40]!r} is not one of {', '.join(MODES)}")
    if not _is_number(task):
        raise RotaError(f"task: {task[:40]!r} is not a rank")
    port = _port(asked.get("port", "")) if mode == "forward" else 0
    if not parts.has_sessions:
        raise RotaError("sessions: this manager runs no tasks and no pods; use what the cluster itself has for it")
    if parts.pods is not None and mode == "ssh":
        raise RotaError("ssh: jobs in pods are reached by `rota exec` and `rota port-forward`")
    row = await visible(parts, caller, job_id)
    caller.must_act_on(row.tenant, row.owner, job_id)
    if mode in ("exec", "ssh") and row.state in FINAL:
        raise Conflict(f"job {job_id} has ended ({row.state}); commands run beside running tasks only")
    if mode == "forward" and row.state != "running":
        raise Conflict(f"job {job_id} is {row.state}; only ports of running jobs are forwarded")
    if mode == "attach" and not await _has_terminal(parts, row, int(task)):
        raise Conflict(
            f"job {job_id} has no terminal; follow it with `rota logs -f {job_id}`, "
            f"or open a shell beside it with `rota exec {job_id}`"
        )

    def is_valid() -> bool:
        try:
            return holder is None or bool(holder().may_act_on(row.tenant, row.owner))
        except RotaError:
            return False

    wanted = Wanted(job_id=job_id, mode=mode, task=int(task), port=port, row=row)
    await websocket.accept()
    relay = _relay(websocket, parts, wanted)

    async def note(what: str, detail: str) -> None:
        await relay.in_thread(parts.audit.append, [audit_entry(caller.asker, what, job_id, detail)])

    relay.note = note
    stop = parts.watch.add(is_valid, relay.revoke)
    try:
        await relay.run()
    finally:
        stop()


async def _has_terminal(parts: Service, row: Any, task: int) -> bool:
    """Whether a job has a terminal or pipes of its own; of one in pods that is known once it runs."""
    if parts.pods is None:
        return json.loads(row.spec).get("interactive") is not None
    if row.state != "running":
        return True
    return (await parts.pods.find(JobId(row.id), task, tenant=row.tenant, owner=row.owner)).has_terminal


def _relay(websocket: WebSocket, parts: Service, wanted: Wanted) -> Relay:
    if parts.pods is None:
        return HostRelay(websocket, parts, wanted)
    from rota.api.interactive.pod_relay import PodRelay

    return PodRelay(websocket, parts, wanted, parts.pods)


def _port(text: str) -> int:
    if not (_is_number(text) and 1 <= int(text) <= MOST_PORT):
        raise RotaError(f"port: {text[:40]!r} is not from 1 to {MOST_PORT}")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5


@router.get("/jobs/{job_id}/sessions", response_model=list[SessionOut])
async def sessions(
    request: Request,
    caller: Annotated[Principal, Depends(principal)],
    job_id: JobPath,
    task: Annotated[int, Query(ge=0, le=1 << 16, description="The task's rank.")] = 0,
) -> Response:
    """List the sessions in a running task: its own terminal, and commands beside it."""
    parts = service(request)
    row = await visible(parts, caller, job_id)
    caller.must_act_on(row.tenant, row.owner, job_id)
    if row.state != "running" or not parts.has_sessions:
        raise Conflict(f"job {job_id} is {row.state}; only running tasks have sessions")
    if parts.pods is not None:
        pod = await parts.pods.find(JobId(row.id), task, tenant=row.tenant, owner=row.owner)
        own = {"session": "main", "command": "", "tty": pod.tty, "clients": 0, "idle_s": 0.0}
        return JSONResponse([own] if pod.has_terminal else [])
    folder = attempt_folder(parts.home, JobId(row.id), max(row.attempt, 1)) / str(task)
    if not await asyncio.to_thread(folder.exists):
        raise NotFound(f"job {job_id}: there is no task {task}")
    reader, writer = await connect(folder)
    try:
        writer.write(pack(OPEN, json.dumps({"mode": "list"}).encode()))
        frames = FrameReader()
        while received := await reader.read(1 << 16):
            for _, payload in frames.feed(received):
                return JSONResponse(json.loads(payload)["sessions"])
    finally:
        writer.close()
    raise Unavailable("the session host does not answer; try again")
