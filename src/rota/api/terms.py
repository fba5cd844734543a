"""A server whose state is rebuilt from its cluster term after term: what Rota on Kubernetes and on Slurm share."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.api.guard.listening import is_loopback, listen
from rota.api.guard.term_switch import TermSwitch
from rota.api.identity.setup import AccessParts, open_access, write_first_token
from rota.api.limits.http_server import HttpServer, http_config
from rota.api.limits.values import most_connections, raise_descriptor_limit
from rota.api.serve import only_one
from rota.api.service import Service
from rota.files.up_file import LimitsPart
from rota.live.health.cluster_health import ClusterHealth
from rota.live.intake.requests import Requests
from rota.live.loop.boot import Scheduling
from rota.live.loop.control import Control
from rota.live.truth.keeper import ForecastKeeper
from rota.live.truth.summary import Truth
from rota.live.views.overview import ManagerOverview
from rota.live.workers.forecast_worker import ForecastWorker
from rota.store.database import open_database
from rota.store.records import Records

if TYPE_CHECKING:
    from rota.drivers.kubernetes.sessions.pods import PodSessions


@dataclass(frozen=True, slots=True, kw_only=True)
class TermServer:
    """What lasts over the terms: records, the rights of users, and where requests arrive."""

    records: Records
    parts: AccessParts
    listening: socket.socket
    switch: TermSwitch


@contextmanager
def open_term_server(
    home: Path, address: tuple[str, int], say: Callable[[str], None], *, database: str | None, require_token: bool
) -> Iterator[TermServer]:
    """Open the data folder and the address; a first token is written to a file."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    host, port = address
    with only_one(home), contextlib.closing(listen(host, port)) as listening:
        opened = open_database(database or home / "rota.db")
        try:
            parts = open_access(opened, home, required=require_token or not is_loopback(host))
            if parts.access.needs_first_token:
                path = write_first_token(parts.access, home)
                say(f"the first admin token is in {path}; keep it safe, and delete the file")
            yield TermServer(records=Records(opened), parts=parts, listening=listening, switch=TermSwitch())
        finally:
            opened.dispose()


async def answer_during(
    work: Coroutine[Any, Any, None],
    server: TermServer,
    ready: Callable[[], None],
    certificate: Path | None = None,
    key: Path | None = None,
) -> None:
    """Answer requests while the work goes on: until a signal, or until the work fails.

    `ready` is called when signals are heeded and requests arrive.
    """
    most = most_connections(LimitsPart().connections, raise_descriptor_limit(), 0)
    answering = HttpServer(http_config(server.switch, certificate, key, proxy_headers=False), most)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, answering.handle_exit, number, None)
    http = asyncio.create_task(answering.serve(sockets=[server.listening]))
    ready()
    working = asyncio.create_task(work)
    try:
        await asyncio.wait((working, http), return_when=asyncio.FIRST_COMPLETED)
        if working.done() and (error := working.exception()) is not None:
            raise _first_cause(error)
    finally:
        answering.should_exit = True
        working.cancel()
        await asyncio.wait((working,))
        await http


def _first_cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def work_until(end: Coroutine[Any, Any, object], parts: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Do all parts of the work at once until the end; a part that fails ends the others."""
    async with asyncio.TaskGroup() as group:
        work = [group.create_task(part) for part in parts]
        await end
        for each in work:
            each.cancel()


async def result_of(work: asyncio.Future[None]) -> None:
    """Wait for work that must not be cancelled with those that wait for it."""
    await asyncio.shield(work)


async def end_loop(loop: asyncio.Task[None]) -> None:
    """Cancel a loop and wait until it has ended; what made it fail is raised."""
    loop.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await loop


def term_service(
    server: TermServer,
    control: Control,
    requests: Requests,
    scheduling: Scheduling,
    forecasts: ForecastKeeper,
    source: ForecastWorker,
    *,
    home: Path,
    limits: str,
    counters: Callable[[], Mapping[str, tuple[str, int]]],
    health: ClusterHealth | None = None,
    pods: PodSessions | None = None,
) -> Service:
    """What answers requests during a term."""
    records, parts = server.records, server.parts
    return Service(
        control=control,
        requests=requests,
        records=records,
        access=parts.access,
        audit=parts.audit,
        watch=parts.watch,
        refusals=parts.refusals,
        logins=parts.logins,
        home=home,
        scheduling=scheduling,
        lookout=ManagerOverview(records, control, scheduling),
        limits=limits,
        truth=Truth(records, scheduling, forecasts),
        more_counters=counters,
        more_nodes=source.more_nodes,
        cluster_health=health,
        pods=pods,
    )
