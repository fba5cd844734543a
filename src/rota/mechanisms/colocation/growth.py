"""Growth of elastic jobs on their node while no job waits; they shrink as soon as one does."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rota.core.engine.draft import Draft
from rota.core.model.job import WHOLE
from rota.core.model.placement import tasks_of
from rota.core.state.job_record import LiveJob
from rota.mechanisms.elastic.resize import fewer, more


class Growth:
    """Resizing of elastic jobs by how long no job has waited."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self.idle_since_s: float | None = None
        self.due_s = math.inf
        """When jobs may grow next."""

    def resize(self, draft: Draft, holders: Sequence[LiveJob], *, jobs_wait: bool) -> None:
        """Shrink elastic jobs at once if jobs wait; grow them after no job has waited for long enough."""
        self.due_s = math.inf
        elastic = [
            live for live in holders if _may_change(live) and live not in draft.touched and draft.may_preempt(live)
        ]
        if jobs_wait:
            self.idle_since_s = None
            for live in elastic:
                self._shrink(draft, live)
            return
        if self.idle_since_s is None:
            self.idle_since_s = draft.now_s
        if not elastic or not draft.inventory.free:
            return
        if draft.now_s < self.idle_since_s + self._after_s:
            self.due_s = self.idle_since_s + self._after_s
            return
        for live in elastic:
            self._grow(draft, live)

    def _shrink(self, draft: Draft, live: LiveJob) -> None:
        held, elastic = live.placement or (), live.job.elastic
        assert elastic is not None
        if tasks_of(held) > elastic.min_tasks:
            draft.release(live)
            draft.assign_offered(live, fewer(held, elastic.min_tasks, live.job.roles[0].device_milli // WHOLE))

    def _grow(self, draft: Draft, live: LiveJob) -> None:
        """Grow a job to as many tasks as its node has room for."""
        held, elastic = live.placement or (), live.job.elastic
        assert elastic is not None
        if len(held) > 1:
            return
        for tasks in range(elastic.max_tasks, tasks_of(held), -1):
            wider = more(held, tasks, live.job, draft.inventory)
            if wider is None:
                continue
            draft.release(live)
            fits = draft.inventory.is_free(wider, live.job.roles, live.job.exclusive, back=True)
            draft.assign_offered(live, wider if fits else held)
            if fits:
                return


def _may_change(live: LiveJob) -> bool:
    return live.job.elastic is not None and live.is_settled and live.job.roles[0].device_milli >= WHOLE
