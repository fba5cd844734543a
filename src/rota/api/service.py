"""The services that every route uses, and the authentication of callers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import Request

from rota.api.access import Access, Principal
from rota.api.guard.refusals import RefusalLog
from rota.api.guard.stream_watch import StreamWatch
from rota.api.identity.logins import Logins
from rota.core.model.job import JobId, NodeId
from rota.drivers.local.confinement.default_limits import DefaultLimits
from rota.files.up_file import LimitsPart
from rota.live.accounts.keeper import BudgetKeeper
from rota.live.alerts.keeper import AlertKeeper
from rota.live.data.search_index import SearchIndex
from rota.live.data.template_registry import TemplateRegistry
from rota.live.estimates.learning import Learning
from rota.live.gpus.monitor import GpuMonitor
from rota.live.health.watch import HealthWatch
from rota.live.intake.requests import Requests
from rota.live.intake.tenant_registry import TenantRegistry
from rota.live.loop.boot import Scheduling
from rota.live.loop.control import Control
from rota.live.notify.sender import Sender
from rota.live.reservations.keeper import ReservationKeeper
from rota.live.reservations.reservation import NodeReservation
from rota.live.sweeps.keeper import SweepKeeper
from rota.live.sweeps.views import SweepViews
from rota.live.truth.summary import Truth
from rota.live.views.overview import ManagerOverview
from rota.live.workers.node_demand import NodeDemand
from rota.store.audit import AuditLog
from rota.store.data.snapshots import Snapshots
from rota.store.records import Records

if TYPE_CHECKING:
    from rota.api.proxy.places import ProxyNames
    from rota.api.proxy.visits import Visits
    from rota.drivers.kubernetes.sessions.pods import PodSessions  # with all of the Kubernetes driver
    from rota.live.health.cluster_health import ClusterHealth  # likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepParts:
    """What runs sweeps, and what shows them."""

    keeper: SweepKeeper
    views: SweepViews


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountParts:
    """What watches budgets, and what sends messages."""

    budgets: BudgetKeeper
    sender: Sender


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyParts:
    """What leads browsers to web servers in jobs."""

    names: ProxyNames | None
    """The host names of pages of jobs; None without a domain for them."""
    visits: Visits


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The parts of a manager."""

    control: Control
    requests: Requests
    records: Records
    access: Access
    home: Path
    scheduling: Scheduling
    lookout: ManagerOverview
    limits: str
    """How the limits of tasks are enforced, for people."""
    defaults: DefaultLimits | None = None
    """What tasks get that ask for no CPUs or no memory; None where another system decides."""
    truth: Truth
    """How forecasts compared with what happened."""
    call_limits: LimitsPart = field(default_factory=LimitsPart)
    """What each caller may take."""
    large_bodies: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a large body is parsed."""
    learning: Learning | None = None
    """Estimates from past jobs, if their usage is recorded."""
    audit: AuditLog
    watch: StreamWatch
    refusals: RefusalLog
    logins: Logins
    more_counters: Callable[[], Mapping[str, tuple[str, int]]] = dict
    """Counters of this world for Prometheus: by name, what is counted and how many."""
    more_nodes: Callable[[JobId], Awaitable[list[NodeDemand]]] | None = None
    """Nodes that would start a waiting job; None where there is no cluster to add them to."""
    end_now: Callable[[JobId], None] | None = None
    """Ends the tasks of a job that is being cancelled without its grace; None where another system ends them."""
    pods: PodSessions | None = None
    """The way into pods of jobs; None where jobs are not pods."""
    gpus: GpuMonitor | None = None
    """The GPUs of this machine over time; None where the devices are no GPUs of this machine."""
    health: HealthWatch | None = None
    """The health of nodes and the verdicts about failed jobs; None where the cluster itself keeps them."""
    cluster_health: ClusterHealth | None = None
    """The health of the nodes of a Kubernetes cluster; None elsewhere."""
    accounts: AccountParts | None = None
    """Budgets and messages; None where the jobs are another system's."""
    reservations: ReservationKeeper | None = None
    foreign_reservations: Callable[[], list[NodeReservation]] | None = None
    """Returns the reservations of another scheduler, where that one keeps them."""
    """Nodes that are kept for a group in a time; None where the jobs are another system's."""
    alerts: AlertKeeper | None = None
    """Alert rules and their states; None where the jobs are another system's."""
    sweeps: SweepParts | None = None
    """Searches over parameters; None where jobs are not processes of this manager."""
    snapshots: Snapshots | None = None
    """The code that jobs brought along; None where jobs are not processes of this manager."""
    search: SearchIndex | None = None
    """The full-text search; None where jobs are not processes of this manager."""
    templates: TemplateRegistry | None = None
    """Templates of jobs; None where jobs are not processes of this manager."""
    proxy: ProxyParts | None = None
    """The way to web servers in jobs; None where jobs are not processes of this manager."""
    tenants: TenantRegistry | None = None
    """Which tenants exist; None where the driver's objects decide."""

    def health_of(self, node_id: NodeId) -> dict[str, str]:
        """Return the state of a node's health, and why; empty where nothing watches it."""
        watch = self.health or self.cluster_health
        return {} if watch is None else watch.of(node_id)

    @property
    def has_sessions(self) -> bool:
        """Whether sessions can be opened in tasks."""
        return self.end_now is not None or self.pods is not None

    @property
    def failures_by_cause(self) -> Mapping[str, int] | None:
        """How often each cause of failures was found since the start; None where nothing looks for them."""
        if self.health is not None:
            return self.health.failures.verdicts
        return None if self.cluster_health is None else self.cluster_health.verdicts

    def must_exist(self, tenant: str) -> None:
        """Raise a `RotaError` for a tenant that does not exist."""
        if self.tenants is not None:
            self.tenants.must_exist(tenant)


def service(request: Request) -> Service:
    """Return the services of the request's manager."""
    found = request.app.state.service
    assert isinstance(found, Service)
    return found


async def principal(request: Request) -> Principal:
    """Authenticate the caller of a request."""
    return service(request).access.authenticate(request)
