"""How many jobs the holder of a token may submit in a time, and have waiting."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.live.loop.control import Control
from rota.live.loop.entry import News
from rota.live.loop.record import shown_state

_WAITING = frozenset({"held", "waiting", "starting", "suspended"})
WAITING_RETRY_S = 30
"""After how long it is worth asking again whether fewer jobs wait."""
REFUSED_COST = 0.1
"""How much of its share of the rate a submission costs that is refused."""


class TooMany(RotaError):
    """A caller asks for more than its share; it may ask again after a while."""

    def __init__(self, message: str, retry_s: float) -> None:
        super().__init__(message)
        self.retry_s = max(math.ceil(retry_s), 1)


class Bucket:
    """A rate with a burst: every second adds `per_second`, up to `burst`."""

    __slots__ = ("_at_s", "_burst", "_left", "_per_second")

    def __init__(self, per_second: float, burst: float, now_s: float) -> None:
        self._per_second, self._burst = per_second, burst
        self._left, self._at_s = burst, now_s

    def wait_s(self, amount: float, now_s: float) -> float:
        """Take an amount and return 0, or take nothing and return when it can be taken."""
        if math.isinf(self._per_second):
            return 0.0
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._per_second)
        self._at_s = now_s
        if amount <= self._left:
            self._left -= amount
            return 0.0
        return (amount - self._left) / self._per_second

    def give_back(self, amount: float) -> None:
        """Give an amount back that was taken."""
        self._left = min(self._burst, self._left + amount)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuota:
    """What the holder of one token may submit."""

    per_second: float
    burst: int
    at_once: int
    waiting: int


class SubmissionQuotas:
    """Counts what each holder submits and has waiting."""

    def __init__(self, control: Control, quota: JobQuota, clock: Callable[[], float] = time.monotonic) -> None:
        self.quota = quota
        self._control = control
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}
        self._waiting: dict[JobId, str] = {}
        self._counts: dict[str, int] = {}
        """Waiting jobs by holder, those that are being accepted included."""
        for job_id, live in control.state.jobs.items():
            self._note(job_id, shown_state(live, control.kept[job_id]))
        control.listen(self._noticed)

    @contextmanager
    def charged(self, name: str, jobs: int) -> Iterator[None]:
        """Count jobs while they are checked; a tenth of them if they are refused, since that was not for nothing."""
        self.charge(name, jobs)
        try:
            yield
        except RotaError:
            self._buckets[name].give_back(jobs * (1.0 - REFUSED_COST))
            raise

    def charge(self, name: str, jobs: int) -> None:
        """Count jobs that a holder submits; raise `TooMany` above its rate."""
        now_s = self._clock()
        bucket = self._buckets.setdefault(name, Bucket(self.quota.per_second, self.quota.burst, now_s))
        wait_s = bucket.wait_s(jobs, now_s)
        if wait_s:
            raise TooMany(
                f"token {name!r} submits more than {self.quota.per_second:g} jobs per second after "
                f"{self.quota.burst} at once; try again in {math.ceil(wait_s)} s",
                wait_s,
            )

    @contextmanager
    def reserved(self, name: str, jobs: int) -> Iterator[None]:
        """Reserve places for jobs while they are accepted; raise `TooMany` if the holder has none left."""
        waiting = self._counts.get(name, 0)
        if waiting + jobs > self.quota.waiting:
            raise TooMany(
                f"token {name!r} has {waiting} waiting jobs; with {jobs} more it would have more than "
                f"{self.quota.waiting}; wait until some have started, or cancel some",
                WAITING_RETRY_S,
            )
        self._counts[name] = waiting + jobs
        try:
            yield
        finally:
            self._counts[name] -= jobs

    def _noticed(self, news: Sequence[News]) -> None:
        for each in news:
            self._note(each.job_id, each.state)

    def _note(self, job_id: JobId, state: str) -> None:
        if state in _WAITING:
            if job_id not in self._waiting and job_id in self._control.kept:
                owner = self._waiting[job_id] = self._control.kept[job_id].owner
                self._counts[owner] = self._counts.get(owner, 0) + 1
        elif (known := self._waiting.pop(job_id, None)) is not None:
            self._counts[known] -= 1
