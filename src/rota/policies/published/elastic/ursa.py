"""Ursa (Jin et al., EuroSys 2020): stages of DAGs start where the resources they need are idle.

Of the ready stages that fit, the one with the highest score starts next: the product of its demand and the free amount,
summed over resources, plus the age of its DAG (EJF) or how little of it remains (SRJF). Nothing is preempted. The paper
considers queues of monotasks on each worker; here stages hold what they request, so that idle means free. Resources are
devices, CPUs, memory, network and disks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.core.state.job_record import LiveJob
from rota.mechanisms.declare import Knowledge, Traits
from rota.mechanisms.elastic.dags import Dags
from rota.mechanisms.elastic.declare import elastic
from rota.mechanisms.elastic.resources import Floats, free, need, totals
from rota.mechanisms.elastic.rule import Candidate, DefaultSizeRule, SizePlan, SizeQuestion, Target

_EXHAUSTED = 1e-9
"""Fraction of a resource below which it counts as exhausted."""


class DagOrder(Enum):
    """Which DAG comes first: the earliest, or the one with the least remaining work."""

    EJF = "ejf"
    SRJF = "srjf"


@dataclass(frozen=True, slots=True, kw_only=True)
class UrsaParams:
    """Which DAG comes first, and the weight of that against the use of idle resources."""

    order: DagOrder = DagOrder.EJF
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.weight >= 0:
            raise RotaError(f"weight is {self.weight:g}; it must be 0 or more")


class Ursa(DefaultSizeRule):
    """Rule that scores all ready stages at every event."""

    plans_cpu_jobs = True

    def __init__(self, params: UrsaParams, knowledge: Knowledge) -> None:
        self._params = params
        self._dags = Dags()

    def attach(self, jobs: dict[JobId, LiveJob]) -> None:
        """Attach all jobs, since stages with unmet dependencies count for the remaining work of a DAG."""
        self._dags.attach(jobs)

    def forget(self, live: LiveJob) -> None:
        """Handle the end of a stage."""
        self._dags.forget(live)

    def plan(self, question: SizeQuestion) -> SizePlan:
        """Keep running stages; start the others by score while there is room."""
        targets = {found.seq: Target(found.tasks) for found in question.candidates if found.tasks}
        ready = [found for found in question.candidates if not found.tasks and found.sizes]
        if ready:
            self._dags.update()
            targets |= {found.seq: Target(found.requested) for found in self._chosen(ready, question)}
        return SizePlan(targets)

    def _chosen(self, ready: list[Candidate], question: SizeQuestion) -> list[Candidate]:
        total = totals(question.inventory)
        total[total <= 0] = np.inf
        idle = free(question.inventory) / total
        idle[np.isinf(total)] = 1.0
        wants = np.array([need(found, found.requested) for found in ready]) / total
        standing = self._params.weight * self._dag_rank(ready, question.now_s)
        open_ = np.ones(len(ready), dtype=np.bool_)
        chosen: list[Candidate] = []
        while True:
            open_ &= (wants <= idle + _EXHAUSTED).all(axis=1)
            if not open_.any():
                return chosen
            score = np.where(open_, (idle * np.minimum(wants, idle)).sum(axis=1) + standing, -np.inf)
            best = int(np.argmax(score))
            chosen.append(ready[best])
            open_[best] = False
            idle = np.maximum(idle - wants[best], 0.0)

    def _dag_rank(self, ready: list[Candidate], now_s: float) -> Floats:
        """Return, from 0 to 1, the age of each stage's DAG or how little of it remains."""
        if self._params.order is DagOrder.EJF:
            age = np.array([now_s - self._dags.since_s(found.live) for found in ready])
            return age / max(float(age.max()), _EXHAUSTED)
        left = np.array([self._dags.remaining_work(found.live, now_s) for found in ready])
        standing: Floats = 1.0 - left / max(float(left.max()), _EXHAUSTED)
        return standing


ursa = elastic(
    "ursa",
    Ursa,
    cites="Jin et al., EuroSys 2020",
    summary="The ready stage that uses most of what is idle, with preference for old or almost finished DAGs.",
    differs=(
        "stages are jobs that depend on each other and hold what they need while they run; they are not "
        "split into queued monotasks, and memory is their request instead of a fraction of their input. Idle "
        "resources are what is free now, not estimates of queued work."
    ),
    params=UrsaParams,
    traits=Traits(
        prior_knowledge="dependencies, demand",
        scheduling_input="free amounts of every resource",
        dimensions="space",
        priority="fit, and age or remaining work of the DAG",
        preemption="no",
        placement="consolidated",
    ),
)
