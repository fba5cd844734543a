"""Assignment of jobs to positions in the queues of machines, minimising the sum of completion times.

The run time of a job that is k-th from last on a machine counts in the completion times of k jobs, so that this
position costs k times its run time (Horn, Operations Research 1973; Bruno, Coffman and Sethi, CACM 1974).
"""

from __future__ import annotations

import numpy as np

from rota.mechanisms.arrays import Floats
from rota.mechanisms.solvers.lp import Ints

_MANY = 300
"""Above this many jobs the longest are assigned first, two to twenty times as fast: they belong last, so that later
ones hardly ever displace them. Among several optima it may find another one than the given order does."""


def earliest(took_s: Floats, extra_s: Floats, place: Ints, machine: Ints) -> dict[int, int]:
    """By machine with an assigned job, the job that goes first there."""
    return {at: jobs[0] for at, jobs in queues(took_s, extra_s, place, machine).items()}


def queues(took_s: Floats, extra_s: Floats, place: Ints, machine: Ints) -> dict[int, list[int]]:
    """By machine with assigned jobs, the jobs in their order there.

    `took_s` and `extra_s` are by job and machine. The columns of the assignment are positions: `place`-th from last on
    `machine` costs a job `place` times its run time there, plus the extra.
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
    """Positions on equal machines that can be useful for this many jobs: (place from last, machine).

    On the machine that is r-th soonest free, positions beyond jobs / r are no better for any job than as many other
    positions as there are jobs.
    """
    ranks = np.argsort(free_in_s, kind="stable")[:jobs].astype(np.int64)
    deep = jobs // np.arange(1, len(ranks) + 1)
    machine = np.repeat(ranks, deep)
    place = np.concatenate([np.arange(1, many + 1) for many in deep]) if len(ranks) else np.zeros(0)
    return place.astype(np.int64), machine


def first_places(kind: Ints, jobs: int) -> tuple[Ints, Ints]:
    """Positions on machines that are all free now, by place, that can be useful for this many jobs.

    Machines of one kind are equal, so that its cheapest positions, as many as there are jobs, are enough: a position on
    one of them is used only when all of them use the position behind it.
    """
    rank = np.zeros(len(kind), dtype=np.int64)
    for each in np.unique(kind):
        rank[kind == each] = np.arange(np.count_nonzero(kind == each))
    many = np.bincount(kind)[kind]
    deep = np.maximum(-(-(jobs - rank) // many), 0)
    place, machine = np.nonzero(np.arange(deep.max(initial=0))[:, None] < deep)
    return place + 1, machine
