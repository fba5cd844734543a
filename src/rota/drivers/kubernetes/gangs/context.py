"""What those who look after gangs share: the cluster, what is known of it, and what the engine is to be told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rota.core.messages.events import End, Event, JobEnded
from rota.core.model.job import Job, JobId
from rota.core.state.state import State
from rota.drivers.kubernetes.api.background_tasks import BackgroundTasks
from rota.drivers.kubernetes.api.client import Api
from rota.drivers.kubernetes.gangs.binder import Binder
from rota.drivers.kubernetes.gangs.gang import Gang, Stage
from rota.drivers.kubernetes.gangs.gang_index import GangIndex
from rota.drivers.kubernetes.gangs.headroom import Headroom
from rota.drivers.kubernetes.gangs.node_cache import NodeCache
from rota.drivers.kubernetes.gangs.occupancy import Occupancy
from rota.drivers.kubernetes.settings import ClusterSettings


class EventSink(Protocol):
    """Where the driver's events go, and what it may know of the engine."""

    @property
    def state(self) -> State:
        """What the engine knows; for reading only."""

    def tell(self, events: Sequence[Event], told: dict[JobId, Gang], why: dict[JobId, str]) -> None:
        """These things happened, in this order; `told` are the gangs of jobs that arrive."""

    def refuse(self, job: Job) -> str | None:
        """What about a job can never be had."""

    def is_used(self, name: JobId) -> bool:
        """Whether a job of this id has been here before."""


@dataclass(slots=True)
class Report:
    """What the engine is to be told: events in order, gangs of jobs that arrive, and words that go with ends."""

    events: list[Event] = field(default_factory=list)
    told: dict[JobId, Gang] = field(default_factory=dict)
    why: dict[JobId, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class DriverContext:
    """One driver's; `flush` looks at every gang that was touched and tells the engine."""

    api: Api
    settings: ClusterSettings
    binder: Binder
    roster: GangIndex
    fleet: NodeCache
    occupancy: Occupancy
    headroom: Headroom
    work: BackgroundTasks
    flush: Callable[[], None]
    outdated: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once gangs hold seats that nobody will take any more."""
    report: Report = field(default_factory=Report)
    desk: EventSink | None = None

    def done_work(self, gang: Gang) -> float:
        """What a gang has done so far, as the engine counts it."""
        assert self.desk is not None
        live = self.desk.state.jobs.get(gang.id)
        return 0.0 if live is None else live.work_done(time.time())

    def fail(self, gang: Gang, work: float) -> None:
        """A gang is over, and did not do what it was to do."""
        gang.stage = Stage.OVER
        self.report.why[gang.id] = gang.why or "pods failed"
        self.report.events.append(JobEnded(gang.id, End.FAILED, work))
