"""Rota's own policy: one order of jobs by levels, carried out by the mechanism that the jobs and devices ask for.

Jobs of fixed size on devices of one speed go through the list scheduler, event by event. While elastic jobs are
present, or where device types differ in speed, sizes and types are planned as well. With `sharing`, where speeds of
pairs are measured, jobs share devices instead. Tenancies always use the list scheduler.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.engine.preemption_guard import PreemptionGuard
from rota.core.engine.protocols import Allocator, Capabilities, Changes
from rota.core.messages.decisions import DecisionKind
from rota.core.messages.reasons import Reason
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.mechanisms.colocation.growth import Growth
from rota.mechanisms.colocation.scheduler import ColocationScheduler
from rota.mechanisms.declare import PREEMPTS, SHARES, DeclaredPolicy, Knowledge, Traits
from rota.mechanisms.elastic.scheduler import ElasticScheduler
from rota.mechanisms.ordering.list_scheduler import ListScheduler
from rota.mechanisms.ordering.rule import SimpleRule
from rota.policies.own.order import ServiceOrder
from rota.policies.own.params import RotaParams
from rota.policies.own.sharing import LevelSharing
from rota.policies.own.sizes import LevelSizes

NAME = "rota"
SIZED = "rota, with sizes"
"""The policy's name in its memory while it plans sizes."""
SHARED = "rota, with sharing"
"""The policy's name in its memory where jobs share devices."""
FIRST_WAIT_S = 600.0
"""How long a gang that has not run waits for as few nodes as possible, where spreading has a price."""
GROW_AFTER_S = 300.0
"""With `sharing`, how long no job has waited before elastic jobs grow."""
_CONSTANT = math.nextafter(1.0, 2.0)
"""Growth of the guard's minimum run time: none, since jobs keep their levels."""


