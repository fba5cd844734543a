"""Runs Rota on a Slurm cluster: as a twin that observes, or as the one that decides; with HTTP, until it is stopped.

A term is the time in which the state follows Slurm step by step. When a job runs that Rota did not start, or nodes
come and go, the term ends and the next one rebuilds its state from Slurm, as after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rota.api.app import make_app
from rota.api.guard.listening import url_of
from rota.api.limits.asgi import Asgi, Pages
from rota.api.serve import run_loop
from rota.api.service import Service
from rota.api.terms import TermServer, answer_during, end_loop, open_term_server, result_of, term_service, work_until
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import JobState
from rota.drivers.slurm import marks
from rota.drivers.slurm.commands import UNREADABLE, SlurmCommands, SlurmReader
from rota.drivers.slurm.driver import SlurmDriver
from rota.drivers.slurm.observer import SlurmObserver
from rota.drivers.slurm.printed.records import SlurmJob
from rota.drivers.slurm.rest import SlurmRest
from rota.drivers.slurm.slurm_settings import SlurmSettings
from rota.drivers.slurm.translate import is_simple
from rota.drivers.slurm.view import SlurmView
from rota.drivers.slurm.watchdog import Heartbeat
from rota.files.cluster_file import read_cluster_file
from rota.files.job_shape import JobFile
from rota.live.intake.observed_requests import ObservedRequests
from rota.live.intake.requests import Requests
from rota.live.loop.boot import Scheduling
from rota.live.loop.control import Control
from rota.live.loop.entry import News
from rota.live.loop.retention import keep_tidy
from rota.live.reservations.reservation import NodeReservation
from rota.live.reservations.stored import reservations_in
from rota.live.slurm.slurm_history import import_history
from rota.live.slurm.slurm_loop import Pace, SlurmLoop, boot_on_slurm, read_cluster
from rota.live.slurm.slurm_reservations import SlurmReservations, read_reservations
from rota.live.slurm.slurm_upkeep import SlurmUpkeep
from rota.live.truth.keeper import ForecastKeeper
from rota.live.workers.forecast_worker import ForecastWorker
from rota.sdk.place import ManagerAddress, remove_sign, write_sign
from rota.store import clock

log = logging.getLogger("rota.api")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOptions:
    """How Rota is run on a Slurm cluster."""

    home: Path
    decides: bool = False
    """Whether Rota decides; otherwise it observes and writes nothing to Slurm."""
    config: Path | None = None
    """Slurm's configuration file; None: where Slurm finds it itself."""
    rest: tuple[str, Path | None] | None = None
    """Where slurmrestd answers, and a file with a token for it; None: what is read comes from Slurm's commands."""
    policy: str = "easy"
    """What decides; for a twin, what forecasts assume of Slurm."""
    placement: str | None = None
    tenancy: str = "none"
    guarantees: Path | None = None
    """A HiveD file, or a cluster file with tenants, for guarantees that Slurm's accounts can't express."""
    history: str | None = None
    """Since when the accounting teaches forecasts what jobs took, as sacct takes it; None: not at all."""
    pace: Pace = field(default_factory=Pace)
    host: str = "127.0.0.1"
    port: int = 7650
    require_token: bool = False
    database: str | None = None
    keep_s: float = 30 * 86400.0
    pages: Callable[[Service], Pages] | None = None


def serve_slurm(options: SlurmOptions, say: Callable[[str], None]) -> None:
    """Run until a signal. A first token is written to a file."""
    address, kept, asks = (options.host, options.port), options.database, options.require_token
    with open_term_server(options.home, address, say, database=kept, require_token=asks) as server:
        clock.go_on(options.home)
        run_loop(_SlurmRun(options, server, say).main())


