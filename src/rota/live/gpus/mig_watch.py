"""Repartitions idle GPUs of the pool (MIG) when waiting jobs ask for what no GPU is now."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from rota.core.errors import RotaError
from rota.core.messages.events import Event, NodeBack, NodeLost
from rota.core.model.cluster import Node
from rota.core.model.job import WHOLE, Job
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import Phase
from rota.drivers.local.gpu.mig import PROFILE_LABEL
from rota.drivers.local.gpu.mig_layouts import WHOLE_GPU, MigLayouts
from rota.live.loop.control import Control
from rota.live.loop.entry import LoopEntry
from rota.store import clock

log = logging.getLogger("rota.live")
EVERY_S = 2.0
PATIENCE_S = 5.0
"""How long a job waits before a GPU is repartitioned for it: what is free is given out within that time."""
REPEAT_S = 600.0
"""After a failure, how long a GPU is left alone."""


class MigWatch:
    """Looks at what waits, and at which GPUs of the pool have nothing to do."""

    def __init__(self, control: Control, layouts: MigLayouts) -> None:
        self._control = control
        self._layouts = layouts
        self._nodes = {node.id: node for node in layouts.nodes}
        self._now: dict[int, str | None] = {gpu: layouts.look(gpu) for gpu in layouts.gpus}
        self._left_alone_until_s: dict[int, float] = {}

    def begin(self) -> None:
        """Tell the engine, before it plans, which layouts can't be used now."""
        lost: list[Event] = [
            NodeLost(self._layouts.node_of(gpu, layout))
            for gpu in self._layouts.gpus
            for layout in self._layouts.layouts(gpu)
            if layout != self._now[gpu]
        ]
        self._control.happened(LoopEntry(lost))

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Repartition at most one GPU."""
        await self._control.at_rest()
        now_s = clock.now_s()
        for live in sorted(self._control.state.jobs.values(), key=lambda each: (-each.job.priority, each.seq)):
            if live.phase is not Phase.WAITING or now_s - live.since_s < PATIENCE_S:
                continue
            for gpu, layout in self._remedies(live):
                if now_s >= self._left_alone_until_s.get(gpu, 0.0):
                    await self._change(gpu, layout, live)
                    return

    def _remedies(self, live: LiveJob) -> Iterator[tuple[int, str]]:
        """Yield which GPUs could become what, so that a job might start; none if there is room for it already."""
        accounts = self._control.state.inventory
        usable = [each for each in accounts.nodes if each.usable and each.free and _suits(live.job, each.node)]
        if sum(each.free for each in usable) >= _devices(live.job):
            return
        for gpu in self._layouts.gpus:
            if self._is_idle(gpu):
                for layout in self._layouts.layouts(gpu):
                    if layout != self._now[gpu] and _suits(live.job, self._nodes[self._layouts.node_of(gpu, layout)]):
                        yield gpu, layout
                        break

    def _is_idle(self, gpu: int) -> bool:
        """Whether no job has anything of a GPU, in whatever layout. One that waits for it suspended has."""
        state = self._control.state
        mine = {state.node(self._layouts.node_of(gpu, layout)) for layout in self._layouts.layouts(gpu)}
        waits = (slot.node for live in state.jobs.values() for slot in live.suspended_on or ())
        return not any(map(state.is_in_use, mine)) and mine.isdisjoint(waits)

    async def _change(self, gpu: int, layout: str, live: LiveJob) -> None:
        """Close what a GPU is, repartition it, and open what it has become."""
        before = self._now[gpu]
        about = {"gpu": gpu, "before": _name(before), "after": _name(layout), "job": live.job.id}
        if before is not None:
            await self._control.apply(LoopEntry([NodeLost(self._layouts.node_of(gpu, before))]))
        if self._is_idle(gpu):  # else a job came to it in the same step
            try:
                await asyncio.to_thread(self._layouts.change, gpu, layout)
                log.info("gpu-repartitioned", extra=about)
            except RotaError as error:
                self._left_alone_until_s[gpu] = clock.now_s() + REPEAT_S
                log.warning("a GPU can't be repartitioned", extra={**about, "why": str(error)})
        self._now[gpu] = self._layouts.look(gpu)
        if (now := self._now[gpu]) is not None:
            await self._control.apply(LoopEntry([NodeBack(self._layouts.node_of(gpu, now))]))


def _devices(job: Job) -> int:
    return sum(role.count * -(-role.device_milli // WHOLE) for role in job.roles)


def _suits(job: Job, node: Node) -> bool:
    """Whether tasks of a job could run on the devices of a node. A job that names no type asks for whole GPUs."""
    for role in job.roles:
        if not role.device_milli:
            continue
        is_named = node.device_type in role.device_types
        is_whole = not role.device_types and PROFILE_LABEL not in dict(node.labels)
        fits = role.device_memory_bytes <= (node.device_memory_bytes or 0) and role.device_milli <= node.devices * WHOLE
        if fits and (is_named or is_whole):
            return True
    return False


def _name(layout: str | None) -> str:
    return {None: "unknown", WHOLE_GPU: "whole"}.get(layout, layout or "")
