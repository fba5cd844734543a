"""The context that the parts of the driver share: the API, caches, and pending events for the engine."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rota.core.messages.events import End, Event, JobArrived, JobCancelled, JobEnded, JobReleased
from rota.core.model.job import Job, JobId
from rota.core.state.state import State
from rota.drivers.kubernetes.api.background_tasks import BackgroundTasks
from rota.drivers.kubernetes.api.client import Api
from rota.drivers.kubernetes.gangs.binder import Binder
from rota.drivers.kubernetes.gangs.claim_binder import ClaimBinder
from rota.drivers.kubernetes.gangs.gang import Gang, Stage
from rota.drivers.kubernetes.gangs.gang_index import GangIndex
from rota.drivers.kubernetes.gangs.headroom import Headroom
from rota.drivers.kubernetes.gangs.node_cache import NodeCache
from rota.drivers.kubernetes.gangs.occupancy import Occupancy
from rota.drivers.kubernetes.gangs.pod_places import PodPlaces
from rota.drivers.kubernetes.gangs.volume_binder import VolumeBinder
from rota.drivers.kubernetes.settings import ClusterSettings
from rota.store import clock


class EventSink(Protocol):
    """The receiver of the driver's events, and its read-only view of the engine."""

    @property
    def state(self) -> State:
        """The engine's state; read-only."""

    def deliver(self, events: Sequence[Event], arriving: dict[JobId, Gang], why: dict[JobId, str]) -> None:
        """Deliver events in order; `arriving` holds the gangs of arriving jobs."""

    def refuse(self, job: Job) -> str | None:
        """Why a job can never run here, or None."""

    @property
    def is_settled(self) -> bool:
        """Whether all events that were delivered are part of the state."""

    def is_used(self, name: JobId) -> bool:
        """Whether a job of this id is or was known."""


@dataclass(slots=True)
class Report:
    """Pending input of the engine: events in order, gangs of arriving jobs, and messages for ended ones."""

    events: list[Event] = field(default_factory=list)
    arriving: dict[JobId, Gang] = field(default_factory=dict)
    why: dict[JobId, str] = field(default_factory=dict)

    def facts_first(self) -> list[Event]:
        """Return the events with jobs that come, go on or are withdrawn last: many of them are taken in several steps.

        What a node has left is a fact; a job that is placed before it is known would be bound to taken devices.
        """
        facts: list[Event] = []
        last: list[Event] = []
        waiting: set[JobId] = set()
        for event in self.events:
            name = event.job.id if isinstance(event, JobArrived) else getattr(event, "job_id", None)
            if name is not None and (name in waiting or isinstance(event, JobArrived | JobReleased | JobCancelled)):
                waiting.add(name)
                last.append(event)
            else:
                facts.append(event)
        return facts + last


@dataclass(slots=True, kw_only=True)
class DriverContext:
    """Shared by the parts of one driver; `flush` reconciles every touched gang and delivers the events."""

    api: Api
    settings: ClusterSettings
    binder: Binder
    volume_binder: VolumeBinder
    claim_binder: ClaimBinder
    gang_index: GangIndex
    node_cache: NodeCache
    occupancy: Occupancy
    headroom: Headroom
    places: PodPlaces
    work: BackgroundTasks
    flush: Callable[[], None]
    outdated: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once gangs hold slots that will stay empty."""
    report: Report = field(default_factory=Report)
    sink: EventSink | None = None

    def done_work(self, gang: Gang) -> float:
        """The work that a gang has done, as the engine counts it."""
        assert self.sink is not None
        live = self.sink.state.jobs.get(gang.id)
        return 0.0 if live is None else live.work_done(clock.now_s())

    def rate(self, gang: Gang) -> float:
        """The speed of a gang relative to its job at full size: assumed proportional to its number of pods."""
        assert self.sink is not None
        live = self.sink.state.jobs.get(gang.id)
        return 1.0 if live is None or live.job.elastic is None else len(gang.slots) / live.job.tasks

    def kept_work(self, gang: Gang) -> float:
        """The work that a gang keeps when its pods are gone: none, if its job saves nothing."""
        assert self.sink is not None
        live = self.sink.state.jobs.get(gang.id)
        starts_over = live is None or (live.job.checkpoint is not None and live.job.checkpoint.interval_s == math.inf)
        return 0.0 if starts_over else self.done_work(gang)

    def fail(self, gang: Gang, work: float) -> None:
        """End a gang as failed."""
        gang.stage = Stage.OVER
        self.report.why[gang.id] = gang.why or "pods failed"
        self.report.events.append(JobEnded(gang.id, End.FAILED, work))
