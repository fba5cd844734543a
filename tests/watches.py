"""Journals that look at the engine's state after every step: what must hold at all times."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rota.core.engine.engine import Engine
from rota.core.engine.invariants import check
from rota.core.messages.decisions import Decision
from rota.core.messages.events import Event, Suspended
from rota.core.messages.reasons import Reason
from rota.core.model.cluster import Node
from rota.core.model.job import OPPORTUNISTIC, JobId, JobState
from rota.core.model.placement import Placement, device_indexes
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.perf.speed.model import SpeedModel
from rota.perf.speed.shared_servers import SharedServers, contends


class Watch:
    """The state is sound, no device holds more memory than it has, and suspended jobs keep their work."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.kept: dict[JobId, float] = {}
        """The work of suspended jobs."""

    def append(
        self,
        now_s: float,
        events: Sequence[Event],
        decisions: Sequence[Decision],
        waits: Sequence[tuple[JobId, Reason]],
    ) -> None:
        assert self.engine is not None
        state = self.engine.state
        check(state)
        _check_memory(state)
        self.look(now_s, events)
        for name, work in list(self.kept.items()):
            assert state.live(name).work_done(now_s) >= work - 1e-9
        self.kept |= {event.job_id: event.work for event in events if isinstance(event, Suspended)}

    def look(self, now_s: float, events: Sequence[Event]) -> None:
        """What else is to be seen."""


class Bound(Watch):
    """Also, how fast guaranteed jobs run whenever time passes: the least part of their speed without all others."""

    def __init__(self, speed: SpeedModel, *, against_each_other: bool = True) -> None:
        super().__init__()
        self._speed = speed
        self._apart = not against_each_other
        self._then_s, self._parts = 0.0, [1.0]
        self.least = 1.0

    def look(self, now_s: float, events: Sequence[Event]) -> None:
        """Time passed at the speeds before; what they are now."""
        assert self.engine is not None
        if now_s > self._then_s:
            self.least = min([self.least, *self._parts])
        state = self.engine.state
        nodes = [books.node for books in state.inventory.nodes]
        safe = [
            live
            for live in state.jobs.values()
            if live.job.priority > OPPORTUNISTIC and live.state is JobState.RUNNING and live.placement is not None
        ]
        servers = SharedServers(nodes)
        for live in safe:
            if self._speed.contention and contends(live.job):
                servers.enter(live.job, live.placement or ())
        self._then_s, self._parts = now_s, [live.rate / self._clear(live, safe, nodes, servers) for live in safe]

    def _clear(self, live: LiveJob, safe: list[LiveJob], nodes: list[Node], servers: SharedServers) -> float:
        """What a job would do if there were only guaranteed ones."""
        place = live.placement or ()
        others = {other: _meet(place, other.placement or ()) for other in safe if other is not live}
        mates = [(other.job, 1.0) for other, meet in others.items() if meet and not self._apart]
        on_node = [1.0 for meet in others.values() if meet is False]
        rate = self._speed.rate(live.job, place, nodes, [], on_node, mates)
        return rate * servers.speed(live.job.id) if self._speed.contention and contends(live.job) else rate


def _meet(one: Placement, other: Placement) -> bool | None:
    """Whether two placements have a device in common; None if they have not even a node in common."""
    shared = [a.devices & b.devices for a in one for b in other if a.node == b.node]
    return any(shared) if shared else None


def _check_memory(state: State) -> None:
    """Add up what jobs that share a device keep there, without the books."""
    held: dict[tuple[int, int], float] = {}
    for live in state.jobs.values():
        for slot in live.placement or ():
            needs = live.job.roles[0].device_memory_bytes * slot.memory_milli / 1000
            for device in device_indexes(slot.devices):
                held[slot.node, device] = held.get((slot.node, device), 0.0) + needs
    limits = [books.node.device_memory_bytes or math.inf for books in state.inventory.nodes]
    assert all(memory <= limits[node] for (node, _), memory in held.items())
