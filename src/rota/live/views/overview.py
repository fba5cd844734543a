"""Overview of a manager, shared by the dashboard, `rota top` and `rota tenants`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rota.live.gpus.monitor import GpuMonitor
from rota.live.loop.boot import Scheduling
from rota.live.loop.control import Control
from rota.live.views.devices import count_devices
from rota.live.views.gpus import gpu_rows
from rota.live.views.tenant_usage import TenantGuarantees, TenantUse, uses_of
from rota.store.records import Records

if TYPE_CHECKING:
    from rota.live.views.cluster_timeline import ClusterTimeline
    from rota.live.views.link_day import LinkDays
    from rota.live.views.recent import Recent


class ManagerOverview:
    """Reads on request; what takes long to read is read once for all readers."""

    def __init__(
        self, records: Records, control: Control, scheduling: Scheduling, gpus: GpuMonitor | None = None
    ) -> None:
        self.promised = TenantGuarantees(control, scheduling)
        self._records = records
        self._control = control
        self._policy = scheduling.policy
        self._recent: Recent | None = None
        self._timeline: ClusterTimeline | None = None
        self._gpus = gpus
        self._network = scheduling.network
        self._links: LinkDays | None = None

    @property
    def links(self) -> LinkDays | None:
        """The links between the nodes; None without a network."""
        if self._links is None and self._network is not None:
            from rota.live.views.link_day import LinkDays

            self._links = LinkDays(self._records, self._control, self._network)
        return self._links

    @property
    def recent(self) -> Recent:
        """The last day. Its arithmetic is loaded when it is first asked for."""
        if self._recent is None:
            from rota.live.views.recent import Recent

            self._recent = Recent(self._records, self._control)
        return self._recent

    @property
    def timeline(self) -> ClusterTimeline:
        """Which job held which devices over the last day."""
        if self._timeline is None:
            from rota.live.views.cluster_timeline import ClusterTimeline

            self._timeline = ClusterTimeline(self._records, self._control)
        return self._timeline

    def uses(self, tenants: Collection[str] | None) -> dict[str, TenantUse]:
        """What tenants hold now; None asks for all of them."""
        uses = uses_of(self._control.state, self.promised.now())
        return {name: use for name, use in uses.items() if tenants is None or name in tenants}

    async def overview(self, tenants: Collection[str] | None) -> dict[str, Any]:
        """Devices by type, tenants that may be seen, and the last day of the whole cluster."""
        day = await self.recent.day()
        uses = self.uses(tenants)
        return {
            "policy": self._policy,
            "devices": [
                {
                    "type": count.device_type,
                    "total": count.total,
                    "busy": count.busy,
                    "idle": count.idle,
                    "bad": count.bad,
                    "scattered": count.scattered,
                }
                for count in count_devices(self._control.state.inventory)
            ],
            "gpus": gpu_rows(self._gpus, self._control, tenants),
            "running": sum(use.running for use in uses.values()),
            "waiting": sum(use.waiting for use in uses.values()),
            "tenants": [{"tenant": name, **asdict(use)} for name, use in uses.items()],
            "day": {"edges_s": day.edges_s, "in_use": day.in_use, "waiting": day.waiting, "wait_s": day.wait_s},
        }