class _SlurmRun:
    """One process: serves term after term."""

    def __init__(self, options: SlurmOptions, server: TermServer, say: Callable[[str], None]) -> None:
        self._options = options
        self._server = server
        self._records = server.records
        self._say = say
        self._commands = SlurmCommands(options.config)
        self._reader: SlurmReader = self._commands
        if options.rest is not None:
            self._reader = SlurmRest(*options.rest)
        self._heartbeat = Heartbeat(options.home)

    async def main(self) -> None:
        """Serve until a signal or an error."""
        try:
            await answer_during(self._terms(), self._server, self._tell_address)
        finally:
            remove_sign()
            log.info("stopped")

    def _tell_address(self) -> None:
        listening, home = self._server.listening, self._options.home
        write_sign(ManagerAddress(url=url_of(listening, secure=False, near=True)), home)
        self._say(f"rota answers at {url_of(listening, secure=False)}; data in {home}")

    async def _terms(self) -> None:
        if self._options.history is not None:
            await import_history(self._commands, self._records, self._options.history)
        async with asyncio.TaskGroup() as group:
            group.create_task(keep_tidy(self._records, self._options.home, self._options.keep_s))
            for each in self._server.parts.upkeep():
                group.create_task(each)
            while True:
                await self._term()

    async def _term(self) -> None:
        view = SlurmView()
        read, scheduling = await self._scheduling(view)
        driver: SlurmObserver | SlurmDriver
        reservations: SlurmReservations | None = None
        if self._options.decides:
            await self._hold_released(view)
            priorities = await self._commands.qos()
            driver = SlurmDriver(self._commands, view, priorities)
            control = boot_on_slurm(self._records, driver, scheduling, _is_ours, qos=priorities)
            driver.attach([str(node.id) for node in scheduling.cluster.nodes], clock.now_s)
            control.listen(_cancelling(control, driver))
            driver.note_held(control.state)
            await read_reservations(self._reader, self._records)
            reservations = SlurmReservations(control, self._records)
            reservations.take_up()
        else:
            driver = SlurmObserver(view)
            control = boot_on_slurm(self._records, driver, scheduling, lambda job: True, driver.policy)
            ended = [name for name, job in view.jobs.items() if job.has_ended]
            driver.begin(name for name in ended if self._records.job(name) is not None)
        looks = SlurmLoop(control, self._records, self._reader, driver, self._options.pace, read)
        rarely = SlurmUpkeep(control, self._records, self._reader, read, driver.outdated, reservations)
        if self._options.decides:
            looks.beat = self._heartbeat.beat
        ranking = None if self._options.decides else view.ranking
        source = ForecastWorker(scheduling, self._records.url, ranking, estimates_are_limits=True)
        forecasts = ForecastKeeper(control, self._records, source, scheduling.policy)
        looks.defer, looks.settle = forecasts.defer, forecasts.settle
        self._server.switch.now = self._application(control, scheduling, forecasts, source, looks)
        loop = asyncio.create_task(control.run(driver))
        nodes = len(read.nodes)
        log.info("ready", extra={"nodes": nodes, "jobs": len(control.state.jobs)})
        verb = "schedules" if self._options.decides else "observes"
        self._say(f"rota {verb} {nodes} nodes of Slurm with {len(control.state.jobs)} jobs")
        parts = [looks.run(), rarely.run(), forecasts.run(), control.storage.watch(), result_of(loop)]
        parts += [] if reservations is None else [reservations.run()]
        try:
            await work_until(_outdated(driver), parts)
        finally:
            await end_loop(loop)
            self._server.switch.end_term(control)
            if isinstance(driver, SlurmDriver):
                await driver.close()
            await forecasts.close()

    async def _scheduling(self, view: SlurmView) -> tuple[Cluster, Scheduling]:
        """Read Slurm until it answers; say once why it does not. Return the cluster, and as it is scheduled."""
        said = ""
        while True:
            try:
                self._reader.use(await self._settings())
                read = await read_cluster(self._reader, view, needs_accounts=self._options.tenancy != "none")
                break
            except UNREADABLE as error:
                if str(error) != said:
                    said = str(error)
                    self._say(f"Slurm can't be read yet: {said}")
                await asyncio.sleep(self._options.pace.jobs_s)
        options = self._options
        cluster = with_guarantees(read, options.guarantees)
        return read, Scheduling(
            cluster=cluster, policy=options.policy, placement=options.placement, tenancy=options.tenancy
        )

    async def _settings(self) -> SlurmSettings:
        """How Slurm counts; slurmrestd does not say it, and there may be no commands beside it."""
        try:
            return await self._commands.settings()
        except RotaError:
            if self._options.rest is None:
                raise
            return SlurmSettings()

    async def _hold_released(self, view: SlurmView) -> None:
        """Hold jobs again that a former run released and Slurm has not started; then read the queue again."""
        for job in view.jobs.values():
            if marks.is_managed(job) and job.is_pending and not marks.is_held(job):
                with contextlib.suppress(*UNREADABLE):
                    await self._commands.hold(job.id)
        with contextlib.suppress(*UNREADABLE):
            view.take(await self._commands.jobs(), clock.now_s())

    def _application(
        self,
        control: Control,
        scheduling: Scheduling,
        forecasts: ForecastKeeper,
        source: ForecastWorker,
        looks: SlurmLoop,
    ) -> Asgi:
        kind = Requests if self._options.decides else ObservedRequests
        service = term_service(
            self._server,
            control,
            kind(control, self._records, _refuse_file, forecasts, refuse_trial=lambda file: None),
            scheduling,
            forecasts,
            source,
            home=self._options.home,
            limits="enforced by Slurm",
            counters=self._counters,
        )
        service = replace(service, foreign_reservations=self._reservations)
        return make_app(service, None if self._options.pages is None else self._options.pages(service))

    def _reservations(self) -> list[NodeReservation]:
        now_s = clock.shown_s(clock.now_s())
        return [each for each in reservations_in(self._records) if each.until_s > now_s]

    def _counters(self) -> dict[str, tuple[str, int]]:
        return {
            "rota_slurm_queries": ("Commands that read from Slurm.", self._reader.queries),
            "rota_slurm_orders": ("Commands that changed something in Slurm.", self._commands.orders),
        }


