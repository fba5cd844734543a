"""Runs a manager: database, loop, driver and HTTP in one process, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from rota import __version__
from rota.api.app import make_app
from rota.api.data.setup import refusal
from rota.api.gpu.setup import gpu_monitor, gpu_upkeep
from rota.api.guard.listening import is_loopback, listen, url_of
from rota.api.identity.setup import AccessParts, open_access, write_first_token
from rota.api.limits.asgi import Pages
from rota.api.limits.http_server import CLOSE_S, HttpServer, http_config
from rota.api.limits.values import job_quota, most_connections, raise_descriptor_limit
from rota.api.parts import upkeep_of, with_parts
from rota.api.proxy.places import LOCAL_DOMAIN
from rota.api.service import Service
from rota.core.errors import Unavailable
from rota.core.messages.decisions import Cause
from rota.core.messages.events import JobCancelled
from rota.core.model.cluster import Node
from rota.core.model.job import JobId
from rota.drivers.local.attempt_controller import AttemptController
from rota.drivers.local.cgroup import Cgroups
from rota.drivers.local.confinement.attempt_folders import make_home
from rota.drivers.local.driver import Attempts, LocalDriver
from rota.drivers.local.gpu.suspension import SuspendingAttempts
from rota.drivers.local.paced_starts import PacedStarts, usual_most_tasks
from rota.drivers.local.settings import Settings
from rota.files.alerts.settings import AlertsPart
from rota.files.notify.settings import NotificationsPart
from rota.files.oidc_file import OidcFile
from rota.files.up_file import HealthPart, LimitsPart
from rota.live.estimates.learning import BOUND, Learning
from rota.live.estimates.oom_retry import largest
from rota.live.gpus.monitor import GpuMonitor
from rota.live.health.watch import HealthWatch
from rota.live.intake.quotas import SubmissionQuotas
from rota.live.intake.requests import Requests
from rota.live.intake.tenant_registry import TenantRegistry, TenantSettings
from rota.live.loop.boot import Scheduling, boot
from rota.live.loop.control import Control
from rota.live.loop.entry import LoopEntry
from rota.live.loop.kept_folders import KeptFolders
from rota.live.loop.progress_watch import from_files, watch_progress
from rota.live.loop.retention import keep_tidy
from rota.live.loop.storage import in_background, through_outages
from rota.live.truth.keeper import ForecastKeeper
from rota.live.truth.summary import Truth
from rota.live.views.overview import ManagerOverview
from rota.live.workers.forecast_worker import ForecastWorker
from rota.live.workers.retraining import Retraining, with_learned
from rota.policies import find_policy
from rota.sdk.place import ManagerAddress, remove_sign, write_sign
from rota.store import clock
from rota.store.damage import refuse_older_than_folders
from rota.store.database import open_database
from rota.store.disk_reserve import DiskReserve
from rota.store.records import Records
from rota.store.run_folder import stop_causes, tasks_ended_s
from rota.store.sealing import load_sealer, seal_stored

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
    keep_bytes: int = 0
    """What the folders of ended jobs may hold together; 0 is no limit."""
    estimate_bound: float = BOUND
    """The largest measured error up to which an estimate replaces `auto`."""
    call_limits: LimitsPart = field(default_factory=LimitsPart)
    """What each caller may take."""
    health: HealthPart = field(default_factory=HealthPart)
    """How the health of nodes is checked."""
    notifications: NotificationsPart = field(default_factory=NotificationsPart)
    """How messages are sent."""
    alerts: AlertsPart = field(default_factory=AlertsPart)
    """The rules of alerts."""
    most_tasks: int | None = None
    """Tasks without devices that run at once; None: by the number of CPUs."""
    tenants: TenantSettings = field(default_factory=TenantSettings)
    """Tenants and caps of priorities."""
    pages: Callable[[Service], Pages] | None = None
    """Makes the application for requests outside of the API: the dashboard."""
    users: Path | None = None
    """The file of local users; by default `users.json` beside the database."""
    oidc: OidcFile | None = None
    url: str | None = None
    """The address under which browsers reach the manager, for single sign-on."""
    trust_proxy: bool = False
    proxy_domain: str | None = None
    """The domain of the host names of pages of jobs."""
    """Whether a reverse proxy on this machine says where requests come from."""

    @property
    def domain(self) -> str | None:
        """The domain of the pages of jobs; on loopback there is one without any setting."""
        return self.proxy_domain or (LOCAL_DOMAIN if is_loopback(self.host) else None)


def serve(options: Options, say: Callable[[str], None]) -> None:
    """Run until a signal; the address is reported once requests are taken. A first token is written to a file."""
    sys.setswitchinterval(SWITCH_S)
    home = options.settings.home
    make_home(options.settings)
    with only_one(home), contextlib.closing(listen(options.host, options.port)) as listening:
        clock.go_on(home)
        database = open_database(options.database or home / "rota.db")
        try:
            parts = _access(options, database, listening)
            if parts.access.needs_first_token:
                path = write_first_token(parts.access, home)
                say(f"the first admin token is in {path}; keep it safe, and delete the file")
            sealer = load_sealer(home)
            if sealed := seal_stored(database, sealer):
                log.info("secrets-sealed", extra={"jobs": sealed})
            run_loop(_serve(options, Records(database, sealer), parts, listening, say))
            log.info("stopped")
        except DBAPIError as error:  # before it took requests: afterwards the loop bridges such a time
            raise Unavailable(f"the database can't be used: {' '.join(str(error.orig).split())}") from error
        finally:
            database.dispose()


def _access(options: Options, database: Engine, listening: socket.socket) -> AccessParts:
    return open_access(
        database,
        options.settings.home,
        required=options.require_token or not is_loopback(options.host),
        users=options.users,
        oidc=options.oidc,
        public_url=options.url or url_of(listening, secure=options.certificate is not None, near=True),
    )


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on uvloop, or on asyncio's own loop without it."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


async def _serve(
    options: Options, records: Records, parts: AccessParts, listening: socket.socket, say: Callable[[str], None]
) -> None:
    options = replace(options, scheduling=with_learned(options.scheduling, options.settings.home))
    refuse_older_than_folders(records.next_seq(), options.settings.home)
    control = _booted(options, records)
    clock.go_on(options.settings.home, control.state.now_s)
    _repeat_cancellations(control, options.settings.home)
    assert control.present is not None, "boot knows the cluster"
    source = ForecastWorker(options.scheduling, records.url)
    forecasts = ForecastKeeper(control, records, source, options.scheduling.policy)
    learning = _learning(options, records, control)
    health = HealthWatch(control, options.health, options.settings)
    later = asyncio.get_running_loop().call_later
    starts = PacedStarts(options.settings.home, health.failures.answered, later, options.most_tasks)
    starts.check_first = health.check_first
    attempts, controller = _attempts(options.settings, control, control.present.nodes, starts)
    starts.attach(attempts)
    driver = LocalDriver(starts, control.state, control.kept)
    monitor = health.attached(gpu_monitor(options.settings, control))
    service = _service(options, records, parts, control, forecasts, learning, monitor, health)
    service = with_parts(service, options.notifications, options.alerts, options.domain)
    end_now = partial(controller.stop, cause=Cause.CANCELLED, force=True)
    server = _http_server(options, replace(service, end_now=end_now))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, server.handle_exit, number, None)
    retraining = Retraining(control, options.scheduling, records.url, options.settings.home)
    loop = asyncio.create_task(control.run(driver))
    http = asyncio.create_task(server.serve(sockets=[listening]))
    upkeep = [
        in_background(work)
        for work in (
            control.watch.run(),
            keep_tidy(records, options.settings.home, options.keep_s, _kept_folders(options, records, control)),
            watch_progress(control.state, from_files(options.settings.home), control.tell),
            *map(through_outages, (retraining.run, learning.run, forecasts.run, *upkeep_of(service))),
            control.storage.watch(),
            health.run(),
            *gpu_upkeep(options.settings, control, monitor, controller),
            *parts.upkeep(),
        )
    ]
    _announce(options, listening, say)
    done, _ = await asyncio.wait((loop, http), return_when=asyncio.FIRST_COMPLETED)
    log.info("stopping")
    server.should_exit = True
    await http
    for each in upkeep:
        each.cancel()
    await asyncio.wait(upkeep, timeout=CLOSE_S)
    driver.close()
    await asyncio.gather(retraining.close(), forecasts.close(), learning.close())
    if loop in done:
        loop.result()
    loop.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await loop
    remove_sign()


def _kept_folders(options: Options, records: Records, control: Control) -> KeptFolders:
    state = control.state
    return KeptFolders(options.settings.home, options.keep_bytes, records, lambda job_id: JobId(job_id) in state.jobs)


def _attempts(
    settings: Settings, control: Control, nodes: Sequence[Node], starts: PacedStarts
) -> tuple[Attempts, AttemptController]:
    """What runs the tasks of attempts, and its innermost part; on GPUs that can be, jobs are suspended, not stopped."""
    if settings.gpu is None:
        controller = AttemptController(nodes, settings, starts.answered, overlaps=control.engine.overlaps)
        return controller, controller
    later = asyncio.get_running_loop().call_later
    suspending = SuspendingAttempts(settings, control.state, nodes, starts.answered, later)
    controller = AttemptController(
        nodes, settings, suspending.answered, overlaps=control.engine.overlaps, noticed=suspending.noticed
    )
    suspending.attach(controller)
    return suspending, controller


def _booted(options: Options, records: Records) -> Control:
    home = options.settings.home
    ends = partial(tasks_ended_s, home)
    return boot(records, options.scheduling, LocalDriver.contract, DiskReserve(home), ends)


def _repeat_cancellations(control: Control, home: Path) -> None:
    """Cancel jobs whose cancellation was carried out but could not be stored before the manager ended."""
    for job_id, live in control.state.jobs.items():
        stopped = stop_causes(home, job_id, control.kept[job_id].attempt) if live.placement is not None else set()
        if Cause.CANCELLED.value in stopped and live.stopping is None:
            control.happened(LoopEntry([JobCancelled(job_id)]))


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
    parts: AccessParts,
    control: Control,
    forecasts: ForecastKeeper,
    learning: Learning,
    monitor: GpuMonitor | None,
    health: HealthWatch,
) -> Service:
    most_tasks = options.most_tasks or usual_most_tasks()
    tenants = TenantRegistry(
        control, records, options.tenants, also=(name for token in parts.access.all() for name in token.tenants)
    )
    quotas = SubmissionQuotas(control, job_quota(options.call_limits)) if parts.access.required else None
    return Service(
        control=control,
        requests=Requests(
            control,
            records,
            refusal(options.settings, most_tasks, options.notifications.refuse),
            forecasts,
            learning,
            account_of=options.settings.accounts.account_of,
            tenants=tenants,
            quotas=quotas,
        ),
        records=records,
        access=parts.access,
        audit=parts.audit,
        watch=parts.watch,
        refusals=parts.refusals,
        logins=parts.logins,
        home=options.settings.home,
        scheduling=options.scheduling,
        lookout=ManagerOverview(records, control, options.scheduling, monitor),
        limits=str(options.settings.limits),
        defaults=options.settings.defaults if isinstance(options.settings.limits, Cgroups) else None,
        learning=learning,
        truth=Truth(records, options.scheduling, forecasts),
        call_limits=options.call_limits,
        tenants=tenants,
        gpus=monitor,
        health=health,
    )


def _http_server(options: Options, service: Service) -> HttpServer:
    app = make_app(service, None if options.pages is None else options.pages(service))
    tasks = options.most_tasks or usual_most_tasks()
    most = most_connections(options.call_limits.connections, raise_descriptor_limit(), tasks)
    config = http_config(app, options.certificate, options.key, proxy_headers=options.trust_proxy)
    return HttpServer(config, most)


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
        "limits_why": limits.why,
        "isolation": str(options.settings.confinement),
        "isolation_why": options.settings.confinement.why,
    }


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
