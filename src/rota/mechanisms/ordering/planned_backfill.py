"""Backfill with a plan of nodes, between plans: when jobs may pass others, and what is reserved meanwhile."""

from __future__ import annotations

import math

from rota.core.engine.draft import Draft
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.mechanisms.ordering.index import Index
from rota.mechanisms.ordering.node_plan import PlannedStart, first_on
from rota.mechanisms.ordering.planned_walk import PlannedWalk, expected_s, nodes_of
from rota.mechanisms.ordering.rule import Planning

_NEAR = 1e-9
"""Of an interval: so close to a multiple of it is one."""


class PlannedBackfill:
    """The part of the list scheduler that walks down the order with reservations of nodes."""

    def __init__(self, planning: Planning) -> None:
        self._planning = planning
        self._reserved: list[PlannedStart] = []
        """The reservations of the last whole walk."""
        self._last: LiveJob | None = None
        """The last job that it considered."""
        self.wakeup_s = math.inf
        """When jobs may pass others next, where that is not so at every event."""

    def adopt(self, now_s: float) -> None:
        """Begin with a state that may hold jobs which could pass others."""
        if self._planning.interval_s:
            self.wakeup_s = next_multiple(now_s, self._planning.interval_s)

    def plan(self, index: Index, draft: Draft) -> None:
        """Start jobs in order, and at the time for it others that are in the way of no reservation."""
        index.fresh = {}
        index.look_at_all = False
        cycle_s = next_multiple(draft.now_s, self._planning.interval_s)
        is_due = min(cycle_s, self.wakeup_s) <= draft.now_s
        self.wakeup_s = math.inf if is_due else cycle_s
        displaced: dict[LiveJob, None] = {}
        while True:  # what starts may change where others are expected to
            walk = PlannedWalk(self._planning, index, draft, displaced)
            walk.run(whole=is_due)
            if not walk.started:
                break
        if is_due:
            self._reserved, self._last = walk.plan.reservations, walk.last

    def reason(self, waiting: LiveJob, there: Placement, now_s: float) -> Reason:
        """Why a job was not started that would fit there."""
        ends_s = now_s + expected_s(waiting, self._planning, now_s)
        blocking = first_on(self._reserved, nodes_of(there), ends_s)
        if blocking is not None:
            return blocking.reason()
        if self.wakeup_s < math.inf:
            return Reason(code=ReasonCode.ROUND, until_s=self.wakeup_s)
        if self._last is not None:
            return Reason(code=ReasonCode.BEHIND, job=self._last.job.id)
        return Reason(code=ReasonCode.NOT_CONSIDERED)


def next_multiple(at_s: float, interval_s: float) -> float:
    """The first multiple of an interval from a moment on; the moment itself without an interval."""
    return max(math.ceil(at_s / interval_s - _NEAR) * interval_s, at_s) if interval_s else at_s
