"""Runs Rota on a Kubernetes cluster: leadership, settings, the loop on pods, and HTTP, until it is stopped.

A term is the time under one set of settings. When they change, the term ends and the next one rebuilds its state from
the cluster, as after a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rota.api.app import make_app
from rota.api.extender import with_extender
from rota.api.guard.listening import is_loopback, url_of
from rota.api.limits.asgi import Asgi, Pages
from rota.api.serve import run_loop
from rota.api.service import Service
from rota.api.terms import TermServer, answer_during, end_loop, open_term_server, result_of, term_service, work_until
from rota.api.wire import demand_out, forecast_out
from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.drivers.kubernetes.admission.server import AdmissionOptions, AdmissionServer
from rota.drivers.kubernetes.api.client import Api
from rota.drivers.kubernetes.api.connection import Connection
from rota.drivers.kubernetes.api.informer import Informer
from rota.drivers.kubernetes.api.leadership import Leadership
from rota.drivers.kubernetes.api.rights import check_rights, needed_rights
from rota.drivers.kubernetes.driver import KubernetesDriver
from rota.drivers.kubernetes.extender import Extender
from rota.drivers.kubernetes.gangs.claims_check import RepairCount
from rota.drivers.kubernetes.gangs.cluster_facts import ClusterFacts
from rota.drivers.kubernetes.gangs.provisioning import Provisioner
from rota.drivers.kubernetes.gangs.reporter import Reporter
from rota.drivers.kubernetes.objects.job_objects import refuse_what_cannot_be
from rota.drivers.kubernetes.resources.follower import UNUSABLE, SettingsFollower
from rota.drivers.kubernetes.resources.status import QueueUse, SeenResources, StatusWriter
from rota.drivers.kubernetes.sessions.pods import PodSessions
from rota.drivers.kubernetes.settings import ClusterSettings
from rota.live.health.cluster_health import ClusterHealth
from rota.live.intake.cluster_requests import ClusterRequests
from rota.live.intake.requests import Requests
from rota.live.loop.boot import Scheduling
from rota.live.loop.control import Control
from rota.live.loop.kubernetes_loop import boot_on_pods
from rota.live.loop.progress_watch import watch_progress
from rota.live.loop.retention import keep_tidy
from rota.live.truth.keeper import ForecastKeeper
from rota.live.views.tenant_usage import TenantGuarantees, uses_of
from rota.live.workers.forecast_worker import ForecastWorker

log = logging.getLogger("rota.api")
ASK_FIRST_S = 1.0
"""How long kube-scheduler has to bind a pod with a slot before Rota does."""
LOOK_S = 1.0
"""Time between two reads of the nodes while there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How Rota is run on a cluster."""

    connection: Connection
    namespace: str
    identity: str
    pod: str | None = None
    """The name of this process's own pod, if it runs in one."""
    home: Path
    config_map: str | None = "rota"
    """The ConfigMap of the namespace that holds the settings; None: they never change."""
    given: ClusterSettings = field(default_factory=ClusterSettings)
    lease: str | None = "rota"
    """The Lease of the leading replica; None: lead without one."""
    host: str = "127.0.0.1"
    port: int = 7650
    database: str | None = None
    require_token: bool = False
    extends: bool = False
    """Whether kube-scheduler binds, and Rota only decides."""
    extender_token: str | None = None
    """What kube-scheduler has to send; None on loopback only."""
    certificate: Path | None = None
    key: Path | None = None
    admission: AdmissionOptions | None = None
    """Where the admission webhook answers; None: there is none."""
    resources: bool = True
    """Whether Queue, Topology and SchedulingPolicy objects are followed."""
    keep_s: float = 30 * 86400.0
    pages: Callable[[Service], Pages] | None = None


def serve_cluster(options: ClusterOptions, say: Callable[[str], None]) -> None:
    """Run until a signal, or until leadership is lost. A first token is written to a file."""
    if options.extends and options.extender_token is None and not is_loopback(options.host):
        raise RotaError(
            f"host is {options.host!r}, where others can connect: give kube-scheduler's token with --token-file, "
            "and a certificate with --tls-cert and --tls-key"
        )
    address, kept, asks = (options.host, options.port), options.database, options.require_token
    with open_term_server(options.home, address, say, database=kept, require_token=asks) as server:
        run_loop(_ReplicaRun(options, server, say).main())


