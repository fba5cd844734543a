"""Cassini: jobs on one link fit when their phases interleave; time shifts for all links from an affinity graph.

A job is a circle as long as its iteration; the arc in which it sends has a demand. Jobs on a link are put on one circle
as long as the least common multiple of their iterations, and turned until they exceed the link least (Rajasekaran et
al., NSDI 2024).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rota.core.errors import RotaError
from rota.network.topology import Floats, Ints

ANGLES = 720
"""Places on the unified circle at which demand is compared."""
LONGEST = 12
"""The unified circle is at most so many times the longest iteration; periods are rounded to make it so."""
SWEEPS = 6
MOST_STRETCH = 0.05
"""How much longer an iteration may be made to close its circle with those of others."""
COARSE = 72
"""Rotations that the coarse search tries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCircle:
    """The iteration of a job, and the arc in which it sends at `demand` bytes per second."""

    period_s: float
    start_s: float
    length_s: float
    demand: float

    def __post_init__(self) -> None:
        if not 0 < self.period_s < math.inf or not 0 <= self.length_s <= self.period_s * (1 + 1e-9):
            raise RotaError(
                f"a circle of {self.period_s:g} s with an arc of {self.length_s:g} s; the arc must be within the circle"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkScore:
    """How well jobs fit on a link: 1 when they never exceed it. `shifts_s` is when each job's iteration starts."""

    score: float
    shifts_s: tuple[float, ...]


def unified_s(periods: Sequence[float]) -> float:
    """Return the length of the circle on which all jobs close: the least common multiple of rounded periods."""
    shortest, longest = min(periods), max(periods)
    best, best_error = longest, math.inf
    for turns in range(1, LONGEST + 1):
        length = longest * turns
        error = max(abs(length / period - round(length / period)) / (length / period) for period in periods)
        if error < best_error - 1e-12 and round(length / shortest) <= ANGLES // 4:
            best, best_error = length, error
    return best


def demand_on(circle: JobCircle, length_s: float, angles: int = ANGLES) -> Floats:
    """Return the mean demand of a job in each interval of a unified circle."""
    turns = max(round(length_s / circle.period_s), 1)
    edges = np.linspace(0.0, turns, angles + 1)
    start, arc = circle.start_s / circle.period_s, circle.length_s / circle.period_s

    def sent(until: Floats) -> Floats:
        shifted = until - start
        whole = np.floor(shifted)
        return whole * arc + np.minimum(shifted - whole, arc)

    return np.diff(sent(edges)) * angles / turns * circle.demand


def excess(total: Floats, capacity: float) -> float:
    """Return the mean demand above a link's capacity, relative to it."""
    return float(np.maximum(total - capacity, 0.0).mean()) / capacity


def score_of(circles: Sequence[JobCircle], capacity: float, shifts_s: Sequence[float] | None = None) -> float:
    """Return 1 less the mean excess, at given shifts."""
    length_s = unified_s([circle.period_s for circle in circles])
    total = np.zeros(ANGLES)
    for circle, shift_s in zip(circles, shifts_s or [0.0] * len(circles), strict=True):
        moved = JobCircle(
            period_s=circle.period_s,
            start_s=circle.start_s + shift_s,
            length_s=circle.length_s,
            demand=circle.demand,
        )
        total += demand_on(moved, length_s)
    return 1.0 - excess(total, capacity)


def best_shifts(circles: Sequence[JobCircle], capacity: float) -> LinkScore:
    """Return the shifts of jobs on one link with the best score; the first job is not shifted.

    Each job in turn takes its best rotation, the largest first, until nothing improves.
    """
    length_s = unified_s([circle.period_s for circle in circles])
    demands = [demand_on(circle, length_s) for circle in circles]
    turns = [max(round(length_s / circle.period_s), 1) for circle in circles]
    chosen = [0] * len(circles)
    order = sorted(range(1, len(circles)), key=lambda n: (-circles[n].demand * circles[n].length_s, n))
    placed = demands[0].copy()
    for number in order:
        chosen[number] = _best_turn(demands[number], placed, capacity, ANGLES // turns[number])
        placed += np.roll(demands[number], chosen[number])
    for _ in range(SWEEPS):
        before = list(chosen)
        for number in order:
            placed -= np.roll(demands[number], chosen[number])
            chosen[number] = _best_turn(demands[number], placed, capacity, ANGLES // turns[number], chosen[number])
            placed += np.roll(demands[number], chosen[number])
        if chosen == before:
            break
    shifts = tuple(turn * length_s / ANGLES % circle.period_s for turn, circle in zip(chosen, circles, strict=True))
    return LinkScore(score=1.0 - excess(placed, capacity), shifts_s=shifts)


def _best_turn(demand: Floats, placed: Floats, capacity: float, choices: int, now: int = 0) -> int:
    """Return the rotation with the least excess; the present one, then the least, where several are equal.

    A coarse search comes first, then a fine one around its best.
    """
    stride = max(choices // COARSE, 1)
    coarse = np.unique(np.append(np.arange(0, max(choices, 1), stride), now % max(choices, 1)))
    best = int(coarse[_excess_at(coarse, demand, placed, capacity).argmin()])
    if stride > 1:
        fine = np.unique(np.append(np.arange(best - stride + 1, best + stride), now) % choices)
        over = _excess_at(fine, demand, placed, capacity)
        lowest = float(over.min()) * (1 + 1e-9) + 1e-12 * capacity
        best = best if over[fine == best][0] <= lowest else int(fine[over.argmin()])
    both = _excess_at(np.array([now % max(choices, 1), best]), demand, placed, capacity)
    return now if both[0] <= both[1] * (1 + 1e-9) + 1e-12 * capacity else best


def _excess_at(turns: Ints, demand: Floats, placed: Floats, capacity: float) -> Floats:
    """Return the mean excess at each rotation."""
    index = (np.arange(len(demand))[None, :] - turns[:, None]) % len(demand)
    excess_at: Floats = np.maximum(demand[index] + placed[None, :] - capacity, 0.0).mean(axis=1)
    return excess_at


@dataclass(frozen=True, slots=True, kw_only=True)
class AffinityShifts:
    """Shifts of all jobs, the score of each contended link, and whether every link could have its own best shifts."""

    shifts_s: tuple[float, ...]
    scores: Mapping[int, float]
    is_loop_free: bool

    @property
    def score(self) -> float:
        """The mean score of contended links; 1 without any."""
        return sum(self.scores.values()) / len(self.scores) if self.scores else 1.0


def affinity_shifts(
    circles: Sequence[JobCircle], jobs_by_link: Mapping[int, Mapping[int, float]], capacity: Mapping[int, float]
) -> AffinityShifts:
    """Return one shift for each job that keeps the best shifts of its links relative to each other.

    `jobs_by_link` is the demand of each job on each contended link. The walk starts at one job of every component and
    passes links with the lowest score first. A link whose jobs are already shifted closes a loop and is left as it is.
    """
    best = {}
    for link, demands in sorted(jobs_by_link.items()):
        numbers = sorted(demands)
        own = [
            JobCircle(
                period_s=circles[n].period_s,
                start_s=circles[n].start_s,
                length_s=circles[n].length_s,
                demand=demands[n],
            )
            for n in numbers
        ]
        best[link] = best_shifts(own, capacity[link])
    links_by_job: dict[int, list[int]] = {}
    for link in sorted(best, key=lambda each: (best[each].score, each)):
        for number in sorted(jobs_by_link[link]):
            links_by_job.setdefault(number, []).append(link)
    shifts: dict[int, float] = {}
    is_loop_free = True
    for root in sorted(links_by_job):
        if root in shifts:
            continue
        shifts[root] = 0.0
        queue, seen = deque([root]), set()
        while queue:
            here = queue.popleft()
            for link in links_by_job[here]:
                if link in seen:
                    continue
                seen.add(link)
                on_link = dict(zip(sorted(jobs_by_link[link]), best[link].shifts_s, strict=True))
                for other, shift_s in on_link.items():
                    if other == here:
                        continue
                    if other in shifts:
                        is_loop_free = False
                        continue
                    shifts[other] = (shifts[here] - on_link[here] + shift_s) % circles[other].period_s
                    queue.append(other)
    return AffinityShifts(
        shifts_s=tuple(shifts.get(number, 0.0) for number in range(len(circles))),
        scores={link: found.score for link, found in best.items()},
        is_loop_free=is_loop_free,
    )


def joining_shift(
    own: JobCircle,
    demands: Mapping[int, float],
    beside: Mapping[int, Sequence[JobCircle]],
    capacity: Mapping[int, float],
) -> tuple[float, float]:
    """Return the shift and the period of a job that joins others whose turns stay as they are.

    `beside` are the circles of the others on each link that they would exceed with it, at their shifts; `demands` is
    what it sends there itself. Its period is lengthened by at most a twentieth where its circle then closes with
    theirs. The best shift is the one with the least excess, over all links together.
    """
    periods = [circle.period_s for circles in beside.values() for circle in circles]
    if not periods:
        return 0.0, own.period_s
    length_s = unified_s([*periods, own.period_s])
    turns = max(int(length_s / own.period_s * (1 + 1e-9)), 1)
    period_s = length_s / turns
    if period_s > own.period_s * (1 + MOST_STRETCH):
        period_s, turns = own.period_s, max(round(length_s / own.period_s), 1)
    choices = max(ANGLES // turns, 1)
    over = np.zeros(choices)
    for link, circles in sorted(beside.items()):
        placed = np.sum([demand_on(circle, length_s) for circle in circles], axis=0)
        mine = JobCircle(
            period_s=period_s, start_s=own.start_s, length_s=min(own.length_s, period_s), demand=demands[link]
        )
        over += _excess_at(np.arange(choices), demand_on(mine, length_s), placed, capacity[link]) / capacity[link]
    best = np.flatnonzero(over <= over.min() + 1e-9)
    return float(best[len(_run_of(best)) // 2]) * length_s / ANGLES % period_s, period_s


def _run_of(numbers: Ints) -> Ints:
    """Return the first numbers that follow each other: the middle of them is farthest from any excess."""
    gaps = np.flatnonzero(np.diff(numbers) > 1)
    return numbers[: int(gaps[0]) + 1] if len(gaps) else numbers


def rank_by_score(scores: Sequence[float]) -> list[int]:
    """Return the numbers of candidate placements, the best score first."""
    return sorted(range(len(scores)), key=lambda number: (-scores[number], number))
