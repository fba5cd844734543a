"""The cluster over time, recorded step by step while an engine runs or a journal is replayed.

A timeline takes the place of a journal. Per step it only records which jobs started and which released their devices;
curves and bars are computed on request. The end of a job is in the history, so its rules are not repeated here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rota.core.engine.engine import Journal
from rota.core.messages.decisions import Decision, Renew, Stop, Suspend
from rota.core.messages.events import (
    Event,
    Interrupted,
    JobArrived,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobReleased,
    Moved,
    NodeAdded,
    NodeBack,
    NodeLost,
    NodeRemoved,
    Resized,
    Resumed,
    Started,
    StartFailed,
    Stopped,
    Suspended,
    WorkDone,
)
from rota.core.messages.reasons import Reason
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import WHOLE, JobId, NodeId
from rota.core.model.placement import Placement
from rota.core.state.history import History
from rota.report.series import Floats, Series, from_changes, from_intervals

_RELEASING = (JobEnded, Stopped, Interrupted)


class Tee:
    """A journal that passes each step to several others."""

    def __init__(self, *journals: Journal) -> None:
        self._journals = journals

    def append(
        self,
        now_s: float,
        events: Sequence[Event],
        decisions: Sequence[Decision],
        waits: Sequence[tuple[JobId, Reason]],
    ) -> None:
        """Pass one step to each."""
        for journal in self._journals:
            journal.append(now_s, events, decisions, waits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Intervals in which a job held devices of one node, in parallel columns."""

    job_ids: list[JobId]
    nodes: NDArray[np.int32]
    """Index of the node in the cluster."""
    masks: list[int]
    """The devices held there, as a bit mask."""
    milli: NDArray[np.int32]
    """Thousandths held of each of those devices."""
    start_s: Floats
    end_s: Floats

    def __len__(self) -> int:
        return len(self.masks)

    def devices(self) -> Floats:
        """Devices that each interval holds; a fraction of a device counts as that fraction."""
        counts = np.fromiter((mask.bit_count() for mask in self.masks), dtype=np.float64, count=len(self))
        return counts * self.milli / WHOLE


