"""Elastic scheduler: turns the sizes that a rule chooses into a plan with few changes.

A job that has its size keeps its placement. Jobs shrink and stop first; a job that grows runs on until the devices are
vacated, and is resized then. Devices that the rule's choice cannot use, because they are fragmented or of a type that
no chosen job can run on, go to waiting jobs that fit.
"""

from __future__ import annotations

import math
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.engine.protocols import Allocator, Capabilities, Changes
from rota.core.messages.decisions import Cause
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import WHOLE
from rota.core.model.placement import Placement
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.mechanisms.elastic.defragment import Defragmenter
from rota.mechanisms.elastic.resize import Resizer
from rota.mechanisms.elastic.rule import Candidate, SizePlan, SizeQuestion, SizeRule, Target, candidate
from rota.perf.speed.model import SpeedModel

PLANS_OF_A_MOMENT = 4
"""How often the rule is asked at one moment; after that its last plan is completed, so that time passes."""


class MomentPlan:
    """The plans of one moment. A rule whose answer follows from what runs could change its mind for ever.

    At one moment the rule is asked a few times, as each start and stop may change its answer. After that, its last plan
    is completed: a job that holds devices keeps them, or grows to its target, and none is stopped or made smaller.
    """

    def __init__(self) -> None:
        self._at_s = -math.inf
        self._asked = 0
        self._last = SizePlan({})

    def begin(self) -> None:
        """Ask the rule afresh: a job has come or ended, which is no consequence of the rule's own answers."""
        self._asked = 0

    def keep(self, plan: SizePlan, now_s: float) -> SizePlan:
        """Remember a plan of the rule."""
        self._asked = self._asked + 1 if now_s == self._at_s else 1
        self._at_s, self._last = now_s, plan
        return plan

    def completed(self, candidates: list[Candidate], now_s: float) -> SizePlan | None:
        """Return the completion of the last plan if the rule was asked often enough at this moment."""
        if now_s != self._at_s or self._asked < PLANS_OF_A_MOMENT:
            return None
        targets: dict[int, Target] = {}
        present = {found.seq: found for found in candidates}
        for seq, target in self._last.targets.items():
            found = present.get(seq)
            if found is not None:
                grows = target.tasks > found.tasks and target.device_type in (None, found.device_type)
                targets[seq] = target if grows or not found.tasks else Target(found.tasks)
        for found in candidates:
            if found.tasks and found.seq not in targets:
                targets[found.seq] = Target(found.tasks)
        return SizePlan(targets, self._last.until_s)


