"""Ursa (Jin et al., EuroSys 2020): stages of dependent jobs, each where the resources that it needs lie idle.

Of the stages that are ready and fit, the one with the highest score starts next: what it would use of each resource
times what of it is free, and besides the age of its whole (EJF) or how little of that is left (SRJF). Nothing
is preempted. The paper looks at queues of monotasks on each worker; here stages hold what they need, so that
what is idle is what is free. Resources are devices, CPUs, memory, network and disks.
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

_HARDLY = 1e-9
"""Less than this part of a resource is none."""


class DagOrder(Enum):
    """Which whole goes first: the one that came earliest, or the one with the least left."""

    EJF = "ejf"
    SRJF = "srjf"


@dataclass(frozen=True, slots=True, kw_only=True)
class UrsaParams:
    """Which whole goes first, and how much that weighs against the use of idle resources."""

    order: DagOrder = DagOrder.EJF
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.weight >= 0:
            raise RotaError(f"weight is {self.weight:g}; it must be 0 or more")


class Ursa(DefaultSizeRule):
    """Looks at all stages that are ready whenever something changes."""

    takes_all = True

    def __init__(self, params: UrsaParams, knowledge: Knowledge) -> None:
        self._params = params
        self._dags = Dags()

    def meet(self, jobs: dict[JobId, LiveJob]) -> None:
        """Stages that are not ready count for what is left of a whole."""
        self._dags.meet(jobs)

    def left(self, live: LiveJob) -> None:
        """A stage has ended."""
        self._dags.forget(live)

    def plan(self, question: SizeQuestion) -> SizePlan:
        """Who runs stays; the others start by score while there is room."""
        targets = {found.seq: Target(found.tasks) for found in question.candidates if found.tasks}
        ready = [found for found in question.candidates if not found.tasks and found.sizes]
        if ready:
            self._dags.look()
            targets |= {found.seq: Target(found.asked) for found in self._chosen(ready, question)}
        return SizePlan(targets)

    def _chosen(self, ready: list[Candidate], question: SizeQuestion) -> list[Candidate]:
        whole = totals(question.inventory)
        whole[whole <= 0] = np.inf
        idle = free(question.inventory) / whole
        idle[np.isinf(whole)] = 1.0
        wants = np.array([need(found, found.asked) for found in ready]) / whole
        standing = self._params.weight * self._standing(ready, question.now_s)
        open_ = np.ones(len(ready), dtype=np.bool_)
        chosen: list[Candidate] = []
        while True:
            open_ &= (wants <= idle + _HARDLY).all(axis=1)
            if not open_.any():
                return chosen
            score = np.where(open_, (idle * np.minimum(wants, idle)).sum(axis=1) + standing, -np.inf)
            best = int(np.argmax(score))
            chosen.append(ready[best])
            open_[best] = False
            idle = np.maximum(idle - wants[best], 0.0)

    def _standing(self, ready: list[Candidate], now_s: float) -> Floats:
        """From 0 to 1: the age of each stage's whole, or how little is left of it."""
        if self._params.order is DagOrder.EJF:
            age = np.array([now_s - self._dags.since_s(found.live) for found in ready])
            return age / max(float(age.max()), _HARDLY)
        left = np.array([self._dags.left(found.live, now_s) for found in ready])
        standing: Floats = 1.0 - left / max(float(left.max()), _HARDLY)
        return standing


ursa = elastic(
    "ursa",
    Ursa,
    cites="Jin et al., EuroSys 2020",
    summary="Of the stages that are ready, the one that uses most of what is idle; old or almost done wholes first.",
    differs=(
        "stages are jobs that depend on each other and hold what they need while they run; they are not "
        "cut into monotasks in queues, and memory is what they ask for instead of a part of their input. What is "
        "idle is what is free now, not the time that queued work takes."
    ),
    params=UrsaParams,
    traits=Traits(
        prior_knowledge="dependencies, needs",
        scheduling_input="free resources of every kind",
        dimensions="space",
        priority="fit, and age or rest of the whole",
        preemption="no",
        placement="consolidated",
    ),
)
