"""A policy for tests: first come, first served; elastic jobs make room for who waits, and take what is free."""

from __future__ import annotations

import math
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.engine.protocols import Allocator, Capabilities, Changes
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import JobState
from rota.core.model.placement import Placement, Slot, lowest, tasks_of
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.mechanisms.declare import RESIZES, DeclaredPolicy, Traits
from rota.mechanisms.parameters import NoParams


class Stretch:
    """Jobs of one device for each task, on one node."""

    capabilities = Capabilities()

    memory: Any = None

    def __init__(self) -> None:
        self.wakeup_s = math.inf
        self._waiting: list[LiveJob] = []
        self._elastic: list[LiveJob] = []

    def adopt(self, state: State) -> None:
        self.wakeup_s = state.now_s
        for live in state.jobs.values():
            self._note_one(live)

    def note(self, changes: Changes, now_s: float) -> None:
        self.wakeup_s = now_s
        for live in changes.left:
            self._waiting = [each for each in self._waiting if each is not live]
            self._elastic = [each for each in self._elastic if each is not live]
        for live in (*changes.arrived, *changes.started):
            self._note_one(live)

    def _note_one(self, live: LiveJob) -> None:
        if live.state is JobState.WAITING and live not in self._waiting and not live.unmet:
            self._waiting.append(live)
        elif live.state is JobState.RUNNING and live.job.elastic is not None and live not in self._elastic:
            self._elastic.append(live)

    def plan(self, draft: Draft) -> None:
        self.wakeup_s = math.inf
        for live in list(self._waiting):
            found = draft.offer(live)
            if isinstance(found, Reason) and self._shrink(draft):
                found = draft.offer(live)
            if isinstance(found, Reason):
                draft.because(live, found)
                continue
            draft.assign(live, found)
            self._waiting.remove(live)
        if not self._waiting:
            self._grow(draft)

    def _shrink(self, draft: Draft) -> bool:
        changed = False
        for live in self._elastic:
            assert live.job.elastic is not None
            changed |= self._resize(draft, live, live.job.elastic.min_tasks)
        return changed

    def _grow(self, draft: Draft) -> None:
        for live in self._elastic:
            assert live.job.elastic is not None
            free = sum(books.free for books in draft.inventory.nodes)
            self._resize(draft, live, min(live.job.elastic.max_tasks, _tasks(live) + free))

    def _resize(self, draft: Draft, live: LiveJob, tasks: int) -> bool:
        if live.placement is None or live.stopping is not None or _tasks(live) == tasks:
            return False
        draft.release(live)
        draft.assign(live, _first_free(draft, tasks))
        return True

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        found = draft.offer(waiting)
        return found if isinstance(found, Reason) else Reason(code=ReasonCode.NOT_CONSIDERED)


def _tasks(live: LiveJob) -> int:
    return tasks_of(live.placement or ())


def _first_free(draft: Draft, tasks: int) -> Placement:
    return (Slot(node=0, devices=lowest(draft.inventory.nodes[0].free_mask, tasks), tasks=tasks),)


def make(params: Any, allocator: Allocator, knowledge: Any) -> Stretch:
    return Stretch()


stretch = DeclaredPolicy(
    name="stretch",
    cites="",
    summary="Elastic jobs make room, and take what is free.",
    traits=Traits(),
    params=NoParams,
    placement="any",
    make=make,
    emits=RESIZES,
)
