"""Timers of leases: the engine is notified when the lease of a job ends.

The tasks of a job whose lease is over run on until the plan for the next round, which follows at once when the last
lease is over, says whether they stay: so a job that stays loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rota.core.messages.decisions import Lease
from rota.core.messages.events import Event, Lapsed, SpeedChanged
from rota.core.model.job import JobId, JobState
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.store import clock

LOOK_S = 30.0
"""How long a timer waits at most before it looks at the clock again."""


class Leases:
    """A timer for each lease in effect."""

    def __init__(self, state: State, answer: Callable[[Event], None]) -> None:
        self._state = state
        self._answer = answer
        self._timers: dict[JobId, tuple[Lease, asyncio.TimerHandle]] = {}

    def watch(self, live: LiveJob) -> None:
        """Set or cancel the timer after a change of a job: a lease counts while the job runs."""
        job_id, lease = live.job.id, live.lease
        known = self._timers.get(job_id)
        if known is not None and known[0] == lease and _is_under_way(live):
            return
        if known is not None:
            known[1].cancel()
            del self._timers[job_id]
        if lease is not None and _is_under_way(live):
            self._set(live, lease)

    def renewed(self, live: LiveJob) -> None:
        """Answer that a job continues under its next lease."""
        self._answer(SpeedChanged(live.job.id, live.work, 1.0))

    def take_up(self, live: LiveJob) -> None:
        """Continue a lease after a restart; answer one that was not answered before."""
        if _is_under_way(live) and live.lease is not None:
            if not live.rate:
                self.renewed(live)
            self.watch(live)

    def _set(self, live: LiveJob, lease: Lease) -> None:
        """Set the timer; a far end is looked at again, as timers stand still while the machine is suspended."""
        wait_s = min(max(lease.until_s - clock.now_s(), 0.0), LOOK_S)
        self._timers[live.job.id] = (lease, asyncio.get_running_loop().call_later(wait_s, self._over, live, lease))

    def _over(self, live: LiveJob, lease: Lease) -> None:
        if clock.now_s() < lease.until_s:
            self._set(live, lease)
            return
        del self._timers[live.job.id]
        self._answer(Lapsed(live.job.id, live.work_done(clock.now_s())))


def _is_under_way(live: LiveJob) -> bool:
    return live.state is JobState.RUNNING and live.stopping is None
