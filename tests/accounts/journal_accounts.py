"""Device time as it follows from a journal alone: an independent count that knows nothing of the engine's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rota.core.messages.decisions import Decision, Move, Renew, Resize, Resume, Start
from rota.core.messages.events import (
    Event,
    Interrupted,
    JobArrived,
    JobEnded,
    Moved,
    Resized,
    Resumed,
    Started,
    StartFailed,
    Stopped,
    Suspended,
    WorkDone,
)
from rota.core.model.placement import Placement, same_devices

_BEGINS = (Started, Resized, Moved, Resumed)
_ENDS = (Stopped, JobEnded, Interrupted, Suspended, WorkDone, StartFailed)
Key = tuple[int, str, str, str, str]
"""Hour, tenant, user, project, device type."""


class JournalAccounts:
    """Device-seconds by hour, tenant, user, project and type."""

    def __init__(self, types: Sequence[str], epoch_s: float = 0.0) -> None:
        self.used: dict[Key, float] = defaultdict(float)
        self._types = types
        self._epoch_s = epoch_s
        self._who: dict[str, tuple[str, str, str]] = {}
        self._target: dict[str, Placement] = {}
        self._running: dict[str, tuple[float, Placement]] = {}

    def step(self, now_s: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        """Take in a step of the journal."""
        for event in events:
            if isinstance(event, JobArrived):
                job = event.job
                self._who[job.id] = (job.tenant, job.user, dict(job.labels).get("project", ""))
            elif isinstance(event, _BEGINS):
                self._change(event.job_id, self._target[event.job_id], now_s)
            elif isinstance(event, _ENDS):
                self._change(event.job_id, None, now_s)
        for decision in decisions:
            if isinstance(decision, Start | Resize | Move | Resume | Renew):
                job_id = decision.job_id
                self._target[job_id] = decision.placement
                now = self._running.get(job_id)
                if isinstance(decision, Resize) and now is not None and same_devices(now[1], decision.placement):
                    self._change(job_id, decision.placement, now_s)  # another share, from now on

    def _change(self, job_id: str, placement: Placement | None, now_s: float) -> None:
        before = self._running.pop(job_id, None)
        if before is not None:
            self._charge(job_id, before[1], before[0] + self._epoch_s, now_s + self._epoch_s)
        if placement is not None:
            self._running[job_id] = (now_s, placement)

    def _charge(self, job_id: str, placement: Placement, begin_s: float, end_s: float) -> None:
        for slot in placement:
            devices = slot.devices.bit_count() * slot.milli / 1000
            hour = int(begin_s // 3600) * 3600
            while devices and hour < end_s:
                seconds = min(hour + 3600, end_s) - max(hour, begin_s)
                self.used[hour, *self._who[job_id], self._types[slot.node]] += devices * seconds
                hour += 3600

    def by(self, *places: int) -> dict[tuple[Any, ...], float]:
        """The sums by parts of the key."""
        return summed(self.used, *places)


def summed(used: Mapping[Key, float], *places: int) -> dict[tuple[Any, ...], float]:
    """Sums by parts of the key, without those of nothing."""
    found: dict[tuple[Any, ...], float] = defaultdict(float)
    for key, amount in used.items():
        found[tuple(key[place] for place in places)] += amount
    return {key: amount for key, amount in found.items() if amount > 1e-6}
