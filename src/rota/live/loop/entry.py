"""What goes into the loop, and what it tells of a step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rota.core.errors import RotaError, Unavailable
from rota.core.messages.decisions import Decision
from rota.core.messages.events import Event, JobCancelled
from rota.core.messages.reasons import Reason
from rota.core.model.cluster import Cluster
from rota.core.model.job import JobId
from rota.live.loop.record import Record
from rota.store.accounts.usage import UsageRow
from rota.store.records import WriteBatch


@dataclass(frozen=True, slots=True)
class JournalSegment:
    """A new journal segment, because the policy changes: the change, and the segment's header."""

    change: Callable[[], None]
    header: Callable[[], dict[str, Any]]


@dataclass(slots=True)
class LoopEntry:
    """Events for the next step, and what is written with them."""

    events: list[Event]
    records: dict[JobId, Record] = field(default_factory=dict)
    answers: list[dict[str, Any]] = field(default_factory=list)
    drained: dict[str, bool] = field(default_factory=dict)
    audit: list[dict[str, Any]] = field(default_factory=list)
    forecasts: list[dict[str, Any]] = field(default_factory=list)
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    """What became of jobs that were forecast."""
    settings: dict[str, str] = field(default_factory=dict)
    specs: dict[JobId, str] = field(default_factory=dict)
    """The job files of jobs that an event updates."""
    cluster: Cluster | None = None
    """The cluster after the events, if they change it."""
    sweeps: list[dict[str, Any]] = field(default_factory=list)
    """Sweeps that are new or changed."""
    trials: list[dict[str, Any]] = field(default_factory=list)
    """Trials that are new or changed."""
    usage: list[UsageRow] = field(default_factory=list)
    """What is added to the accounts beside the device time of the events."""
    holds: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    """Jobs that a budget holds, or holds no longer."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    """Messages to be sent."""
    segment: JournalSegment | None = None
    """Begins before the events."""
    done: asyncio.Future[None] | None = None

    @property
    def cancels(self) -> bool:
        """Whether it does nothing but cancel jobs, which is possible even while nothing can be stored."""
        return bool(self.events) and all(isinstance(event, JobCancelled) for event in self.events)

    def add_to(self, batch: WriteBatch) -> None:
        """Add what is written with the events to a batch."""
        batch.answers.extend(self.answers)
        batch.drained.update(self.drained)
        batch.audit.extend(self.audit)
        batch.forecasts.extend(self.forecasts)
        batch.outcomes.extend(self.outcomes)
        batch.settings.update(self.settings)
        batch.sweeps.extend(self.sweeps)
        batch.trials.extend(self.trials)
        batch.usage.extend(self.usage)
        batch.holds.update(self.holds)
        batch.messages.extend(self.messages)

    def answer(self, error: RotaError | Unavailable | None = None) -> None:
        """Answer the request, if one waits for that: it is durable, or refused."""
        if self.done is None or self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


@dataclass(frozen=True, slots=True)
class News:
    """A change of a job's state, or a warning about it."""

    job_id: JobId
    tenant: str
    state: str
    step: int
    warning: str = ""


class StepRecorder:
    """The engine's journal during one step: keeps the reasons of waiting jobs for the transaction."""

    def __init__(self) -> None:
        self.waits: list[tuple[JobId, Reason]] = []

    def append(
        self,
        now_s: float,
        events: Sequence[Event],
        decisions: Sequence[Decision],
        waits: Sequence[tuple[JobId, Reason]],
    ) -> None:
        """Keep the reasons of waiting jobs."""
        self.waits = list(waits)
