"""Which job held which devices when, and which waited, over the last day; read from the journal as `Recent` is.

The first request reads the day's steps, later ones what has been added. Where a job held devices since before the day,
the steps that name it tell which; those of jobs that still hold them are known from the engine.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rota.core.codec.values import decode_decision, decode_event
from rota.core.messages import events as ev
from rota.core.messages.decisions import Cause, Decision, Move, Renew, Resize, Resume, Start, Stop
from rota.core.messages.events import Event
from rota.core.model.job import JobId
from rota.core.model.placement import Slot
from rota.live.loop.control import Control
from rota.store import clock
from rota.store.records import Records

DAY_S = 86400.0
MOST_LOOKED_UP = 200
"""Jobs whose placement of before the day is looked up; those beyond appear when something happens to them."""
_BACK_IN_LINE = frozenset({Cause.PREEMPTED, Cause.MOVED})
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHold:
    """A job's devices on one node, from when to when; without an end it holds them now."""

    job_id: JobId
    node: str
    devices: int
    """As a bit mask."""
    milli: int
    """Thousandths of each of them."""
    start_s: float
    end_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A time in which a job waited for devices; without an end it waits now."""

    job_id: JobId
    start_s: float
    end_s: float | None = None


class _NodeNames(dict[str, int]):
    """Numbers for the names of nodes, also of those that are gone."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __missing__(self, name: str) -> int:
        self[name] = len(self.names)
        self.names.append(name)
        return self[name]


class JobHistory:
    """Follows jobs through steps: what they hold and whether they wait."""

    def __init__(self) -> None:
        self.holds: dict[JobId, list[DeviceHold]] = {}
        """What jobs hold now."""
        self.waits: dict[JobId, float] = {}
        """Since when jobs wait."""
        self.old_holds: list[DeviceHold] = []
        self.old_waits: list[Wait] = []
        self.unknown: dict[JobId, float] = {}
        """Jobs that gave back what they had held since before the first step, and when."""
        self.seen: set[JobId] = set()
        """Jobs of which it is known what they hold."""
        self._nodes = _NodeNames()
        self._stopping: dict[JobId, Cause] = {}

    def read(self, value: Json, only: JobId | None = None) -> None:
        """Take in one step, or what it says of one job."""
        now_s = float(value["t"])
        for each in value["in"]:
            event = decode_event(each)
            job_id = event.job.id if isinstance(event, ev.JobArrived) else getattr(event, "job_id", None)
            if job_id is not None and only in (None, job_id):
                self._take(event, job_id, now_s)
        for each in value.get("out", ()):
            if only in (None, each["job_id"]):
                self._obey(decode_decision(each, self._nodes), now_s)

    def _take(self, event: Event, job_id: JobId, now_s: float) -> None:
        match event:
            case ev.JobArrived(held=held):
                self.seen.add(job_id)
                if not held:
                    self.waits[job_id] = now_s
            case ev.JobReleased():
                self.seen.add(job_id)
                self.waits.setdefault(job_id, now_s)
            case ev.JobHeld() | ev.JobCancelled():
                self._stop_waiting(job_id, now_s)
            case ev.JobEnded() | ev.Suspended() | ev.WorkDone():
                self._give_back(job_id, now_s)
                self._stop_waiting(job_id, now_s)
            case ev.Stopped() | ev.Interrupted() | ev.StartFailed():
                self._give_back(job_id, now_s)
                cause = self._stopping.pop(job_id, None)
                if not isinstance(event, ev.Stopped) or cause in _BACK_IN_LINE:
                    self.waits.setdefault(job_id, now_s)
            case _:
                pass

    def _obey(self, decision: Decision, now_s: float) -> None:
        job_id = decision.job_id
        match decision:
            case Start(_, placement):
                self.seen.add(job_id)
                self._stop_waiting(job_id, now_s)
                self._hold(job_id, placement, now_s)
            case Resize(_, placement) | Move(_, placement) | Resume(_, placement):
                self._hold(job_id, placement, now_s)
            case Renew(_, placement):
                if _shape(self.holds.get(job_id, ())) != _shape(self._parts(job_id, placement, now_s)):
                    self._hold(job_id, placement, now_s)
            case Stop(_, cause):
                self._stopping[job_id] = cause
            case _:
                pass

    def _parts(self, job_id: JobId, placement: Sequence[Slot], now_s: float) -> list[DeviceHold]:
        names = self._nodes.names
        return [
            DeviceHold(job_id=job_id, node=names[slot.node], devices=slot.devices, milli=slot.milli, start_s=now_s)
            for slot in placement
            if slot.devices
        ]

    def _hold(self, job_id: JobId, placement: Sequence[Slot], now_s: float) -> None:
        self._give_back(job_id, now_s)
        self.holds[job_id] = self._parts(job_id, placement, now_s)

    def _give_back(self, job_id: JobId, now_s: float) -> None:
        if job_id not in self.seen:
            self.seen.add(job_id)
            self.unknown[job_id] = now_s
        held = self.holds.pop(job_id, ())
        self.old_holds += [replace(hold, end_s=now_s) for hold in held if hold.start_s < now_s]

    def _stop_waiting(self, job_id: JobId, now_s: float) -> None:
        since_s = self.waits.pop(job_id, None)
        if since_s is not None and since_s < now_s:
            self.old_waits.append(Wait(job_id=job_id, start_s=since_s, end_s=now_s))

    def forget_before(self, at_s: float) -> None:
        """Drop what ended before a time."""
        self.old_holds = [hold for hold in self.old_holds if hold.end_s is None or hold.end_s > at_s]
        self.old_waits = [wait for wait in self.old_waits if wait.end_s is None or wait.end_s > at_s]