def with_guarantees(cluster: Cluster, path: Path | None) -> Cluster:
    """The cluster with the guarantees of a file in the place of those of Slurm's accounts."""
    if path is None:
        return cluster
    planned = read_cluster_file(path)
    if planned.cells is None and planned.tenants is None:
        raise RotaError(f"{path}: there are no guarantees in it; give a HiveD file, or a cluster file with `tenants`")
    known = {node.id for node in cluster.nodes}
    missing = [str(node.id) for node in planned.nodes if node.id not in known]
    if planned.cells is not None and missing:
        raise RotaError(f"{path}: node {missing[0]!r} is not one of Slurm's; name its nodes as Slurm does")
    return replace(cluster, cells=planned.cells, tenants=planned.tenants or cluster.tenants)


def _is_ours(job: SlurmJob) -> bool:
    return marks.is_managed(job) and (job.holds_nodes or is_simple(job) is None)


def _cancelling(control: Control, driver: SlurmDriver) -> Callable[[Sequence[News]], None]:
    """Cancel jobs in Slurm that were cancelled here while they waited."""

    def listener(news: Sequence[News]) -> None:
        for each in news:
            job = driver.view.jobs.get(str(each.job_id))
            if each.state == JobState.CANCELLED.value and job is not None and not job.has_ended:
                driver.cancel(job.id)

    return listener


async def _outdated(driver: SlurmObserver | SlurmDriver) -> None:
    """Return when the state has to be rebuilt: a job, a node or an account is not what it was."""
    await driver.outdated.wait()


def _refuse_file(file: JobFile) -> None:
    raise RotaError("this Rota schedules jobs of a Slurm cluster; submit with `rota --slurm submit`, or sbatch")
