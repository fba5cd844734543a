"""Jobs matched to places in the queues of machines, so that the sum of their completion times is least.

A job that is k-th from last on a machine is counted in the completion times of k jobs, its own among them; so that
place costs it k times its run time (Horn, Operations Research 1973; Bruno, Coffman and Sethi, CACM 1974).
"""

from __future__ import annotations

import numpy as np

from rota.mechanisms.arrays import Floats
from rota.mechanisms.solvers.lp import Ints

_MANY = 300
"""Jobs from which on the longest are matched first, two to twenty times as fast: they belong last, so that hardly any
later one drives them out. Of several best matchings it finds another than that of the given order."""


def earliest(took_s: Floats, extra_s: Floats, place: Ints, machine: Ints) -> dict[int, int]:
    """Of each machine that anybody is matched to, the job that goes first there."""
    return {at: jobs[0] for at, jobs in queues(took_s, extra_s, place, machine).items()}


def queues(took_s: Floats, extra_s: Floats, place: Ints, machine: Ints) -> dict[int, list[int]]:
    """Of each machine that anybody is matched to, the jobs in their order there.

    `took_s` and `extra_s` are by job and machine, `place` and `machine` say what the columns of the matching are: being
    `place`-th from last on a machine, which costs a job `place` times what it takes there, and what is extra.
    """
    from scipy.optimize import linear_sum_assignment

    cost = place[None, :] * took_s[:, machine] + extra_s[:, machine]
    order = np.arange(len(took_s))
    if len(order) > _MANY:
        order = np.argsort(-took_s.min(axis=1, initial=np.inf), kind="stable")
    rows, columns = linear_sum_assignment(cost[order])
    matched: dict[int, list[tuple[int, int]]] = {}
    for job, column in zip(order[rows], columns, strict=True):
        matched.setdefault(int(machine[column]), []).append((-int(place[column]), int(job)))
    return {at: [job for _, job in sorted(matched[at])] for at in sorted(matched)}


def worthwhile_places(free_in_s: Floats, jobs: int) -> tuple[Ints, Ints]:
    """Places on machines of one kind that can be of use to so many jobs: (place from last, machine).

    On the machine that is r-th soonest free, places beyond jobs / r are no better for anyone than as many others as
    there are jobs.
    """
    ranks = np.argsort(free_in_s, kind="stable")[:jobs].astype(np.int64)
    deep = jobs // np.arange(1, len(ranks) + 1)
    machine = np.repeat(ranks, deep)
    place = np.concatenate([np.arange(1, many + 1) for many in deep]) if len(ranks) else np.zeros(0)
    return place.astype(np.int64), machine


def first_places(kind: Ints, jobs: int) -> tuple[Ints, Ints]:
    """Places on machines that are all free now and of so many kinds, by place, that can be of use to so many jobs.

    Machines of one kind are alike, so that its cheapest places, as many as there are jobs, are enough: a place on any
    of them is taken only when all of them have the one behind it.
    """
    rank = np.zeros(len(kind), dtype=np.int64)
    for each in np.unique(kind):
        rank[kind == each] = np.arange(np.count_nonzero(kind == each))
    many = np.bincount(kind)[kind]
    deep = np.maximum(-(-(jobs - rank) // many), 0)
    place, machine = np.nonzero(np.arange(deep.max(initial=0))[:, None] < deep)
    return place + 1, machine
