"""Runs a manager: database, loop, driver and HTTP in one process, until it is told to stop."""

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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvicorn

from rota import __version__
from rota.api.access import Access, AccessRole
from rota.api.app import Asgi, make_app
from rota.api.service import Service
from rota.core.errors import RotaError, Unavailable
from rota.drivers.local.attempt_controller import AttemptController
from rota.drivers.local.cgroup import NoCgroups
from rota.drivers.local.driver import LocalDriver
from rota.drivers.local.machine import refuse_what_cannot_be
from rota.drivers.local.settings import Settings
from rota.live.estimates.learning import BOUND, Learning
from rota.live.estimates.oom_retry import largest
from rota.live.loop.boot import Scheduling, boot
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
CLOSE_S = 2
SWITCH_S = 0.0005
"""How long the loop may keep a thread waiting that has just made something durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the manager is run."""

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
    """Up to which measured error an estimate takes the place of `auto`."""
    pages: Callable[[Service], Asgi] | None = None
    """Makes what answers requests that are not for the API: the dashboard."""


def serve(options: Options, say: Callable[[str], None], show: Callable[[str], None]) -> None:
    """Run until a signal; where it answers is said once requests are taken. A first token is shown, never logged."""
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
    """Run until it is done, on the fastest loop there is."""
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
    foresight = ForecastWorker(options.scheduling, records.url)
    predicts_use = find_policy(options.scheduling.policy)[0].predicts_use
    learning = Learning(
        records,
        options.settings.home,
        options.estimate_bound,
        predicts_use=predicts_use,
        largest=lambda field: largest(field, control.state.inventory.nodes),
    )
    control.listen(learning.noticed)
    assert control.present is not None, "boot knows the cluster"
    attempts = AttemptController(
        control.present.nodes, options.settings, control.answered, overlaps=control.engine.overlaps
    )
    driver = LocalDriver(attempts, control.state, control.kept)
    service = Service(
        control=control,
        requests=Requests(control, records, refuse_what_cannot_be, foresight, learning),
        records=records,
        access=access,
        home=options.settings.home,
        scheduling=options.scheduling,
        lookout=ManagerOverview(records, control, options.scheduling),
        limits=str(options.settings.limits),
        learning=learning,
    )
    config = uvicorn.Config(
        make_app(service, None if options.pages is None else options.pages(service)),
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=CLOSE_S,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
        server_header=False,
    )
    server = HttpServer(config)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, server.handle_exit, number, None)
    url = url_of(listening, secure=options.certificate is not None)
    loop = asyncio.create_task(control.run(driver))
    http = asyncio.create_task(server.serve(sockets=[listening]))
    tidying = asyncio.create_task(keep_tidy(records, options.settings.home, options.keep_s))
    tutor = Retraining(control, options.scheduling, records.url, options.settings.home)
    tutoring = asyncio.create_task(tutor.run())
    teaching = asyncio.create_task(learning.run())
    cacert = None if options.certificate is None else str(options.certificate.absolute())
    write_sign(
        ManagerAddress(url=url_of(listening, secure=cacert is not None, near=True), cacert=cacert),
        options.settings.home,
    )
    say(f"rota manages this machine at {url}; data in {options.settings.home}")
    log.info("ready", extra=_about(options, url))
    done, _ = await asyncio.wait((loop, http), return_when=asyncio.FIRST_COMPLETED)
    log.info("stopping")
    server.should_exit = True
    await http
    tidying.cancel()
    tutoring.cancel()
    teaching.cancel()
    driver.close()
    await tutor.close()
    await foresight.close()
    await learning.close()
    if loop in done:
        loop.result()
    loop.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await loop
    remove_sign()
    log.info("stopped")


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


class HttpServer(uvicorn.Server):
    """Uvicorn's server; the signals are ours, so that a stop that was asked for is a good end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections."""
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
    """Where it answers; `near`: as this machine reaches it."""
    host, port = listening.getsockname()[:2]
    if near:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if secure else 'http'}://{shown}:{port}"


@contextlib.contextmanager
def only_one(home: Path) -> Iterator[None]:
    """One manager for one folder: a second would start everything twice."""
    lock = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Unavailable(f"a manager runs already for {home}; use it, or give another folder with --data") from None
    try:
        yield
    finally:
        os.close(lock)
