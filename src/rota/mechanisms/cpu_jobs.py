"""Jobs without devices under a policy that plans devices: they need no turn and start as soon as there is room."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rota.core.engine.draft import Draft
from rota.core.messages.reasons import Reason
from rota.core.state.job_record import LiveJob


class CpuJobs:
    """The waiting jobs that ask for no devices, in order of arrival."""

    def __init__(self) -> None:
        self._waiting: dict[LiveJob, None] = {}
        self.relaxes_s = math.inf
        """When one that found no room relaxes its locality."""

    def __contains__(self, live: LiveJob) -> bool:
        return live in self._waiting

    def __iter__(self) -> Iterator[LiveJob]:
        return iter(self._waiting)

    def add(self, live: LiveJob) -> None:
        """Add a job that waits."""
        self._waiting[live] = None

    def remove(self, live: LiveJob) -> None:
        """Remove a job, if it is here."""
        self._waiting.pop(live, None)

    def start(self, draft: Draft) -> None:
        """Start every job that there is room for; record why the others wait."""
        self.relaxes_s = math.inf
        for live in list(self._waiting):
            offered = draft.offer(live)
            if isinstance(offered, Reason):
                draft.because(live, offered)
                self.relaxes_s = min(self.relaxes_s, draft.allocator.stage(live, draft.now_s)[1])
            else:
                draft.assign_offered(live, offered)
                del self._waiting[live]
