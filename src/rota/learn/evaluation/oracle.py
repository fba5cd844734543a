"""Upper bound: a search that knows the true interference between jobs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from rota.core.model.cluster import Node
from rota.core.model.job import Job, JobId
from rota.core.model.placement import Placement, Slot
from rota.core.state.job_record import LiveJob
from rota.mechanisms.learned.heuristics import fullest, least_loaded, one_by_one
from rota.mechanisms.learned.server_arrays import Chosen, Floats, ServerArrays
from rota.perf.speed.shared_servers import SharedServers, tenants_of

REPRESENTATIVES = 12
"""Servers that are tried for each task, one of each class of identical ones."""
STEPS = 6
"""Most moves of a task in a search."""


class Oracle:
    """Chooser that minimises the time lost by a job and its neighbours, by local search from several starts."""

    kinds: tuple[str, ...] = ()

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._shared = SharedServers(nodes)
        self._left_s: dict[JobId, float] = {}

    def observe(self, running: dict[int, LiveJob], now_s: float) -> None:
        """Record placements and remaining work."""
        self._shared = SharedServers(self._nodes)
        self._left_s = {}
        for live in running.values():
            if live.placement is not None:
                self._shared.enter(live.job, live.placement)
                self._left_s[live.job.id] = live.left_s(now_s)

    def choose(self, arrays: ServerArrays, live: LiveJob, now_s: float) -> Chosen | None:
        """Return the best choice found."""
        job = live.job
        self._left_s[job.id] = live.left_s(now_s)
        starts = [found for found in self._starts(arrays, job) if found]
        if not starts:
            return None
        best = min(starts, key=lambda chosen: self._lost_s(job, chosen))
        best = self._improved(arrays, job, best)
        self._shared.enter(job, _slots(best))
        return best

    def _starts(self, arrays: ServerArrays, job: Job) -> Iterator[Chosen | None]:
        yield one_by_one(arrays, job, least_loaded)
        yield one_by_one(arrays, job, fullest)
        for node in self._representatives(arrays):
            yield one_by_one(arrays, job, partial(_first_at, node))

    def _representatives(self, arrays: ServerArrays) -> list[int]:
        """Return one of each class of identical servers with free resources, the emptiest first."""
        seen: dict[object, int] = {}
        for node in np.argsort(arrays.used().max(axis=1), kind="stable"):
            tenants = tuple(sorted(self._shared.on(int(node)).values()))
            if arrays.open[node]:
                seen.setdefault((tenants, tuple(arrays.free[node])), int(node))
        return list(seen.values())[:REPRESENTATIVES]

    def _improved(self, arrays: ServerArrays, job: Job, chosen: Chosen) -> Chosen:
        """Move one task at a time while that helps."""
        lost_s = self._lost_s(job, chosen)
        for _ in range(STEPS):
            found = min(
                ((self._lost_s(job, other), at, other) for at, other in enumerate(self._moves(arrays, job, chosen))),
                default=None,
            )
            if found is None or found[0] >= lost_s - 1e-9:
                return chosen
            lost_s, _, chosen = found
        return chosen

    def _moves(self, arrays: ServerArrays, job: Job, chosen: Chosen) -> Iterable[Chosen]:
        targets = dict.fromkeys([*self._representatives(arrays), *(node for _, node in chosen)])
        for (role, node), tasks in chosen.items():
            for other in targets:
                if other == node:
                    continue
                moved = dict(chosen)
                moved[role, node] = tasks - 1
                if not moved[role, node]:
                    del moved[role, node]
                moved[role, other] = moved.get((role, other), 0) + 1
                if self._fits(arrays, job, moved, other):
                    yield moved

    def _fits(self, arrays: ServerArrays, job: Job, chosen: Chosen, node: int) -> bool:
        mine = [(role, tasks) for (role, at), tasks in chosen.items() if at == node]
        for role, tasks in mine:
            arrays.take(node, job.roles[role], tasks)
        fits = bool((arrays.free[node] >= 0).all() and arrays.open[node])
        for role, tasks in mine:
            arrays.take(node, job.roles[role], -tasks)
        return fits

    def _lost_s(self, job: Job, chosen: Chosen) -> float:
        """Return the time of the job, plus what its neighbours lose meanwhile."""
        shared = self._shared
        tenants = tenants_of(job, _slots(chosen))
        others = shared.beside(tenants)
        before = {other: shared.speed(other) for other in others}
        shared.put(job.id, tenants)
        own_s = self._left_s[job.id] / shared.speed(job.id)
        lost_s = own_s
        for other in others:
            slower = 1.0 / shared.speed(other) - 1.0 / before[other]
            lost_s += min(self._left_s[other], own_s * before[other]) * slower
        shared.leave(job.id)
        return lost_s if math.isfinite(lost_s) else math.inf


def _slots(chosen: Chosen) -> Placement:
    return tuple(Slot(node, 0, tasks, role) for (role, node), tasks in sorted(chosen.items()))


def _first_at(node: int, arrays: ServerArrays, role: int, chosen: Chosen) -> Floats:
    """Prefer one server, then the fullest."""
    scores = fullest(arrays, role, chosen)
    scores[node] += 1e3
    return scores