class LevelPolicy:
    """The policy, with both mechanisms over one order."""

    capabilities = Capabilities(asks_guard=True)

    def __init__(self, params: RotaParams, allocator: Allocator, knowledge: Knowledge) -> None:
        self._params = params
        self._knowledge = knowledge
        self._order = ServiceOrder(params, knowledge)
        rule = SimpleRule(of=self._order.turn, preempts=True, learner=self._order)
        self._list = ListScheduler(rule, allocator)
        self._sized = ElasticScheduler(
            LevelSizes(self._order, params, knowledge), allocator, name=SIZED, speed=knowledge.speed
        )
        growth = Growth(GROW_AFTER_S) if params.elastic else None
        self._shared = ColocationScheduler(
            LevelSharing(self._order, knowledge.speed), allocator, name=SHARED, growth=growth
        )
        shares = params.sharing and knowledge.speed.knows_pairs and not allocator.has_guarantees
        self._may_size = not allocator.has_guarantees and not shares
        self._usual: ListScheduler | ColocationScheduler = self._shared if shares else self._list
        """The mechanism where no sizes are planned."""
        self._active: ListScheduler | ElasticScheduler | ColocationScheduler = self._usual
        self._elastic: dict[LiveJob, None] = {}
        self._types_differ = False
        self._guard = PreemptionGuard(min_run_s=params.settle * knowledge.restart_s, growth=_CONSTANT)
        self._spares = not self._guard.is_open
        self._spared_until_s = math.inf
        self._state: State | None = None

    @property
    def wakeup_s(self) -> float:
        """When the active mechanism plans next, or a job that was spared loses its protection.

        A job's level depends on its service alone. While no job waits, jobs that reach the next level are not looked at
        until one arrives.
        """
        next_s = min(self._spared_until_s, self._order.standings.next_look_s)
        if self._active is self._list and not self._list.is_waited_for:
            return next_s
        return min(next_s, self._active.wakeup_s)

    @property
    def memory(self) -> Any:
        """What the order has learned, and the plan of sizes where there is one."""
        if self._active is not self._list:
            return {**self._active.memory, "order": self._order.memory}
        return {"policy": NAME, "order": self._order.memory}

    def adopt(self, state: State) -> None:
        """Rebuild from a state; restore what was learned if this policy learned it."""
        self._state = state
        memory = state.memory
        if isinstance(memory, dict) and memory.get("policy") in (NAME, SIZED, SHARED):
            self._order.recall(memory["order"])
        self._order.count(live for live in state.jobs.values() if not live.state.is_final)
        self._order.counts_devices(state.inventory)
        self._types_differ = self._order.in_common_units = self._params.types and self._differ(state)
        self._order.standings.adopt(state)
        self._elastic = {live: None for live in state.jobs.values() if self._counts(live) and not live.state.is_final}
        self._active = self._sized if self._wants_sizes else self._usual
        self._active.adopt(state)
        self._spared_until_s = state.now_s if any(live.placement for live in state.jobs.values()) else math.inf

    def note(self, changes: Changes, now_s: float) -> None:
        """Pass changes on; change the mechanism when the first elastic job arrives or the last one ends."""
        self._order.standings.follow(changes, now_s)
        for live in changes.left:
            if live.state.is_final:
                self._elastic.pop(live, None)
                if self._active is self._sized:
                    self._order.ended(live, now_s)
        self._elastic.update((live, None) for live in changes.arrived if self._counts(live))
        wanted = self._sized if self._wants_sizes else self._usual
        assert self._state is not None, "a policy adopts a state before it is notified"
        differs = (changes.freed or changes.shrunk) and self._order.counts_devices(self._state.inventory)
        if wanted is self._active:
            self._active.note(changes, now_s)
            if differs:
                self._rank_again(self._state.jobs.values(), now_s)
            return
        self._active.note(changes, now_s)
        if wanted is self._sized:
            self._sized.take_over(self._state)
        else:
            self._usual.adopt(self._state)
        self._active = wanted

    def plan(self, draft: Draft) -> None:
        """Let the active mechanism plan; a job that just started is spared while a restart would cost too much."""
        if self._order.standings.next_look_s <= draft.now_s:
            self._compare_users(draft.now_s)
        if self._spared_until_s <= draft.now_s:
            self._active.note(Changes(freed=True), draft.now_s)
            self._spared_until_s = math.inf
        if self._spares and draft.guard.is_open:
            draft.guard = self._guard
        self._active.plan(draft)
        self._spared_until_s = min(self._spared_until_s, draft.guard_wakeup_s)

    def _compare_users(self, now_s: float) -> None:
        """Rank jobs again after their users moved ahead or fell back."""
        moved = self._order.standings.look(now_s)
        if moved:
            self._rank_again(moved, now_s)

    def _rank_again(self, moved: Iterable[LiveJob], now_s: float) -> None:
        """Have the active mechanism look at the places of jobs that may have changed."""
        if self._active is self._list:
            self._list.rank_again(moved, now_s)
        else:
            self._active.note(Changes(freed=True), now_s)

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """The reason by the active mechanism."""
        if self._spares and draft.guard.is_open:
            draft.guard = self._guard
        return self._active.explain(waiting, draft)

    @property
    def _wants_sizes(self) -> bool:
        return self._may_size and (self._types_differ or bool(self._elastic))

    def _counts(self, live: LiveJob) -> bool:
        """Whether a job's size is to be chosen."""
        return self._params.elastic and live.job.elastic is not None

    def _differ(self, state: State) -> bool:
        """Whether jobs run at different speeds on the cluster's device types."""
        if len(state.inventory.pools) < 2:
            return False
        speed = self._knowledge.speed
        kinds = [pool.device_type for pool in state.inventory.pools]
        if speed.profiles is not None or speed.links is not None:
            return True
        return len({speed.type_speed.get(kind, 1.0) for kind in kinds}) > 1


def _emits(params: RotaParams) -> frozenset[DecisionKind]:
    """Return the kinds of decision; jobs share devices only with `sharing`."""
    return PREEMPTS | SHARES if params.sharing else PREEMPTS


def _placement(params: RotaParams) -> str:
    """Return the placement: with a price of spreading, a gang waits for few nodes at first, and by the time it ran."""
    return f"consolidate:relax_after={FIRST_WAIT_S:g},per_run={params.spread!r}" if params.spread else "consolidate"


rota = DeclaredPolicy(
    name=NAME,
    cites="Rota's own; levels as in multi-level feedback (Kalyanasundaram and Pruhs, J. ACM 2000 and 2003)",
    summary="The lowest level of service first, levels growing geometrically; running jobs keep their devices.",
    params=RotaParams,
    placement="consolidate",
    places=_placement,
    make=LevelPolicy,
    emits=_emits,
    traits=Traits(
        prior_knowledge="none; progress, declared or learned lengths where they prove true",
        scheduling_input="attained service (time x devices), service to come where known",
        dimensions="time and space",
        priority="by level of service",
        preemption="yes, and resizing",
        starvation="no: bounded",
        placement="consolidated",
        intrusiveness="checkpoint",
    ),
)
