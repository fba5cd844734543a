"""Journals that look at the engine's state after every step: what must hold at all times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rota.core.check import check
from rota.core.decisions import Decision
from rota.core.engine import Engine
from rota.core.events import Event, Resized, SpeedChanged, Started, Suspended
from rota.core.model import JobId
from rota.core.placement import device_indexes
from rota.core.reasons import Reason
from rota.core.state import State


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
    """Also, how fast jobs run whenever time passes, as the least part of their speed alone."""

    def __init__(self, alone: Mapping[JobId, float]) -> None:
        super().__init__()
        self._alone = alone
        self._rates: dict[JobId, tuple[float, float]] = {}
        self.least = 1.0

    def look(self, now_s: float, events: Sequence[Event]) -> None:
        """Speeds that were told, and whether time passed at those before."""
        for event in events:
            name = getattr(event, "job_id", None)
            if name is None or name not in self._alone:
                continue
            since_s, rate = self._rates.pop(name, (now_s, 0.0))
            if now_s > since_s:
                self.least = min(self.least, rate / self._alone[name])
            if isinstance(event, Started | Resized | SpeedChanged):
                self._rates[name] = (now_s, event.rate)


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
