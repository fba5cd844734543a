"""Runs a manager: database, loop, driver and HTTP in one process, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rota import __version__
from rota.api.access import Access, AccessRole
from rota.api.app import make_app
from rota.api.limits.asgi import Asgi
from rota.api.limits.http_server import HttpServer, http_config
from rota.api.limits.values import Limits, most_connections, raise_descriptor_limit
from rota.api.service import Service
from rota.core.errors import RotaError, Unavailable
from rota.drivers.local.attempt_controller import AttemptController
from rota.drivers.local.cgroup import NoCgroups
from rota.drivers.local.driver import LocalDriver
from rota.drivers.local.machine import refuse_what_cannot_be
from rota.drivers.local.paced_starts import PacedStarts, refuse_too_many_tasks, usual_most_tasks
from rota.drivers.local.settings import Settings
from rota.files.job_shape import JobFile
from rota.live.estimates.learning import BOUND, Learning
from rota.live.estimates.oom_retry import largest
from rota.live.loop.boot import Scheduling, boot
from rota.live.loop.control import Control
from rota.live.loop.quotas import SubmissionQuotas
from rota.live.loop.requests import Requests
from rota.live.loop.retention import keep_tidy
from rota.live.views.overview import ManagerOverview
from rota.live.workers.forecast_worker import ForecastWorker
from rota.live.workers.retraining import Retraining, with_learned
from rota.policies import find_policy
from rota.sdk.place import ManagerAddress, remove_sign, write_sign
from rota.store.database import open_database
from rota.store.records import Records
from rota.store.tokens import Tokens

log = logging.getLogger("rota.api")
SWITCH_S = 0.0005
"""How long the loop may delay a thread that has just made a batch durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a manager."""

    scheduling: Scheduling
    settings: Settings
    host: str = "127.0.0.1"
    port: int = 7650
    database: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    require_token: bool = False
    keep_s: float = 30 * 86400.0
    """How long jobs are kept after their end."""
    estimate_bound: float = BOUND
    """The largest measured error up to which an estimate replaces `auto`."""
    call_limits: Limits = field(default_factory=Limits)
    """What each caller may take."""
    most_tasks: int | None = None
    """Tasks without devices that run at once; None: by the number of CPUs."""
    pages: Callable[[Service], Asgi] | None = None
    """Makes the application for requests outside of the API: the dashboard."""


def serve(options: Options, say: Callable[[str], None], show: Callable[[str], None]) -> None:
    """Run until a signal; the address is reported once requests are taken. A first token is shown, never logged."""
    sys.setswitchinterval(SWITCH_S)
    home = options.settings.home
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with only_one(home):
        listening = listen(options.host, options.port)
        database = open_database(options.database or home / "rota.db")
        access = Access(Tokens(database), required=options.require_token or not is_loopback(options.host))
        if access.needs_first_token:
            _, secret = access.create("first", AccessRole.ADMIN, (), None, "local")
            show(f"this is the first admin token, shown only now: {secret}")
        try:
            run_loop(_serve(options, Records(database), access, listening, say))
        finally:
            database.dispose()
            listening.close()


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on uvloop, or on asyncio's own loop without it."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


async def _serve(
    options: Options, records: Records, access: Access, listening: socket.socket, say: Callable[[str], None]
) -> None:
    options = replace(options, scheduling=with_learned(options.scheduling, options.settings.home))
    control = boot(records, options.scheduling, LocalDriver.contract)
    assert control.present is not None, "boot knows the cluster"
    forecasts = ForecastWorker(options.scheduling, records.url)
    learning = _learning(options, records, control)
    starts = PacedStarts(
        options.settings.home, control.answered, asyncio.get_running_loop().call_later, options.most_tasks
    )
    starts.attach(
        AttemptController(control.present.nodes, options.settings, starts.answered, overlaps=control.engine.overlaps)
    )
    driver = LocalDriver(starts, control.state, control.kept)
    server = _http_server(options, _service(options, records, access, control, forecasts, learning))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, server.handle_exit, number, None)
    retraining = Retraining(control, options.scheduling, records.url, options.settings.home)
    loop = asyncio.create_task(control.run(driver))
    http = asyncio.create_task(server.serve(sockets=[listening]))
    upkeep = [
        asyncio.create_task(work)
        for work in (
            control.watch.run(),
            keep_tidy(records, options.settings.home, options.keep_s),
            retraining.run(),
            learning.run(),
        )
    ]
    _announce(options, listening, say)
    done, _ = await asyncio.wait((loop, http), return_when=asyncio.FIRST_COMPLETED)
    log.info("stopping")
    server.should_exit = True
    await http
    for each in upkeep:
        each.cancel()
    driver.close()
    await retraining.close()
    await forecasts.close()
    await learning.close()
    if loop in done:
        loop.result()
    loop.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await loop
    remove_sign()
    log.info("stopped")


def _learning(options: Options, records: Records, control: Control) -> Learning:
    learning = Learning(
        records,
        options.settings.home,
        options.estimate_bound,
        predicts_use=find_policy(options.scheduling.policy)[0].predicts_use,
        largest=lambda field: largest(field, control.state.inventory.nodes),
    )
    control.listen(learning.noticed)
    return learning


def _service(
    options: Options,
    records: Records,
    access: Access,
    control: Control,
    forecasts: ForecastWorker,
    learning: Learning,
) -> Service:
    most_tasks = options.most_tasks or usual_most_tasks()

    def refuse(file: JobFile) -> None:
        refuse_what_cannot_be(file)
        refuse_too_many_tasks(file, most_tasks)

    quotas = SubmissionQuotas(control, options.call_limits.job_quota) if access.required else None
    return Service(
        control=control,
        requests=Requests(control, records, refuse, forecasts, learning, quotas=quotas),
        records=records,
        access=access,
        home=options.settings.home,
        scheduling=options.scheduling,
        lookout=ManagerOverview(records, control, options.scheduling),
        limits=str(options.settings.limits),
        learning=learning,
        call_limits=options.call_limits,
    )


def _http_server(options: Options, service: Service) -> HttpServer:
    app = make_app(service, None if options.pages is None else options.pages(service))
    tasks = options.most_tasks or usual_most_tasks()
    most = most_connections(options.call_limits.connections, raise_descriptor_limit(), tasks)
    return HttpServer(http_config(app, options.certificate, options.key), most)


def _announce(options: Options, listening: socket.socket, say: Callable[[str], None]) -> None:
    """Report the address to the user, the log, and commands on this machine."""
    url = url_of(listening, secure=options.certificate is not None)
    cacert = None if options.certificate is None else str(options.certificate.absolute())
    write_sign(
        ManagerAddress(url=url_of(listening, secure=cacert is not None, near=True), cacert=cacert),
        options.settings.home,
    )
    say(f"rota manages this machine at {url}; data in {options.settings.home}")
    log.info("ready", extra=_about(options, url))


def _about(options: Options, url: str) -> dict[str, object]:
    limits = options.settings.limits
    return {
        "url": url,
        "pid": os.getpid(),
        "version": __version__,
        "data": str(options.settings.home),
        "policy": options.scheduling.policy,
        "nodes": len(options.scheduling.cluster.nodes),
        "limits": str(limits),
        "limits_why": limits.why if isinstance(limits, NoCgroups) else None,
    }


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(1024)
    except (OSError, OverflowError) as error:
        raise RotaError(
            f"{host}:{port} can't be listened on: {error}; choose another with --host and --port"
        ) from error
    return listening


def url_of(listening: socket.socket, *, secure: bool, near: bool = False) -> str:
    """Return the URL of a socket; `near`: as seen from this machine."""
    host, port = listening.getsockname()[:2]
    if near:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if secure else 'http'}://{shown}:{port}"


@contextlib.contextmanager
def only_one(home: Path) -> Iterator[None]:
    """Lock a folder: a second manager would start all tasks twice."""
    lock = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Unavailable(f"a manager runs already for {home}; use it, or give another folder with --data") from None
    try:
        yield
    finally:
        os.close(lock)
