"""What reservations do to nodes and jobs, as events for an engine: in the live loop and in forecasts alike."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rota.core.messages.events import (
    Event,
    Interrupted,
    JobArrived,
    JobRequeued,
    JobUpdated,
    NodeReserved,
    StartFailed,
    Stopped,
)
from rota.core.model.job import Job, JobId, JobState, NodeId
from rota.core.model.labels import Taint
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.live.reservations.reservation import NodeReservation, may_be_stopped, tolerant, tolerations_for

MOST_S, OPEN_S = 30.0, 5.0
"""Between two looks: at most, and at most while the time of a reservation runs."""
WAITS = frozenset({JobState.WAITING, JobState.HELD})


class Enforcement(ABC):
    """Brings a state into agreement with reservations. Moments are those of the wall clock."""

    def __init__(self, reservations: Sequence[NodeReservation]) -> None:
        self._kept = tuple(reservations)
        self._due_s = -math.inf
        """When a look is due."""

    @property
    @abstractmethod
    def _state(self) -> State:
        """The state of the engine."""

    @abstractmethod
    def _wall_s(self) -> float:
        """The present moment."""

    @abstractmethod
    def _owner(self, job_id: JobId) -> str:
        """Return under which name a job was submitted."""

    def _look_again_s(self, now_s: float) -> float:
        """Return after which time to look again, whatever is due."""
        return OPEN_S if any(each.is_open(now_s) for each in self._kept) else MOST_S

    def _request(self, live: LiveJob) -> Job:
        """Return the request of a job, as it will be with all updates that are under way."""
        return live.job

    def _fit(self, job: Job, owner: str, ran_s: float) -> Job:
        """Return a job with the tolerations that it has now; a look is due when they end."""
        found, until_s = tolerations_for(job, owner, ran_s, self._kept, self._wall_s())
        if until_s < self._due_s:
            self._due_s = until_s
        return tolerant(job, found)

    def _gated(self, events: Sequence[Event], owner_of: Mapping[JobId, str]) -> list[Event]:
        """Return events with the tolerations of jobs that come in them, and of those that will wait again."""
        found: list[Event] = []
        for event in events:
            if isinstance(event, JobArrived):
                owner = owner_of.get(event.job.id, event.job.user)
                event = replace(event, job=self._fit(event.job, owner, 0.0))
            elif isinstance(event, Interrupted) and event.job is not None:
                event = replace(event, job=self._fit(event.job, self._owner(event.job_id), 0.0))
            found.append(event)
            if isinstance(event, Stopped | StartFailed) or (isinstance(event, Interrupted) and event.job is None):
                live = self._state.jobs.get(event.job_id)
                if live is not None and not live.state.is_final:
                    found += self._update(live)
        return found

    def _update(self, live: LiveJob) -> list[JobUpdated]:
        """Return the update that gives a job the tolerations that it has now; none if it has them."""
        job = self._request(live)
        fit = self._fit(job, self._owner(job.id), live.ran_s)
        if fit is job:
            return []
        return [JobUpdated(job.id, fit)]

    def _wanted(self) -> list[Event]:
        """Return what has to happen for nodes and jobs to be as the reservations want them."""
        now_s = self._wall_s()
        moments = [each.until_s if each.is_open(now_s) else each.from_s for each in self._kept]
        self._due_s = min([*(each for each in moments if each > now_s), now_s + self._look_again_s(now_s)])
        found = self._node_events(now_s)
        for live in self._state.jobs.values():
            if live.state in WAITS and not live.is_leaving:
                found += self._update(live)
            elif self._gives_way(live, now_s):
                found.append(JobRequeued(live.job.id))
        return found

    def _node_events(self, now_s: float) -> list[Event]:
        taints: dict[str, list[Taint]] = {}
        for each in self._kept:
            if each.until_s > now_s:
                for name in each.nodes:
                    taints.setdefault(name, []).append(each.taint(now_s))
        found: list[Event] = []
        for account in self._state.inventory.nodes:
            wanted = tuple(sorted(taints.get(str(account.node.id), ())))
            if wanted != account.reserved:
                found.append(NodeReserved(NodeId(account.node.id), wanted))
        return found

    def _gives_way(self, live: LiveJob, now_s: float) -> bool:
        """Return whether a job is on a node that is reserved for others now, and may be stopped."""
        if live.state.is_final or live.is_leaving or not may_be_stopped(live.job):
            return False
        owner = self._owner(live.job.id)
        shut = {
            name
            for each in self._kept
            if each.is_open(now_s) and not each.is_by_name and not each.has(str(live.job.tenant), owner)
            for name in each.nodes
        }
        accounts = self._state.inventory.nodes
        slots = (*(live.held or live.placement or ()), *(live.suspended_on or ()))
        return bool(shut) and any(str(accounts[slot.node].node.id) in shut for slot in slots)