class Timeline:
    """A journal that keeps what figures over time need. It is small and can be pickled."""

    def __init__(self, cluster: Cluster) -> None:
        self.node_ids: list[NodeId] = [node.id for node in cluster.nodes]
        self.node_devices: list[int] = [node.devices for node in cluster.nodes]
        self.events = 0
        """Events recorded so far."""
        self.first_s: float | None = None
        self.last_s = 0.0
        self._ordered: dict[JobId, Placement] = {}
        self._running: dict[JobId, tuple[float, Placement]] = {}
        self._job_ids: list[JobId] = []
        self._start_s = array("d")
        self._end_s = array("d")
        self._slots = array("i")
        self._nodes = array("i")
        self._masks: list[int] = []
        self._milli = array("h")
        self._held: dict[JobId, float] = {}
        self._holds = array("d")
        self._down: set[int] = set()
        self._capacity: list[tuple[float, int]] = [(0.0, cluster.devices)]

    def append(
        self,
        now_s: float,
        events: Sequence[Event],
        decisions: Sequence[Decision],
        waits: Sequence[tuple[JobId, Reason]],
    ) -> None:
        """Record one step."""
        if self.first_s is None:
            self.first_s = now_s
        self.last_s = now_s
        self.events += len(events)
        for event in events:
            if isinstance(event, Started):
                self._running[event.job_id] = (now_s, self._ordered.pop(event.job_id, ()))
            elif isinstance(event, _RELEASING):
                self._release(event.job_id, now_s)
            elif not isinstance(event, JobArrived) or event.held:
                self._record_rare(event, now_s)
        for decision in decisions:
            if isinstance(decision, Renew):
                self._renew(decision, now_s)
            elif not isinstance(decision, Stop | Suspend):
                self._ordered[decision.job_id] = decision.placement

    def _release(self, job_id: JobId, now_s: float) -> None:
        self._ordered.pop(job_id, None)
        run = self._running.pop(job_id, None)
        if run is None:
            return
        start_s, placement = run
        self._job_ids.append(job_id)
        self._start_s.append(start_s)
        self._end_s.append(now_s)
        self._slots.append(len(placement))
        for slot in placement:
            self._nodes.append(slot.node)
            self._masks.append(slot.devices)
            self._milli.append(slot.milli)

    def _renew(self, order: Renew, now_s: float) -> None:
        """Record a renewed lease, which may change the job's fractions of its devices."""
        run = self._running.get(order.job_id)
        if run is not None and run[1] != order.placement:
            self._release(order.job_id, now_s)
            self._running[order.job_id] = (now_s, order.placement)

    def _record_rare(self, event: Event, now_s: float) -> None:
        match event:
            case Resumed():
                self._running[event.job_id] = (now_s, self._ordered.pop(event.job_id, ()))
            case Suspended() | WorkDone():
                self._release(event.job_id, now_s)
            case Resized() | Moved():
                if event.job_id in self._running or isinstance(event, Moved):
                    _, before = self._running.get(event.job_id, (now_s, ()))
                    placement = self._ordered.pop(event.job_id, before)
                    self._release(event.job_id, now_s)
                    self._running[event.job_id] = (now_s, placement)
            case StartFailed():
                self._ordered.pop(event.job_id, None)
            case JobArrived():
                self._held[event.job.id] = now_s
            case JobHeld():
                if event.job_id not in self._running and event.job_id not in self._ordered:
                    self._held.setdefault(event.job_id, now_s)
            case JobReleased() | JobCancelled():
                held_s = self._held.pop(event.job_id, None)
                if held_s is not None:
                    self._holds.extend((held_s, now_s))
            case NodeAdded():
                self._add(event.node, now_s)
            case NodeRemoved():
                self._set_up(self.node_ids.index(event.node_id), False, now_s)
            case NodeLost() | NodeBack():
                self._set_up(self.node_ids.index(event.node_id), isinstance(event, NodeBack), now_s)
            case _:
                pass

    def _add(self, node: Node, now_s: float) -> None:
        """Record a node that joined, or came back at its old index."""
        if node.id in self.node_ids:
            index = self.node_ids.index(node.id)
            self._set_up(index, False, now_s)
            self.node_devices[index] = node.devices
            self._set_up(index, True, now_s)
            return
        self.node_ids.append(node.id)
        self.node_devices.append(node.devices)
        self._capacity.append((now_s, node.devices))

    def _set_up(self, node: int, up: bool, now_s: float) -> None:
        if up != (node in self._down):
            return
        if up:
            self._down.discard(node)
        else:
            self._down.add(node)
        devices = self.node_devices[node]
        self._capacity.append((now_s, devices if up else -devices))

    # -- what was recorded -----------------------------------------------------------------------

    def capacity(self) -> Series:
        """Devices of nodes that were up, over time."""
        times_s = np.array([at_s for at_s, _ in self._capacity], dtype=np.float64)
        times_s[0] = self.first_s or 0.0
        changes = np.array([change for _, change in self._capacity], dtype=np.float64)
        return from_changes(times_s, changes)

    def running(self) -> Series:
        """Jobs that ran, over time."""
        start_s, end_s = self._runs()
        return from_intervals(start_s, end_s)

    def devices_in_use(self) -> Series:
        """Devices held by running jobs, over time; a fraction of a device counts as that fraction."""
        held = self.segments()
        return from_intervals(held.start_s, held.end_s, held.devices())

    def waiting(self, history: History) -> Series:
        """Jobs that waited, over time: those submitted and not ended, less those that ran or were held."""
        jobs = history.jobs
        submit_s = np.array([row.submit_s for row in jobs], dtype=np.float64)
        end_s = np.array([self.last_s if row.end_s is None else row.end_s for row in jobs], dtype=np.float64)
        away_s, back_s = self._runs()
        held_s, freed_s = self._held_spans(history)
        times_s = np.concatenate([submit_s, end_s, away_s, back_s, held_s, freed_s])
        signs = (1.0, -1.0, -1.0, 1.0, -1.0, 1.0)
        spans = (submit_s, end_s, away_s, back_s, held_s, freed_s)
        changes = np.concatenate([np.full(s.size, sign) for s, sign in zip(spans, signs, strict=True)])
        return from_changes(times_s, changes)

    def segments(self) -> Segments:
        """All intervals, oldest end first; those of running jobs end at the last step."""
        slots = np.array(self._slots, dtype=np.intp)
        open_runs = [(job, start_s, slot) for job, (start_s, held) in self._running.items() for slot in held]
        return Segments(
            job_ids=[
                *(job for job, count in zip(self._job_ids, self._slots, strict=True) for _ in range(count)),
                *(job for job, _, _ in open_runs),
            ],
            nodes=np.array([*self._nodes, *(slot.node for _, _, slot in open_runs)], dtype=np.int32),
            masks=self._masks + [slot.devices for _, _, slot in open_runs],
            milli=np.array([*self._milli, *(slot.milli for _, _, slot in open_runs)], dtype=np.int32),
            start_s=np.append(np.repeat(np.array(self._start_s), slots), [at_s for _, at_s, _ in open_runs]),
            end_s=np.append(np.repeat(np.array(self._end_s), slots), np.full(len(open_runs), self.last_s)),
        )

    def _runs(self) -> tuple[Floats, Floats]:
        open_s = [start_s for start_s, _ in self._running.values()]
        start_s = np.append(np.array(self._start_s, dtype=np.float64), open_s)
        end_s = np.append(np.array(self._end_s, dtype=np.float64), np.full(len(open_s), self.last_s))
        return start_s, end_s

    def _held_spans(self, history: History) -> tuple[Floats, Floats]:
        spans = np.array(self._holds, dtype=np.float64).reshape(-1, 2)
        if self._held:
            ends = {row.id: row.end_s for row in history.jobs if row.id in self._held}
            still = [
                (at_s, self.last_s if (end_s := ends.get(job)) is None else end_s) for job, at_s in self._held.items()
            ]
            spans = np.concatenate([spans, np.array(still, dtype=np.float64)])
        return spans[:, 0], spans[:, 1]


def lanes(mask: int) -> Iterator[tuple[int, int]]:
    """Yield the runs of neighbouring devices in a mask, as (first, how many)."""
    low = 0
    while mask:
        skip = (mask & -mask).bit_length() - 1
        mask >>= skip
        low += skip
        count = (~mask & mask + 1).bit_length() - 1
        yield low, count
        mask >>= count
        low += count
