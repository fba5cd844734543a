"""Fluid processor sharing: every job present holds an equal share of the devices, at most what it asks for.

What a small job does not need is divided among the others (max-min fairness), and a job on a part of its devices is
slower in proportion. No policy on whole devices can do this; it is a yardstick that does not depend on the policy that
is measured. Jobs of one size always run at one rate, so that each size has a clock of work, and an event costs one step
per size.
"""

from __future__ import annotations

import heapq
import math

import numpy as np

from rota.report.series import Floats


def fluid_completion_s(submit_s: Floats, gpus: Floats, ideal_s: Floats, devices: float) -> Floats:
    """Each job's completion time under fluid sharing; NaN for one without work or devices."""
    done = np.full(submit_s.size, np.nan)
    jobs = [int(job) for job in np.argsort(submit_s, kind="stable") if ideal_s[job] > 0 and gpus[job] > 0]
    sizes = sorted({min(float(gpus[job]), devices) for job in jobs})
    place = {size: index for index, size in enumerate(sizes)}
    clocks = [0.0] * len(sizes)
    present: list[list[tuple[float, int]]] = [[] for _ in sizes]
    now_s, coming = 0.0, 0
    while coming < len(jobs) or any(present):
        rates = _rates(sizes, [len(queue) for queue in present], devices)
        arrival_s = float(submit_s[jobs[coming]]) if coming < len(jobs) else math.inf
        end_s, ending = math.inf, -1
        for index, queue in enumerate(present):
            if queue and (at_s := now_s + max(queue[0][0] - clocks[index], 0.0) / rates[index]) < end_s:
                end_s, ending = at_s, index
        next_s = min(arrival_s, end_s)
        clocks = [clock + rate * (next_s - now_s) for clock, rate in zip(clocks, rates, strict=True)]
        now_s = next_s
        if end_s <= arrival_s:
            due, job = heapq.heappop(present[ending])
            clocks[ending] = max(clocks[ending], due)
            done[job] = now_s - submit_s[job]
        else:
            job = jobs[coming]
            coming += 1
            index = place[min(float(gpus[job]), devices)]
            stretch = float(gpus[job]) / sizes[index]
            heapq.heappush(present[index], (clocks[index] + float(ideal_s[job]) * stretch, job))
    return done


def _rates(sizes: list[float], counts: list[int], devices: float) -> list[float]:
    """The rate of each size, 1 being full speed: devices are filled like water from the smallest request up."""
    left, jobs = devices, sum(counts)
    rates = [1.0] * len(sizes)
    for index, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        if not count:
            continue
        share = left / jobs
        if size <= share:
            left -= size * count
            jobs -= count
            continue
        for other in range(index, len(sizes)):
            rates[other] = min(1.0, share / sizes[other])
        break
    return rates