class _ReplicaRun:
    """One replica: acquires leadership, serves terms, releases leadership."""

    def __init__(self, options: ClusterOptions, server: TermServer, say: Callable[[str], None]) -> None:
        self._options = options
        self._server = server
        self._records = server.records
        self._say = say
        self._repair_count = RepairCount()
        self._follower = SettingsFollower(options.given, check_settings)
        self._used: ClusterSettings | None = None
        """The settings of the last term that could begin."""

    async def main(self) -> None:
        """Serve until a signal or an error."""
        options = self._options
        leadership, own_api = None, Api(options.connection)
        if options.lease is not None:
            leadership = Leadership(own_api, options.namespace, options.lease, options.identity, options.pod)
        api = Api(options.connection, fence=None if leadership is None else leadership.fence)
        try:
            work = self._lead(api, own_api, leadership)
            await answer_during(work, self._server, self._tell_address, options.certificate, options.key)
        finally:
            if leadership is not None:
                await leadership.release()
            await api.close()
            await own_api.close()
            log.info("stopped")

    def _tell_address(self) -> None:
        url = url_of(self._server.listening, secure=self._options.certificate is not None)
        self._say(f"rota answers at {url}; data in {self._options.home}")

    async def _lead(self, api: Api, own_api: Api, leadership: Leadership | None) -> None:
        options = self._options
        wanted = needed_rights(
            options.namespace,
            config_map=options.config_map,
            lease=options.lease,
            pod=options.pod,
            admission=options.admission is not None,
        )
        await check_rights(own_api, wanted)
        follower = self._follower
        async with asyncio.TaskGroup() as group:
            if options.config_map is not None:
                group.create_task((await follower.config_map(own_api, options.namespace, options.config_map)).run())
            if options.resources:
                for informer in await follower.resources(own_api):
                    group.create_task(informer.run())
            if options.admission is not None:
                webhook = AdmissionServer(
                    own_api, options.namespace, options.admission, lambda: follower.settings, check_settings
                )
                group.create_task(webhook.run(self._say))
            if leadership is not None:
                await leadership.acquire()
                group.create_task(leadership.keep())
            group.create_task(keep_tidy(self._records, self._options.home, self._options.keep_s))
            for each in self._server.parts.upkeep():
                group.create_task(each)
            while True:
                await self._term(api, follower.settings)

    # -- one term --------------------------------------------------------------------------------

    async def _term(self, api: Api, settings: ClusterSettings) -> None:
        """Schedule under one set of settings, until they change or the state has to be rebuilt."""
        self._follower.changed.clear()
        driver = self._driver(api, settings)
        nodes = Informer(api, "/api/v1/nodes", driver.nodes_listed, driver.nodes_changed)
        pods = Informer(api, "/api/v1/pods", driver.pods_listed, driver.pods_changed)
        await nodes.begin()
        while not driver.node_cache.nodes:
            await asyncio.sleep(LOOK_S)
            await nodes.begin()
        facts = ClusterFacts(api, driver.world)
        await facts.begin()
        await pods.begin()
        await driver.ask_sizes()
        try:
            control, scheduling, passed_on = boot_on_pods(self._records, driver, settings)
        except RotaError as error:
            await driver.close()
            if self._used is None or self._used == settings:
                raise
            log.error(UNUSABLE, extra={"why": str(error)})
            self._follower.fall_back(self._used)
            return
        self._used = settings
        source = ForecastWorker(scheduling, self._records.url)
        foresight = ForecastKeeper(control, self._records, source, scheduling.policy)
        requests = self._requests(control, foresight, api, settings)
        sessions = PodSessions(api, driver, settings)
        provisioner = Provisioner(api, driver.gang_index, settings.provisioning)
        foresee = _foreseeing(requests, source, provisioner)
        steps, identity = (lambda: control.steps), self._options.identity
        reporter = Reporter(api, driver.gang_index, control.explain, foresee, steps=steps, identity=identity)
        loop = asyncio.create_task(control.run(driver))
        health = ClusterHealth(control, api, driver.node_cache, passed_on)
        app = self._application(control, requests, scheduling, foresight, source, health, sessions)
        token = self._options.extender_token
        self._server.switch.now = with_extender(app, Extender(driver), token) if self._options.extends else app
        log.info("ready", extra={"nodes": len(driver.node_cache.nodes), "jobs": len(control.state.jobs)})
        self._say(f"rota schedules {len(driver.node_cache.nodes)} nodes with policy {settings.policy}")
        parts = [nodes.run(), pods.run(), *(informer.run() for informer in facts.informers)]
        parts += [reporter.run(), reporter.forecast_starts(), control.storage.watch(), foresight.run()]
        parts += [
            result_of(loop),
            result_of(driver.failed),
            self._renew(driver, settings.gang_timeout),
            health.marks.run(),
            watch_progress(control.state, driver.fractions_done, control.tell),
        ]
        if settings.provisioning.request:
            parts.append(provisioner.run())
        if self._options.resources:
            parts.append(StatusWriter(api, lambda: self._seen_resources(control, scheduling)).run())
        try:
            await work_until(self._follower.changed.wait(), parts)
        finally:
            await self._end_term(control, loop, driver)
            await foresight.close()

    async def _end_term(self, control: Control, loop: asyncio.Task[None], driver: KubernetesDriver) -> None:
        """Stop the loop, then the driver: a step after the driver's end could not be carried out."""
        try:
            await end_loop(loop)
        finally:
            self._server.switch.end_term(control)
            await driver.close()

    def _requests(
        self, control: Control, foresight: ForecastKeeper, api: Api, settings: ClusterSettings
    ) -> ClusterRequests:
        return ClusterRequests(
            control,
            self._records,
            refuse_what_cannot_be,
            foresight,
            api=api,
            settings=settings,
            audit=self._server.parts.audit,
            is_known=lambda name: self._records.job(name) is not None,
        )

    def _driver(self, api: Api, settings: ClusterSettings) -> KubernetesDriver:
        return KubernetesDriver(
            api,
            settings,
            ask_first_s=ASK_FIRST_S if self._options.extends else 0.0,
            running={row.id for row in self._records.live_jobs()},
            repair_count=self._repair_count,
        )

    def _seen_resources(self, control: Control, scheduling: Scheduling) -> SeenResources:
        if not self._follower.values:  # what tenants use takes a look at every job
            return SeenResources(values=(), refused={}, uses={}, nodes=())
        guarantees = TenantGuarantees(control, scheduling)
        uses = {
            name: QueueUse(
                guaranteed=use.guaranteed,
                used=round(use.held),
                borrowed=round(use.borrowed),
                lent=round(use.lent),
                waiting=use.waiting,
                running=use.running,
            )
            for name, use in uses_of(control.state, guarantees.now()).items()
        }
        nodes = [account.node for account in control.state.inventory.nodes]
        return SeenResources(values=self._follower.values, refused=self._follower.refused, uses=uses, nodes=nodes)

    async def _renew(self, driver: KubernetesDriver, least_s: float) -> None:
        """End the term once a gang has slots that stay empty, but not before the minimum length of a term."""
        await asyncio.sleep(least_s)
        await driver.outdated.wait()
        log.info("gangs have fewer pods than slots; the state is rebuilt")
        self._follower.changed.set()

    def _application(
        self,
        control: Control,
        requests: Requests,
        scheduling: Scheduling,
        forecasts: ForecastKeeper,
        source: ForecastWorker,
        health: ClusterHealth,
        pods: PodSessions,
    ) -> Asgi:
        """Return the application that answers requests during a term."""
        service = term_service(
            self._server,
            control,
            requests,
            scheduling,
            forecasts,
            source,
            home=self._options.home,
            limits="enforced by Kubernetes",
            counters=self._counters,
            health=health,
            pods=pods,
        )
        return make_app(service, None if self._options.pages is None else self._options.pages(service))

    def _counters(self) -> dict[str, tuple[str, int]]:
        return {"rota_kubernetes_repairs": ("Claims that differed from pods, repaired.", self._repair_count.repairs)}


