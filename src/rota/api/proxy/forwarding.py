"""Carries a request or a socket to a place in a job for a caller with the right to it, while the right lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from rota.api.access import Principal
from rota.api.jobs import visible
from rota.api.limits.asgi import Receive, Send
from rota.api.proxy.headers import Headers
from rota.api.proxy.http import BadAnswer, ForwardedRequest
from rota.api.proxy.limits import ProxyLimits
from rota.api.proxy.places import ProxyPlace
from rota.api.proxy.pool import ConnectionPool, TooBusy
from rota.api.proxy.visits import Holder
from rota.api.service import Service
from rota.core.errors import RotaError, Unavailable
from rota.core.model.job import JobId
from rota.live.intake.audit_entry import audit_entry
from rota.live.intake.requests import Conflict, NotFound
from rota.store.run_folder import attempt_folder

LOST_RIGHT = 4401


class JobForwarding:
    """The way from the manager to web servers in jobs."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._pool = ConnectionPool()
        self._limits = ProxyLimits(service.call_limits)

    async def running(self, place: ProxyPlace, holder: Holder) -> Any:
        """Return the record of a running job that a caller may reach; raises a `RotaError` for others.

        The right is that of `rota exec`: the job's owner, maintainers of its tenant, admins.
        """
        caller = holder()
        if self._service.end_now is None:
            raise RotaError("proxy: this manager runs no tasks of its own; use kubectl port-forward")
        row = await visible(self._service, caller, place.job_id)
        caller.must_act_on(row.tenant, row.owner, place.job_id)
        if row.state != "running":
            raise Conflict(f"job {place.job_id} is {row.state}; only running jobs have pages")
        return row

    async def audit(self, place: ProxyPlace, caller: Principal) -> None:
        """Record that a caller reaches a place."""
        entry = audit_entry(caller.asker, "proxy-open", place.job_id, str(place))
        await asyncio.to_thread(self._service.audit.append, [entry])

    async def forward(
        self,
        scope: Any,
        receive: Receive,
        send: Send,
        place: ProxyPlace,
        holder: Holder,
        caller: str,
        target: bytes,
        headers: Headers,
        *,
        direct: bool,
    ) -> None:
        """Carry a request or a socket to its end, or to that of the caller's right."""
        is_socket = scope["type"] == "websocket"
        async with self._limits.turn(caller, is_socket=is_socket):
            row = await self.running(place, holder)
            folder = attempt_folder(self._service.home, JobId(row.id), max(row.attempt, 1)) / str(place.task)
            if not await asyncio.to_thread(folder.exists):
                raise NotFound(f"job {place.job_id}: there is no task {place.task}")
            if is_socket:
                work: Any = self._socket(scope, receive, send, place, folder, target, headers)
            else:
                work = self._request(scope, receive, send, place, folder, target, headers, direct=direct)
            await self._while_allowed(work, row, holder, send, is_socket=is_socket)

    async def _while_allowed(
        self, work: Coroutine[Any, Any, None], row: Any, holder: Holder, send: Send, *, is_socket: bool
    ) -> None:
        """Do the work until it is done or the caller has lost its right."""

        def is_valid() -> bool:
            try:
                return holder().may_act_on(row.tenant, row.owner)
            except RotaError:
                return False

        task = asyncio.create_task(work)
        is_lost = asyncio.Event()
        stop = self._service.watch.add(is_valid, is_lost.set)
        lost = asyncio.create_task(is_lost.wait())
        try:
            await asyncio.wait((task, lost), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
                return
            task.cancel()
            await asyncio.wait((task,))
            if is_socket:
                await send({"type": "websocket.close", "code": LOST_RIGHT})
        finally:
            stop()
            for each in (task, lost):
                each.cancel()
            await asyncio.wait((task, lost))

    async def _request(
        self,
        scope: Any,
        receive: Receive,
        send: Send,
        place: ProxyPlace,
        folder: Path,
        target: bytes,
        headers: Headers,
        *,
        direct: bool,
    ) -> None:
        request = ForwardedRequest(scope, receive, send, target=target, headers=headers)
        try:
            await request.run(self._pool, (folder, place), direct=direct)
        except TooBusy:
            raise Unavailable(f"all connections to {place} of job {place.job_id} are in use; try again") from None
        except BadAnswer as error:
            raise Unavailable(f"{place} of job {place.job_id}: {error}") from None

    async def _socket(
        self,
        scope: Any,
        receive: Receive,
        send: Send,
        place: ProxyPlace,
        folder: Path,
        target: bytes,
        headers: Headers,
    ) -> None:
        from rota.api.proxy.sockets import ForwardedSocket

        key = (folder, place)
        try:
            connection = await self._pool.take(key, fresh=True)
        except TooBusy:
            raise Unavailable(f"all connections to {place} of job {place.job_id} are in use; try again") from None
        try:
            await ForwardedSocket(scope, receive, send, target=target, headers=headers).run(connection.stream)
        except BadAnswer as error:
            raise Unavailable(f"{place} of job {place.job_id}: {error}") from None
        finally:
            self._pool.discard(key, connection)
