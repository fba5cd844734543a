"""Accounts for the device time of jobs, written in one transaction with the journal step in which it ends.

A job is charged for what it runs on, from the moment its tasks run until they have stopped: a share of a device counts
as that share, and a resized job from the moment at which it runs at its new size. It is the engine's own count, by
hour, user, project and device type. Time since a job's last step is not written; readers add it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rota.core.model.job import WHOLE, JobId
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.live.loop.record import Record
from rota.store import clock
from rota.store.accounts.usage import HOUR_S, UsageRow

PROJECT = "project"
"""The label of a job that names its project."""


@dataclass(slots=True)
class _Mark:
    """Up to where a job is accounted for."""

    attained_milli_s: float
    since_s: float
    """From when on it runs as it does, if it runs."""
    split: dict[str, float]
    """How what it runs on divides among the device types; sums to 1."""


class UsageLedger:
    """What of each job's device time is written already."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.notices: Callable[[LiveJob, Record], list[dict[str, Any]]] = lambda live, record: []
        """Returns the messages about what a step changed of a job; they are written with the step."""
        self.energy_j: Callable[[JobId], float] = lambda job_id: 0.0
        """Returns the energy of a job that ended, where it is known and the job's own; it is written with the end."""
        self._marks: dict[JobId, _Mark] = {}
        for name, live in state.jobs.items():
            if not live.state.is_final:
                self._marks[name] = self._mark(live, None)

    def account(self, live: LiveJob, owner: str, now_s: float) -> list[UsageRow]:
        """Return the rows to write after a step that touched a job."""
        mark = self._marks.pop(live.job.id, None)
        if mark is None:
            if live.state.is_final:
                return [_row(live, owner, "", _hour_of(now_s), jobs=1)] if live.ended_s == now_s else []
            self._marks[live.job.id] = self._mark(live, None)
            return []
        rows = list(self._since(live, mark, owner, now_s))
        if live.state.is_final:
            kind = max(mark.split, key=mark.split.__getitem__, default="")
            energy_j = self.energy_j(live.job.id) if mark.split else 0.0
            rows.append(_row(live, owner, kind, _hour_of(now_s), energy_j=energy_j, jobs=1))
        else:
            self._marks[live.job.id] = self._mark(live, mark)
        return rows

    def _since(self, live: LiveJob, mark: _Mark, owner: str, now_s: float) -> Iterator[UsageRow]:
        device_s = (live.attained_milli_s - mark.attained_milli_s) / WHOLE
        if device_s > 0:
            yield from _by_hour(live, owner, mark.split, device_s, mark.since_s, now_s)

    def unwritten(self, live: LiveJob, owner: str, now_s: float) -> list[UsageRow]:
        """Return the rows of a job's device time that is not written yet."""
        mark = self._marks.get(live.job.id)
        if mark is None or live.run_since_s is None:
            return []
        device_s = live.attained_gpu_s(now_s) - mark.attained_milli_s / WHOLE
        return list(_by_hour(live, owner, mark.split, device_s, mark.since_s, now_s)) if device_s > 0 else []

    def _mark(self, live: LiveJob, known: _Mark | None) -> _Mark:
        split = self._split(live) or ({} if known is None else known.split)
        since_s = live.since_s if live.run_since_s is None else live.run_since_s
        return _Mark(live.attained_milli_s, since_s, split)

    def _split(self, live: LiveJob) -> dict[str, float]:
        """Return how what a job runs on divides among the types; while it leaves, what it leaves counts."""
        leaving = self._state.vacating.get(live.job.id)
        held = live.held if leaving is None else leaving[1]
        found: dict[str, float] = {}
        nodes = self._state.inventory.nodes
        for slot in held:
            if slot.devices:
                kind = str(nodes[slot.node].node.device_type)
                found[kind] = found.get(kind, 0.0) + slot.devices.bit_count() * slot.milli
        total = sum(found.values())
        return {kind: amount / total for kind, amount in found.items()}


def _by_hour(
    live: LiveJob, owner: str, split: dict[str, float], device_s: float, since_s: float, until_s: float
) -> Iterator[UsageRow]:
    """Divide device time that was used evenly over a span among its hours and the device types."""
    begin, end = clock.shown_s(since_s), clock.shown_s(until_s)
    if end <= begin:
        begin, end = end - 1e-6, end
    hour = int(begin // HOUR_S) * HOUR_S
    while hour < end:
        part = (min(hour + HOUR_S, end) - max(hour, begin)) / (end - begin)
        for kind, fraction in (split or {"": 1.0}).items():
            yield _row(live, owner, kind, hour, device_s=device_s * part * fraction)
        hour += HOUR_S


def _hour_of(at_s: float) -> int:
    return int(clock.shown_s(at_s) // HOUR_S) * HOUR_S


def _row(
    live: LiveJob, owner: str, kind: str, hour_s: int, *, device_s: float = 0.0, energy_j: float = 0.0, jobs: int = 0
) -> UsageRow:
    job = live.job
    project = project_of(job.labels)
    return UsageRow(hour_s, str(job.tenant), owner, project, kind, device_s=device_s, energy_j=energy_j, jobs=jobs)


def project_of(labels: tuple[tuple[str, str], ...]) -> str:
    """Return the project that a job's labels name; empty if none."""
    return dict(labels).get(PROJECT, "")[:128]
