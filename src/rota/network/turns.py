"""When jobs that share links send: their phases with priorities or shifts, and the turns that they keep.

Cassini turns the circles of jobs until they interleave. Circles of different length drift against each other, unless
the jobs wait for their turns: each period is lengthened by at most a twentieth, so that it divides the longest one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rota.network.cassini import MOST_STRETCH, JobCircle, affinity_shifts, rank_by_score
from rota.network.crux import compressed, intensity
from rota.network.model import LinkMechanism, NetworkModel
from rota.network.phases import PhasedJob, run_phases
from rota.network.traffic import JobTraffic

ITERATIONS, WARM_UP = 12, 6
CLOSE = 1.01
"""An iteration of at most so many times that alone is not tried to be shortened further."""


def settled(traffics: Sequence[JobTraffic], model: NetworkModel) -> tuple[float, ...]:
    """Return the time of an iteration of each job, as the network's mechanism has them send.

    Under Cassini jobs keep turns where that is better for them on average than to drift.
    """
    found = _simulated(phased(traffics, model), model)
    if model.mechanism is not LinkMechanism.CASSINI:
        return found
    alone = [phased_job(traffic).alone_s for traffic in traffics]

    def slowdown(times: Sequence[float]) -> float:
        return float(
            np.mean([now_s / free_s for now_s, free_s in zip(times, alone, strict=True) if free_s > 0] or [1.0])
        )

    if slowdown(found) <= CLOSE:
        return found
    return min(found, _simulated(phased(traffics, model, keeps_time=True), model), key=slowdown)


def _simulated(jobs: Sequence[PhasedJob], model: NetworkModel) -> tuple[float, ...]:
    return run_phases(jobs, model.topology.capacity, iterations=ITERATIONS, warm_up=WARM_UP).iteration_s


def in_step(jobs: Sequence[PhasedJob], model: NetworkModel) -> list[PhasedJob]:
    """Return jobs with periods that divide the longest of those that they meet, where that costs them little."""
    root = list(range(len(jobs)))

    def find(number: int) -> int:
        while root[number] != number:
            number = root[number]
        return number

    for demands in contended(jobs, model).values():
        first, *others = demands
        for other in others:
            root[find(other)] = find(first)
    groups: dict[int, list[int]] = {}
    for number in range(len(jobs)):
        groups.setdefault(find(number), []).append(number)
    found = list(jobs)
    for group in groups.values():
        if len(group) > 1:
            periods = common_periods([jobs[number].alone_s for number in group])
            for number, period_s in zip(group, periods, strict=True):
                found[number] = replace(jobs[number], period_s=period_s)
    return found


def common_periods(alone_s: Sequence[float]) -> list[float]:
    """Return a period for each job that divides a common one; 0 for a job that it would cost too much."""
    longest = max(alone_s)
    best: list[float] = [0.0] * len(alone_s)
    best_rank = (-1, 0.0)
    for length_s in np.linspace(longest, longest * (1 + MOST_STRETCH), 26).tolist():
        periods = [_divided(length_s, own_s) for own_s in alone_s]
        stretch = [period_s / own_s for period_s, own_s in zip(periods, alone_s, strict=True) if period_s]
        rank = (len(stretch), -float(np.mean(stretch)) if stretch else 0.0)
        if rank > best_rank:
            best, best_rank = periods, rank
    return best


def _divided(length_s: float, own_s: float) -> float:
    if own_s <= 0:
        return 0.0
    period_s = length_s / max(math.floor(length_s / own_s * (1 + 1e-9)), 1)
    return period_s if period_s <= own_s * (1 + MOST_STRETCH) * (1 + 1e-9) else 0.0


def phased(traffics: Sequence[JobTraffic], model: NetworkModel, *, keeps_time: bool = False) -> list[PhasedJob]:
    """Return the phases of jobs with the shifts or priorities of the network's mechanism.

    With `keeps_time`, jobs under Cassini that meet have periods whose circles close, and wait for their turns.
    """
    jobs = [phased_job(traffic) for traffic in traffics]
    if model.mechanism is LinkMechanism.CRUX:
        ranks = compressed([intensity(traffic) for traffic in traffics], model.priority_levels)
        return [replace(job, priority=rank) for job, rank in zip(jobs, ranks, strict=True)]
    if model.mechanism is LinkMechanism.CASSINI:
        jobs = in_step(jobs, model) if keeps_time else jobs
        shifts = shifts_of(jobs, model)
        return [replace(job, shift_s=shift_s) for job, shift_s in zip(jobs, shifts, strict=True)]
    return jobs


def circles_of(jobs: Sequence[PhasedJob]) -> list[JobCircle]:
    """Return the circles of jobs; the demand is their level alone."""
    return [
        JobCircle(
            period_s=job.period_s or job.alone_s,
            start_s=job.quiet_s,
            length_s=min(job.alone_comm_s, job.alone_s),
            demand=job.top_level,
        )
        for job in jobs
    ]


def contended(jobs: Sequence[PhasedJob], model: NetworkModel) -> dict[int, dict[int, float]]:
    """Return the demand of each job on every link that they would exceed together."""
    by_link: dict[int, dict[int, float]] = {}
    for number, job in enumerate(jobs):
        for link, load in job.loads.items():
            by_link.setdefault(link, {})[number] = load * job.top_level
    capacity = model.topology.capacity
    return {
        link: demands
        for link, demands in by_link.items()
        if len(demands) > 1 and sum(demands.values()) > float(capacity[link]) * (1 + 1e-9)
    }


def shifts_of(jobs: Sequence[PhasedJob], model: NetworkModel) -> tuple[float, ...]:
    """Return Cassini's time shift of each job."""
    by_link = contended(jobs, model)
    capacity = {link: float(model.topology.capacity[link]) for link in by_link}
    return affinity_shifts(circles_of(jobs), by_link, capacity).shifts_s


def compatibility(traffics: Sequence[JobTraffic], model: NetworkModel) -> float:
    """Return Cassini's score of a placement of all jobs: 1 where turns keep every link within its rate."""
    jobs = [phased_job(traffic) for traffic in traffics]
    links = contended(jobs, model)
    capacity = {link: float(model.topology.capacity[link]) for link in links}
    return affinity_shifts(circles_of(jobs), links, capacity).score


def most_compatible(candidates: Sequence[Sequence[JobTraffic]], model: NetworkModel) -> int:
    """Return the number of the placement of all jobs with the best score."""
    return rank_by_score([compatibility(traffics, model) for traffics in candidates])[0]


def phased_job(traffic: JobTraffic) -> PhasedJob:
    """Return the phases of one job: what it computes first, and what it sends beside the rest."""
    demand = traffic.demand
    hidden_s = demand.overlap * demand.compute_s
    slack = traffic.moving_s * traffic.alone_level / traffic.unit_bytes if traffic.alone_level else 1.0
    return PhasedJob(
        quiet_s=demand.compute_s - hidden_s + traffic.fixed_s,
        bytes=traffic.unit_bytes * slack if traffic.loads else 0.0,
        loads=traffic.loads,
        hidden_s=hidden_s,
        top_level=traffic.alone_level or math.inf,
    )
