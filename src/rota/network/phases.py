"""Periodic jobs on shared links, simulated phase by phase: when each computes, when it sends, and how fast.

An iteration computes alone for a while, then sends; the rest of its computing may run beside the sending. It ends when
both are done. The rates of those that send at the same time are their max-min fair shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rota.core.errors import RotaError
from rota.network.sharing import LinkUse, max_min
from rota.network.topology import Floats

LATE = 0.1
"""The part of its period by which a job may miss its turn; `rota.sdk.IterationShift` waits likewise."""
_DONE = 1e-9
"""Fraction of the bytes of an iteration that counts as sent: less is rounding of the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasedJob:
    """One iteration of a job: quiet seconds, then `bytes` at a level of at most `top_level`, beside `hidden_s` of work.

    `loads` is how much of each link a level of 1 uses. A higher `priority` is served first.
    """

    quiet_s: float
    bytes: float
    loads: Mapping[int, float]
    hidden_s: float = 0.0
    top_level: float = math.inf
    priority: int = 0
    shift_s: float = 0.0
    """When its first iteration starts."""
    period_s: float = 0.0
    """If it keeps turns: how far its iterations start apart. One that is late by over a tenth waits for the next."""

    @property
    def alone_comm_s(self) -> float:
        """The time that it sends for when nothing else does, given its own top level."""
        return self.bytes / self.top_level if self.bytes else 0.0

    @property
    def alone_s(self) -> float:
        """The time of an iteration alone."""
        return self.quiet_s + max(self.alone_comm_s, self.hidden_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseOutcome:
    """Mean time of an iteration of each job, after warming up, and the fraction of time in which links were full."""

    iteration_s: tuple[float, ...]
    worst_s: tuple[float, ...]
    busy: Mapping[int, float]


class _Levels:
    """Levels of the jobs that send, kept for each set of them: few sets occur again and again."""

    def __init__(self, jobs: Sequence[PhasedJob], capacity: Floats) -> None:
        self._jobs = jobs
        links = sorted({link for job in jobs for link in job.loads})
        self._place = {link: place for place, link in enumerate(links)}
        self._capacity = capacity[links] if links else np.zeros(0)
        self._known: dict[tuple[int, ...], list[float]] = {}

    def of(self, sending: tuple[int, ...]) -> list[float]:
        found = self._known.get(sending)
        if found is None:
            jobs = [self._jobs[number] for number in sending]
            use = LinkUse.of([{self._place[link]: load for link, load in job.loads.items()} for job in jobs])
            caps = np.array([job.top_level for job in jobs])
            priority = np.array([job.priority for job in jobs])
            by = priority if len(set(priority.tolist())) > 1 else None
            found = self._known[sending] = max_min(use, self._capacity, caps, by).tolist()
        return found


def run_phases(jobs: Sequence[PhasedJob], capacity: Floats, *, iterations: int = 20, warm_up: int = 5) -> PhaseOutcome:
    """Simulate until every job has done so many iterations after its warm-up."""
    if iterations < 1 or warm_up < 0:
        raise RotaError(f"{iterations} iterations after {warm_up}; there must be at least 1 after 0 or more")
    count = len(jobs)
    levels = _Levels(jobs, capacity)
    now_s = 0.0
    began = [job.shift_s for job in jobs]
    quiet_until = [job.shift_s + job.quiet_s for job in jobs]
    left = [-1.0] * count  # bytes to send; below 0 while it does not send
    ready = [math.inf] * count  # when the computing beside the sending is done, once all was sent
    times: list[list[float]] = [[] for _ in jobs]
    busy: dict[int, float] = {}
    need = iterations + warm_up
    most_events = 40 * need * max(count, 1) * _spread(jobs)
    for _ in range(most_events):
        if all(len(done) >= need for done in times):
            break
        sending = tuple(number for number in range(count) if left[number] >= 0)
        rates = levels.of(sending) if sending else []
        next_s = min((quiet_until[n] for n in range(count) if left[n] < 0 and ready[n] == math.inf), default=math.inf)
        next_s = min([next_s, *ready])
        for number, rate in zip(sending, rates, strict=True):
            if rate > 0:
                next_s = min(next_s, now_s + left[number] / rate)
        step_s = max(next_s - now_s, 0.0)
        for number, rate in zip(sending, rates, strict=True):
            left[number] = max(left[number] - rate * step_s, 0.0)
            for link, load in jobs[number].loads.items():
                busy[link] = busy.get(link, 0.0) + load * rate * step_s
        now_s = next_s
        for number, job in enumerate(jobs):
            if left[number] >= 0 and left[number] <= _DONE * max(job.bytes, 1.0):
                left[number] = -1.0
                ready[number] = max(now_s, began[number] + job.quiet_s + job.hidden_s)
            elif left[number] < 0 and ready[number] == math.inf and quiet_until[number] <= now_s:
                left[number] = job.bytes
            if ready[number] <= now_s:
                next_s = _turn_s(job, now_s)
                times[number].append(next_s - began[number])
                began[number], quiet_until[number], ready[number] = next_s, next_s + job.quiet_s, math.inf
    return PhaseOutcome(
        iteration_s=tuple(float(np.mean(done[warm_up:])) if len(done) > warm_up else math.inf for done in times),
        worst_s=tuple(max(done[warm_up:], default=math.inf) for done in times),
        busy={link: amount / (capacity[link] * now_s) for link, amount in sorted(busy.items())} if now_s else {},
    )


def _turn_s(job: PhasedJob, now_s: float) -> float:
    """Return when the next iteration of a job starts that has ended one now."""
    if not job.period_s:
        return now_s
    late_s = (now_s - job.shift_s) % job.period_s
    is_in_time = late_s <= LATE * job.period_s or job.period_s - late_s <= 1e-9 * max(now_s, job.period_s)
    return now_s if is_in_time else now_s + job.period_s - late_s


def _spread(jobs: Sequence[PhasedJob]) -> int:
    """Return how many iterations the fastest job does during one of the slowest."""
    alone = [job.alone_s for job in jobs if job.alone_s > 0]
    return max(math.ceil(max(alone) / min(alone)), 1) if alone else 1