def _shape(holds: Sequence[DeviceHold]) -> list[tuple[str, int, int]]:
    return [(hold.node, hold.devices, hold.milli) for hold in holds]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineWindow:
    """What happened between two times."""

    from_s: float
    to_s: float
    now_s: float
    holds: list[DeviceHold]
    waits: list[Wait]

    @property
    def job_ids(self) -> set[JobId]:
        """The jobs that held devices or waited."""
        return {hold.job_id for hold in self.holds} | {wait.job_id for wait in self.waits}


class ClusterTimeline:
    """The last day of a manager's devices and queue, for any number of readers."""

    def __init__(self, records: Records, control: Control) -> None:
        self._records = records
        self._control = control
        self._reading = threading.Lock()
        self._history = JobHistory()
        self._first: int | None = None
        self._next = 0

    async def window(self, from_s: float, to_s: float) -> TimelineWindow:
        """Return what reaches into a window; nothing is known of times before the last day."""
        now_s = clock.now_s()
        state = self._control.state
        nodes = state.inventory.nodes
        present = {
            name: [
                DeviceHold(
                    job_id=name,
                    node=str(nodes[slot.node].node.id),
                    devices=slot.devices,
                    milli=slot.milli,
                    start_s=live.run_since_s if live.run_since_s is not None else now_s,
                )
                for slot in live.held
                if slot.devices
            ]
            for name, live in state.jobs.items()
            if not live.state.is_final
        }
        return await asyncio.to_thread(self._window, from_s, to_s, now_s, present)

    def _window(
        self, from_s: float, to_s: float, now_s: float, present: dict[JobId, list[DeviceHold]]
    ) -> TimelineWindow:
        with self._reading:
            self._read_on(now_s)
            history = self._history
            for gone in [name for name in (*history.waits, *history.holds) if name not in present]:
                history.waits.pop(gone, None)  # it ended without an event of its own, as one that it depends on failed
                history.holds.pop(gone, None)
            holds = [*history.old_holds, *(hold for each in history.holds.values() for hold in each)]
            holds += [hold for name, each in present.items() if name not in history.seen for hold in each]
            waits = [*history.old_waits]
            waits += [Wait(job_id=name, start_s=since_s) for name, since_s in history.waits.items()]
        return TimelineWindow(
            from_s=from_s,
            to_s=to_s,
            now_s=now_s,
            holds=[hold for hold in holds if hold.start_s < to_s and (hold.end_s or now_s) > from_s],
            waits=[wait for wait in waits if wait.start_s < to_s and (wait.end_s or now_s) > from_s],
        )

    def _read_on(self, now_s: float) -> None:
        begin_s = now_s - DAY_S
        if self._first is None:
            for row in self._records.alive_at(begin_s):
                if row.started_s is None or row.started_s > begin_s:
                    self._history.seen.add(JobId(row.id))
                    self._history.waits[JobId(row.id)] = row.submitted_s
            self._first = self._next = self._records.first_step_since(begin_s)
        for body in self._records.steps(self._next):
            value = json.loads(body)
            self._history.read(value)
            self._next = int(value["n"]) + 1
        self._look_up(self._first)
        self._history.forget_before(begin_s)

    def _look_up(self, first: int) -> None:
        """Find what jobs held that gave it back in the day, and had held it since before."""
        unknown, self._history.unknown = self._history.unknown, {}
        for job_id, end_s in list(unknown.items())[-MOST_LOOKED_UP:]:
            row = self._records.job(str(job_id))
            if row is None:
                continue
            before = JobHistory()
            since = self._records.first_step_since(row.submitted_s)
            for body in self._records.steps_about(str(job_id), since, first):
                before.read(json.loads(body), only=job_id)
            self._history.old_holds += [replace(hold, end_s=end_s) for hold in before.holds.get(job_id, ())]