def _foreseeing(
    requests: Requests, source: ForecastWorker, provisioner: Provisioner
) -> Callable[[JobId], Awaitable[dict[str, Any] | None]]:
    """Return the function that forecasts a job's start and the nodes that would start it, for its pods to show."""

    async def foresee(job_id: JobId) -> dict[str, Any] | None:
        expected = forecast_out(await requests.foresee(job_id))
        demand = await source.more_nodes(job_id)
        provisioner.note(job_id, demand[0].nodes if demand else 0)
        return None if expected is None else {**expected, "more_nodes": demand_out(demand)}

    return foresee


def check_settings(settings: ClusterSettings) -> None:
    """Raise a `RotaError` for settings that name something unknown, can't be parsed or don't fit the driver."""
    from rota.placement import on_network, style
    from rota.policies import find_policy
    from rota.tenancy import allocator, refuse_unknown

    refuse_unknown(settings.tenancy)
    declared, asked = find_policy(settings.policy)
    declared.refuse_driver(asked, KubernetesDriver.contract, live=True)
    declared.refuse_tenancy(settings.tenancy)
    options = declared.live_options(asked)
    placement = on_network(settings.placement or declared.placement_with(options), settings.network_spec())
    declared.build(options, allocator("none", style(placement)))
    settings.check_network()
    if settings.tenancy == "cells" and settings.hived is None:
        raise RotaError("tenancy is 'cells', but there are no cells; give a HiveD file under `hived`")
    settings.promises()
