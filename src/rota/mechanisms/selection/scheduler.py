"""The selection scheduler: a rule selects jobs for the devices that are free; all others keep what they hold.

Auctions, matchings and time slices are built on it. The rule is asked when an event may let a job start, and when a
time slice or lease that it granted expires.
"""

from __future__ import annotations

import math
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.engine.protocols import Capabilities, Changes
from rota.core.messages.decisions import Cause
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.mechanisms.cpu_jobs import CpuJobs
from rota.mechanisms.selection.request_placement import RequestPlacement
from rota.mechanisms.selection.rule import SelectionContext, SelectionRule


class SelectionScheduler:
    """The policy that a selection rule makes."""

    capabilities = Capabilities(asks_guard=True)

    def __init__(self, rule: SelectionRule, *, name: str) -> None:
        self._rule = rule
        self._name = name
        self._forget()

    def _forget(self) -> None:
        self._context = SelectionContext()
        self._cpu_jobs = CpuJobs()
        self._passed: dict[LiveJob, Reason] = {}
        self._due = False
        self.wakeup_s = math.inf

    @property
    def memory(self) -> Any:
        """The jobs at the last selection, and what the rule remembers."""
        return {
            "policy": self._name,
            "jobs": [live.seq for live in self._context.in_order()],
            "due": self._due,
            "wakeup_s": None if self.wakeup_s == math.inf else self.wakeup_s,
            "passed": [[live.seq, reason.code.value, reason.need_milli] for live, reason in self._passed.items()],
            "rule": self._rule.memory,
        }

    def adopt(self, state: State) -> None:
        """Rebuild the lists from a state, and continue from its memory if this policy wrote it."""
        self._forget()
        context = self._context
        context.now_s, context.inventory = state.now_s, state.inventory
        for live in sorted(state.jobs.values(), key=lambda live: live.seq):
            if live.placement is None and live.stopping in (Cause.PREEMPTED, Cause.MOVED) and live.job.gpu_milli:
                context.leaving[live] = None
            elif live.placement is not None:
                if live.job.gpu_milli:
                    context.holding[live] = None
            elif live.is_contending:
                self._add_waiting(live)
        memory = state.memory
        known: list[int] = []
        if isinstance(memory, dict) and memory.get("policy") == self._name:
            known = memory["jobs"]
            self._rule.recall(memory["rule"])
            self._due = memory["due"]
            self.wakeup_s = math.inf if memory["wakeup_s"] is None else memory["wakeup_s"]
            self._recall_passed(memory["passed"])
        if known != [live.seq for live in context.in_order()]:
            self._due = True
            self.wakeup_s = state.now_s

    def _recall_passed(self, passed: Any) -> None:
        waiting = {live.seq: live for live in self._context.waiting}
        self._passed = {
            waiting[seq]: Reason(code=ReasonCode(code), need_milli=need) for seq, code, need in passed if seq in waiting
        }

    def _add_waiting(self, live: LiveJob) -> None:
        if live.job.gpu_milli:
            self._context.waiting[live] = None
        else:
            self._cpu_jobs.add(live)

    def note(self, changes: Changes, now_s: float) -> None:
        """Update the lists with arrivals and departures."""
        context = self._context
        for live in changes.left:
            context.waiting.pop(live, None)
            context.holding.pop(live, None)
            context.leaving.pop(live, None)
            self._cpu_jobs.remove(live)
        for live in changes.arrived:
            context.leaving.pop(live, None)
            if live.is_contending and live.placement is None:
                self._add_waiting(live)
        if changes.arrived or changes.left or changes.freed:
            self._due = True
            self.wakeup_s = now_s

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """The rule's own reason, or the shortage that the allocator reports."""
        if waiting in self._passed:
            return self._passed[waiting]
        answer = draft.offer(waiting)
        return answer if isinstance(answer, Reason) else Reason(code=ReasonCode.ROUND)

    def plan(self, draft: Draft) -> None:
        """Release the devices of expired jobs, then place the selected jobs."""
        self._cpu_jobs.start(draft)
        if not self._due and draft.now_s < self.wakeup_s:
            return
        self._due = False
        context = self._context
        context.now_s, context.inventory, context.allocator = draft.now_s, draft.inventory, draft.allocator
        before: dict[LiveJob, Placement] = {}
        for live in self._rule.expired(context):
            if live.placement is not None and not live.is_leaving and draft.may_preempt(live):
                before[live] = live.placement
                draft.release(live)
        selection = self._rule.select(context)
        self._passed = dict(selection.passed)
        RequestPlacement(draft, [*selection.requests, *selection.backfill], before, self._passed).run()
        for live, reason in self._passed.items():
            draft.because(live, reason)
        for live in draft.touched:
            self._update_lists(live)
        self._rule.placed(context)
        relaxes_s = min((draft.allocator.stage(live, draft.now_s)[1] for live in context.waiting), default=math.inf)
        self.wakeup_s = min(self._rule.wakeup_s(context), relaxes_s)

    def _update_lists(self, live: LiveJob) -> None:
        """Move a job that the draft touched to the list that it belongs to now."""
        context = self._context
        if live.placement is None:
            if live in context.holding:
                del context.holding[live]
                context.leaving[live] = None
        elif live.job.gpu_milli:
            context.waiting.pop(live, None)
            context.holding[live] = None
