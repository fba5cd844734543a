"""All parts of health together, as the manager builds them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from rota.core.model.job import JobId, NodeId
from rota.drivers.local.launch_order import LaunchOrder
from rota.drivers.local.settings import Settings
from rota.files.up_file import HealthPart
from rota.health.node_state import HealthSign, NodeHealth, NodeHealthState
from rota.health.xid import action_for, severity_of
from rota.live.gpus.monitor import GpuMonitor
from rota.live.health.check_runner import CheckRunner
from rota.live.health.failure_watch import FailureWatch
from rota.live.health.node_counts import NodeCounts
from rota.live.health.node_watch import NodeWatch
from rota.live.health.stall_watch import StallWatch
from rota.live.health.told_intervals import ToldIntervals
from rota.live.loop.control import Control
from rota.store import clock

COUNT_S = 60.0
AT_ONCE_S = 5.0
"""Runs that are lost on a node within this time are one failure."""
FOUND_WITHIN_S = 600.0
"""A node that is drained this soon after runs were lost there has failed once."""
BUSY_S = 60.0
"""Over which time it is looked how busy GPUs are."""


class HealthWatch:
    """The health of nodes, and the verdicts about failed jobs."""

    def __init__(self, control: Control, settings: HealthPart, local: Settings) -> None:
        home = local.home
        self.counts = NodeCounts(home, clock.now_s)
        self.nodes = NodeWatch(
            control.state,
            home,
            control.tell,
            alert=self._changed,
            proven_after_s=settings.proven_after,
            spares=settings.spares,
        )
        self.checks = CheckRunner(control.state, self.nodes, settings, home, local.nvml)
        self.failures = FailureWatch(
            control, self.nodes, self.counts, home, soon=self.checks.soon, lost=self._lost, large=settings.large
        )
        self.stalls = StallWatch(control, settings, home, self.failures)
        self._large = settings.large
        self._tasks: set[asyncio.Task[None]] = set()
        self._control = control
        self._rate = local.failure_rate
        self._counted_s = clock.now_s()
        self._intervals = ToldIntervals(control, local.failure_rate, home)

    def _changed(self, node_id: NodeId, before: NodeHealth, after: NodeHealth) -> None:
        """Count a node that its health has taken out of use as failed, once."""
        if before.state.takes_jobs and after.state in (NodeHealthState.DRAINING, NodeHealthState.BAD):
            self._failed([str(node_id)], FOUND_WITHIN_S)
            self.counts.add(str(node_id), "out_of_service")
        if after.state is NodeHealthState.IN_REPAIR:
            self.counts.add(str(node_id), "tickets")
        if after.state is NodeHealthState.HEALTHY:
            self.failures.runs.forget(str(node_id))

    def _lost(self, nodes: Sequence[str]) -> None:
        """A run was lost with one of its nodes; other runs there may be lost at the same moment."""
        self._failed(nodes, AT_ONCE_S)

    def _failed(self, nodes: Sequence[str], apart_s: float) -> None:
        self._count_time()  # or failures would count at once, and the time without them a minute later
        if self._rate.failed_on(nodes, clock.now_s(), apart_s):
            self._intervals.save()

    def check_first(self, order: LaunchOrder, answer: Callable[[str], None]) -> bool:
        """Check the nodes of a large job before it starts; `answer` gets why it must not start there, or nothing."""
        inventory = self._control.state.inventory.nodes
        node_ids = [inventory[index].node.id for index in dict.fromkeys(slot.node for slot in order.placement)]
        stale = self.checks.stale(node_ids) if order.job.gpus >= self._large else []
        if not stale:
            return False
        task = asyncio.get_running_loop().create_task(self._check(stale, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _check(self, node_ids: list[NodeId], answer: Callable[[str], None]) -> None:
        try:
            await asyncio.gather(*(self.checks.check(node_id) for node_id in node_ids))
        finally:
            bad = [node_id for node_id in node_ids if not self.nodes.health(node_id).state.takes_jobs]
            whys = [f"node {node_id} failed its check before the start: {self._why(node_id)}" for node_id in bad]
            answer("; ".join(whys))

    def _why(self, node_id: NodeId) -> str:
        evidence = self.nodes.health(node_id).evidence
        return evidence[-1].text if evidence else ""

    async def run(self) -> None:
        """Check nodes, and count how long they were watched, until cancelled."""
        await asyncio.gather(self.checks.run(), self.stalls.run(), self._count())

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(COUNT_S)
            nodes = self._count_time()
            self._intervals.look()
            self.nodes.lemons = self.counts.lemons(tuple(nodes))
            self.counts.save()
            self._intervals.save()

    def _count_time(self) -> list[str]:
        """Count the time since the last call for all nodes; return their names."""
        nodes = [str(each.node.id) for each in self._control.state.inventory.nodes if not each.removed]
        now_s = clock.now_s()
        self._rate.watched(len(nodes), now_s - self._counted_s)
        self._counted_s = now_s
        return nodes

    def attached(self, monitor: GpuMonitor | None) -> GpuMonitor | None:
        """Listen to the critical errors that a monitor of this machine's GPUs reports; return the monitor."""
        if monitor is not None:
            self.failures.xids_of = monitor.telemetry.xids_of
            self.stalls.busy_of = lambda job_id: self._busy_by_rank(monitor, job_id)
            monitor.on_xid = self.note_xid
        return monitor

    def _busy_by_rank(self, monitor: GpuMonitor, job_id: JobId) -> dict[int, float]:
        """Return how busy the busiest GPU of each rank on this machine was in the last minute, in percent."""
        live = self._control.state.jobs.get(job_id)
        busy = list(monitor.telemetry.busy_by_gpu(job_id, clock.now_s() - BUSY_S).values())
        if live is None or live.run_since_s is None or clock.now_s() - live.run_since_s < BUSY_S:
            return {}
        ranks = sum(slot.tasks for slot in live.held or () if slot.node == 0)
        each = len(busy) // ranks if ranks else 0
        return {rank: max(busy[rank * each : (rank + 1) * each]) for rank in range(ranks)} if each else {}

    def note_xid(self, gpu: int, number: int) -> None:
        """Take in a critical error of a GPU of the first node."""
        node_id = self._control.state.inventory.nodes[0].node.id
        text = f"GPU {gpu} reported Xid {number}: {action_for(number).value}"
        sign = HealthSign(at_s=clock.now_s(), source="gpu-xid", severity=severity_of(number), text=text)
        self.counts.add(str(node_id), "xids")
        if sign.severity.value:
            self.nodes.take(node_id, sign)
            self.checks.soon([str(node_id)])

    def of(self, node_id: NodeId) -> dict[str, str]:
        """Return a node's health for people: the state, the last sign against it, and checks that are broken."""
        health: NodeHealth = self.nodes.health(node_id)
        why = health.evidence[-1].text if health.evidence else ""
        if not why and self.nodes.is_spare(node_id):
            why = "spare: takes jobs when another node is out of use"
        if not why and (signs := self.nodes.lemons.get(str(node_id))):
            why = f"fails more often than others: {', '.join(sign.replace('_', ' ') for sign in signs)}"
        broken = self.checks.broken.get(node_id)
        told = {"broken_checks": "; ".join(f"{check}: {fault}" for check, fault in broken.items())} if broken else {}
        return {"health": health.state.value, "health_why": why, **told}