class ElasticScheduler:
    """Policy made of a rule for sizes."""

    capabilities = Capabilities(asks_guard=True)

    def __init__(self, rule: SizeRule, allocator: Allocator, *, name: str, speed: SpeedModel | None = None) -> None:
        self._rule = rule
        self._allocator = allocator
        self._name = name
        self._speed = speed
        self._reset()

    def _reset(self) -> None:
        self._jobs: dict[LiveJob, None] = {}
        self._resizer = Resizer(self._speed)
        self._stale = False
        self._unfinished = False
        """Whether part of the plan has to wait until the driver has answered earlier orders."""
        self._planned_s = -math.inf
        self._moment = MomentPlan()
        self.wakeup_s = math.inf

    @property
    def memory(self) -> Any:
        """Time of the last plan, what is left of it, and the rule's memory."""
        return {
            "policy": self._name,
            "stale": self._stale,
            "unfinished": self._unfinished,
            "planned_s": None if self._planned_s == -math.inf else self._planned_s,
            "wakeup_s": None if self.wakeup_s == math.inf else self.wakeup_s,
            "rule": self._rule.memory,
        }

    # -- what the engine tells -------------------------------------------------------------------

    def adopt(self, state: State) -> None:
        """Rebuild the indexes from a state; restore the memory if it is this policy's."""
        self.take_over(state)
        memory = state.memory
        if not isinstance(memory, dict) or memory.get("policy") != self._name:
            return
        self._stale, self._unfinished = memory["stale"], memory["unfinished"]
        self._planned_s = -math.inf if memory["planned_s"] is None else memory["planned_s"]
        self.wakeup_s = math.inf if memory["wakeup_s"] is None else memory["wakeup_s"]
        self._rule.recall(memory["rule"])

    def take_over(self, state: State) -> None:
        """Rebuild the indexes from a state that another mechanism planned until now."""
        self._reset()
        self._rule.attach(state.jobs)
        for live in state.jobs.values():
            comes_back = live.stopping in (Cause.PREEMPTED, Cause.MOVED)
            if live.placement is not None or comes_back or live.is_contending:
                self._jobs[live] = None
        self._stale = bool(self._jobs)
        self.wakeup_s = state.now_s if self._jobs else math.inf

    def note(self, changes: Changes, now_s: float) -> None:
        """Update the jobs and record observed speeds."""
        if any(live.first_start_s is None for live in changes.arrived):
            self._moment.begin()
        for live in changes.left:
            self._jobs.pop(live, None)
            if live.state.is_final:
                self._moment.begin()
                self._resizer.forget(live)
                self._rule.forget(live)
        for live in changes.arrived:
            if live.is_contending:
                self._jobs[live] = None
        for live in changes.started:
            if live.placement is not None and live.rate > 0:
                self._rule.observe(live, len({slot.node for slot in live.placement}), now_s)
        if changes.arrived or changes.left or changes.freed or changes.shrunk:
            self._stale = True
        if self._unfinished and not any(live.is_in_transition for live in self._jobs):
            self._stale = True
        if self._stale:
            self.wakeup_s = self._next_s(now_s)

    def _next_s(self, now_s: float) -> float:
        """Return when to plan: at once, or at the end of an interval while jobs run and the last plan is complete."""
        interval_s = self._rule.interval_s
        if interval_s is None or self._unfinished or self._planned_s == -math.inf:
            return now_s
        if not any(map(_holds_devices, self._jobs)):
            return now_s
        passed = math.ceil((now_s - self._planned_s) / interval_s - 1e-9)
        return max(self._planned_s + max(passed, 1) * interval_s, now_s)

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """Return why not even the smallest size fits; otherwise the job waits for the next plan."""
        elastic = waiting.job.elastic
        found = self._resizer.find(draft, waiting, 1 if elastic is None else elastic.min_tasks, None)
        return found if isinstance(found, Reason) else Reason(code=ReasonCode.ROUND)

    # -- the plan --------------------------------------------------------------------------------

    def plan(self, draft: Draft) -> None:
        """Ask the rule for sizes if a plan is due, and apply them as far as possible."""
        if self.wakeup_s > draft.now_s:
            self._start_cpu_jobs(draft)
            return
        contending = (
            live
            for live in self._jobs
            if not live.is_in_transition
            and (live.job.gpu_milli or self._rule.plans_cpu_jobs)
            and (live.placement is None or draft.may_preempt(live))
        )
        candidates = [candidate(live, draft.inventory) for live in contending]
        candidates.sort(key=lambda found: found.seq)
        plan = self._moment.completed(candidates, draft.now_s)
        if plan is None:
            plan = self._moment.keep(self._rule.plan(self._question(candidates, draft)), draft.now_s)
        if not self._unfinished:
            self._planned_s = draft.now_s
        self._stale = False
        self._unfinished = any(live.is_in_transition for live in self._jobs)
        self._follow(draft, candidates, plan)
        self._start_cpu_jobs(draft)
        self._record_reasons(draft)
        self.wakeup_s = min(plan.until_s, self._next_relax_s(draft.now_s))
        if self._rule.interval_s is not None:
            is_settled = not draft.touched and not self._unfinished and self.wakeup_s == math.inf
            sleeps = not self._jobs or (is_settled and not self._rule.replans_without_events)
            self.wakeup_s = math.inf if sleeps else self._planned_s + self._rule.interval_s

    def _question(self, candidates: list[Candidate], draft: Draft) -> SizeQuestion:
        pools = draft.inventory.pools
        asked = {found.live for found in candidates}
        busy = sum(live.gpu_milli for live in self._jobs if live.placement is not None and live not in asked)
        nodes = draft.inventory.nodes
        return SizeQuestion(
            now_s=draft.now_s,
            candidates=candidates,
            free_milli=max(
                (sum(pool.usable for pool in pools) + _exclusive_devices(draft.inventory)) * WHOLE - busy, 0
            ),
            pools=pools,
            node_devices=max((account.node.devices for account in nodes), default=1) or 1,
            inventory=draft.inventory,
        )

    def _follow(self, draft: Draft, candidates: list[Candidate], plan: SizePlan) -> None:
        targets, by_seq = plan.targets, {found.seq: found for found in candidates}
        before: dict[LiveJob, Placement] = {}
        vacating = self._unfinished
        for found in candidates:
            if found.tasks:
                vacating |= self._make_room(draft, found, targets.get(found.seq), before)
        defragmenter = Defragmenter(draft, self._resizer, candidates) if self._rule.defragments else None
        passed_over: list[Candidate] = []
        growing: list[tuple[Candidate, Target]] = []
        for seq, target in targets.items():
            found = by_seq[seq]
            if found.live.placement is not None:
                if target.tasks > found.tasks or (defragmenter is not None and not defragmenter.is_compact(found)):
                    growing.append((found, target))
            elif not self._place(draft, found, target, defragmenter):
                passed_over.append(found)
        if vacating and growing:
            self._unfinished = True
            return
        for found, target in growing:
            self._grow(draft, found, target, defragmenter)
        if passed_over:
            passed_over = self._repack(draft, candidates, targets, passed_over)
        passed_over += [found for found in candidates if found.seq not in targets]
        self._fill(draft, passed_over, before)

    def _make_room(
        self, draft: Draft, found: Candidate, target: Target | None, before: dict[LiveJob, Placement]
    ) -> bool:
        """Stop or shrink a job to its target; return whether that vacates devices."""
        live = found.live
        assert live.placement is not None
        if target is None or target.device_type not in (None, found.device_type):
            before[live] = live.placement
            draft.release(live)
            return True
        if target.tasks < found.tasks:
            return self._resizer.shrink(draft, live, target.tasks)
        return False

    def _place(self, draft: Draft, found: Candidate, target: Target, defragmenter: Defragmenter | None) -> bool:
        """Place a job at its target size, or at the largest smaller size that fits."""
        if defragmenter is not None and defragmenter.place(found, target.tasks):
            return True
        free_milli = _free_milli(draft, found)
        for tasks in reversed(found.sizes):
            if tasks > target.tasks or tasks * found.per_task_milli > free_milli:
                continue
            if self._resizer.place(draft, found.live, tasks, target.device_type) is None:
                return True
        return False

    def _grow(self, draft: Draft, found: Candidate, target: Target, defragmenter: Defragmenter | None) -> None:
        if defragmenter is not None and defragmenter.place(found, target.tasks):
            return
        free_milli = _free_milli(draft, found) + found.tasks * found.per_task_milli
        for tasks in reversed(found.sizes):
            if not found.tasks < tasks <= target.tasks or tasks * found.per_task_milli > free_milli:
                continue
            if self._resizer.grow(draft, found.live, tasks, target.device_type):
                return

    def _repack(
        self, draft: Draft, candidates: list[Candidate], targets: Any, passed_over: list[Candidate]
    ) -> list[Candidate]:
        """Place all jobs from scratch, the largest tasks first, where only fragmentation keeps a job from starting."""
        wanted = [found for found in passed_over if _may_fit(draft, found)]
        if not wanted:
            return passed_over
        mark = draft.mark()
        holders = [found for found in candidates if found.live.placement is not None]
        sizes = {found.seq: _tasks_of(found.live) for found in holders}
        sizes |= {found.seq: found.sizes[0] for found in wanted}
        for found in holders:
            draft.release(found.live)
        all_jobs = sorted([*holders, *wanted], key=lambda f: (-f.per_task_milli, -sizes[f.seq], f.seq))
        for found in all_jobs:
            target = targets.get(found.seq)
            kind = None if target is None else target.device_type
            if self._resizer.place(draft, found.live, sizes[found.seq], kind) is not None:
                draft.undo(mark)
                return passed_over
        return [found for found in passed_over if found.live.placement is None]

    def _fill(self, draft: Draft, waiting: list[Candidate], before: dict[LiveJob, Placement]) -> None:
        """Return leftover devices to their previous holder, else to the first job that fits."""
        for found in waiting:
            live, held = found.live, before.get(found.live)
            if held is not None and draft.inventory.is_free(held, live.job.roles, live.job.exclusive, back=True):
                draft.assign_offered(live, held)
            elif found.sizes and _may_fit(draft, found):
                self._resizer.place(draft, live, found.sizes[0], None)

    def _start_cpu_jobs(self, draft: Draft) -> None:
        """Start jobs without devices as soon as there is room."""
        if self._rule.plans_cpu_jobs:
            return
        for live in self._jobs:
            if live.job.gpu_milli or live.placement is not None or live.is_leaving:
                continue
            offered = draft.offer(live)
            if not isinstance(offered, Reason):
                draft.assign_offered(live, offered)

    def _record_reasons(self, draft: Draft) -> None:
        for live in self._jobs:
            if live.placement is None and not live.is_leaving and live.wait_code is None:
                draft.because(live, self.explain(live, draft))

    def _next_relax_s(self, now_s: float) -> float:
        """Return when the locality of a waiting job relaxes next."""
        return min(
            (self._allocator.stage(live, now_s)[1] for live in self._jobs if live.placement is None), default=math.inf
        )


def _exclusive_devices(inventory: Inventory) -> int:
    """Return the devices of nodes that a job holds exclusively."""
    return sum(
        account.node.devices
        for account in inventory.nodes
        if account.locked and account.up and not (account.drained or account.removed)
    )


def _holds_devices(live: LiveJob) -> bool:
    return live.placement is not None and live.job.gpu_milli > 0


def _tasks_of(live: LiveJob) -> int:
    return sum(slot.tasks for slot in live.placement or ()) if live.job.elastic is not None else 1


def _may_fit(draft: Draft, found: Candidate) -> bool:
    return bool(found.sizes) and found.sizes[0] * found.per_task_milli <= _free_milli(draft, found)


def _free_milli(draft: Draft, found: Candidate) -> int:
    if any(role.is_fraction for role in found.live.job.roles):
        return draft.inventory.devices * WHOLE
    return draft.inventory.free * WHOLE
