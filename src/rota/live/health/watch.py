"""All parts of health together, as the manager builds them."""

from __future__ import annotations

import asyncio
from typing import Any

from rota.core.model.job import NodeId
from rota.drivers.local.settings import Settings
from rota.files.up_file import HealthPart
from rota.health.node_state import HealthSign, NodeHealth, NodeHealthState
from rota.health.xid import action_for, severity_of
from rota.live.gpus.monitor import GpuMonitor
from rota.live.health.check_runner import CheckRunner
from rota.live.health.failure_watch import FailureWatch
from rota.live.health.node_watch import NodeWatch
from rota.live.health.stall_watch import StallWatch
from rota.live.loop.control import Control
from rota.store import clock

COUNT_S = 60.0


class HealthWatch:
    """The health of nodes, and the verdicts about failed jobs."""

    def __init__(self, control: Control, settings: HealthPart, local: Settings) -> None:
        home = local.home
        self.nodes = NodeWatch(control.state, home, control.tell, alert=self._changed)
        self.checks = CheckRunner(control.state, self.nodes, settings, home, local.nvml)
        self.failures = FailureWatch(control, self.nodes, home, soon=self.checks.soon, large=settings.large)
        self.stalls = StallWatch(control, settings, home)
        self._control = control
        self._rate = local.failure_rate

    def _changed(self, node_id: NodeId, before: NodeHealth, after: NodeHealth) -> None:
        """Count a node that its health has taken out of use as failed, once."""
        if before.state.takes_jobs and after.state in (NodeHealthState.DRAINING, NodeHealthState.BAD):
            self._rate.failed()

    async def run(self) -> None:
        """Check nodes, and count how long they were watched, until cancelled."""
        await asyncio.gather(self.checks.run(), self.stalls.run(), self._count())

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(COUNT_S)
            self._rate.watched(len(self._control.state.inventory.nodes), COUNT_S)

    def attached(self, monitor: GpuMonitor | None) -> GpuMonitor | None:
        """Listen to the critical errors that a monitor of this machine's GPUs reports; return the monitor."""
        if monitor is not None:
            self.failures.xids_of = monitor.telemetry.xids_of
            monitor.on_xid = self.note_xid
        return monitor

    def note_xid(self, gpu: int, number: int) -> None:
        """Take in a critical error of a GPU of the first node."""
        node_id = self._control.state.inventory.nodes[0].node.id
        text = f"GPU {gpu} reported Xid {number}: {action_for(number).value}"
        sign = HealthSign(at_s=clock.now_s(), source="gpu-xid", severity=severity_of(number), text=text)
        if sign.severity.value:
            self.nodes.take(node_id, sign)
            self.checks.soon([str(node_id)])

    def of(self, node_id: NodeId) -> dict[str, Any]:
        """Return a node's health for people: the state, and the last sign against it."""
        health: NodeHealth = self.nodes.health(node_id)
        why = health.evidence[-1].text if health.evidence else ""
        return {"health": health.state.value, "health_why": why}
