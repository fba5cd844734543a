"""Picks: a rule says whose devices are given out anew and who gets devices next; everyone else stays put.

The mechanism behind auctions, matchings and time slices. It is asked when something happened that may let a job
start, and when the rule says that somebody's time is up.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from rota.core.engine.draft import Draft
from rota.core.engine.protocols import Allocator, Capabilities, Changes
from rota.core.messages.decisions import Cause
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import DeviceType
from rota.core.model.placement import Placement
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.mechanisms.constrained_job import narrowed, on_node

_RELAXED_S = 1e300
"""A moment by which every locality that ever relaxes has done so."""


class Want(NamedTuple):
    """A job that should have devices: of one type if the rule has chosen one, on one node if it has chosen that."""

    live: LiveJob
    kind: DeviceType | None = None
    node: int | None = None


@dataclass(slots=True)
class SelectionContext:
    """What a rule is asked about: who waits, who holds devices and who is on its way out of them; what is free."""

    now_s: float = 0.0
    waiting: dict[LiveJob, None] = field(default_factory=dict)
    holding: dict[LiveJob, None] = field(default_factory=dict)
    leaving: dict[LiveJob, None] = field(default_factory=dict)
    """Jobs whose devices were taken, until they have vacated them and wait again."""
    inventory: Inventory = field(default_factory=Inventory)
    allocator: Allocator | None = None
    _runs: dict[Hashable, bool] = field(default_factory=dict)

    def can_run(self, live: LiveJob, kind: DeviceType) -> bool:
        """Whether all of a job could ever be placed on devices of one type; the same for all that are alike."""
        assert self.allocator is not None
        key = (self.allocator.equivalence_key(live), kind, len(self.inventory.nodes))
        if key not in self._runs:
            empty = Inventory()
            for books in self.inventory.nodes:
                empty.add(books.node)
            self._runs[key] = not isinstance(self.allocator.offer(narrowed(live, kind), empty, _RELAXED_S), Reason)
        return self._runs[key]

    def in_order(self) -> list[LiveJob]:
        """Who waits or holds devices, in order of submission."""
        return sorted([*self.waiting, *self.holding], key=lambda live: live.seq)

    def contending(self) -> list[LiveJob]:
        """Also those who are on their way out, in order of submission."""
        return sorted([*self.waiting, *self.holding, *self.leaving], key=lambda live: live.seq)


@dataclass(slots=True)
class Selection:
    """Who gets devices, in order: first those who are wanted, then whoever still fits; and why others are passed."""

    wants: Sequence[Want] = ()
    fill: Sequence[Want] = ()
    passed: Mapping[LiveJob, Reason] = field(default_factory=dict)


class SelectionRule(Protocol):
    """A published way to choose who holds devices."""

    def up(self, scene: SelectionContext) -> list[LiveJob]:
        """Holders whose devices are given out anew; they may get them back."""

    def pick(self, scene: SelectionContext) -> Selection:
        """Who gets what is free now."""

    def settle(self, scene: SelectionContext) -> None:
        """The picks have been seated as far as there was room."""

    def wakeup_s(self, scene: SelectionContext) -> float:
        """When somebody's time will be up."""

    @property
    def memory(self) -> Any:
        """What it must remember between two picks, as a value that JSON can hold."""

    def recall(self, memory: Any) -> None:
        """Take up what `memory` said."""


class SelectionScheduler:
    """The policy that a pick rule makes."""

    capabilities = Capabilities()

    def __init__(self, rule: SelectionRule, *, name: str) -> None:
        self._rule = rule
        self._name = name
        self._forget()

    def _forget(self) -> None:
        self._scene = SelectionContext()
        self._bare: dict[LiveJob, None] = {}
        """Jobs without devices: they need no turn and start as soon as there is room for them."""
        self._passed: dict[LiveJob, Reason] = {}
        self._due = False
        self.wakeup_s = math.inf

    @property
    def memory(self) -> Any:
        """Who was there when it was last asked, and what the rule remembers."""
        return {
            "policy": self._name,
            "jobs": [live.seq for live in self._scene.in_order()],
            "due": self._due,
            "wakeup_s": None if self.wakeup_s == math.inf else self.wakeup_s,
            "passed": [[live.seq, reason.code.value, reason.need_milli] for live, reason in self._passed.items()],
            "rule": self._rule.memory,
        }

    def adopt(self, state: State) -> None:
        """Index a state anew, and go on where its memory says, if it is this policy's."""
        self._forget()
        scene = self._scene
        scene.now_s, scene.inventory = state.now_s, state.inventory
        for live in sorted(state.jobs.values(), key=lambda live: live.seq):
            if live.placement is None and live.stopping in (Cause.PREEMPTED, Cause.MOVED) and live.job.gpu_milli:
                scene.leaving[live] = None
            elif live.placement is not None:
                if live.job.gpu_milli:
                    scene.holding[live] = None
            elif live.is_contending:
                self._enlist(live)
        memory = state.memory
        known: list[int] = []
        if isinstance(memory, dict) and memory.get("policy") == self._name:
            known = memory["jobs"]
            self._rule.recall(memory["rule"])
            self._due = memory["due"]
            self.wakeup_s = math.inf if memory["wakeup_s"] is None else memory["wakeup_s"]
            self._recall_passed(memory["passed"])
        if known != [live.seq for live in scene.in_order()]:
            self._due = True
            self.wakeup_s = state.now_s

    def _recall_passed(self, passed: Any) -> None:
        waiting = {live.seq: live for live in self._scene.waiting}
        self._passed = {
            waiting[seq]: Reason(code=ReasonCode(code), need_milli=need) for seq, code, need in passed if seq in waiting
        }

    def _enlist(self, live: LiveJob) -> None:
        if live.job.gpu_milli:
            self._scene.waiting[live] = None
        else:
            self._bare[live] = None

    def note(self, changes: Changes, now_s: float) -> None:
        """Remember who came and went."""
        scene = self._scene
        for live in changes.left:
            scene.waiting.pop(live, None)
            scene.holding.pop(live, None)
            scene.leaving.pop(live, None)
            self._bare.pop(live, None)
        for live in changes.arrived:
            scene.leaving.pop(live, None)
            if live.is_contending and live.placement is None:
                self._enlist(live)
        if changes.arrived or changes.left or changes.freed:
            self._due = True
            self.wakeup_s = now_s

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """The rule's own reason, or what there is too little of."""
        if waiting in self._passed:
            return self._passed[waiting]
        answer = draft.offer(waiting)
        return answer if isinstance(answer, Reason) else Reason(code=ReasonCode.ROUND)

    def plan(self, draft: Draft) -> None:
        """Take devices from those whose time is up, and give out what is free."""
        self._start_bare(draft)
        if not self._due and draft.now_s < self.wakeup_s:
            return
        self._due = False
        scene = self._scene
        scene.now_s, scene.inventory, scene.allocator = draft.now_s, draft.inventory, draft.allocator
        before: dict[LiveJob, Placement] = {}
        for live in self._rule.up(scene):
            if live.placement is not None and not live.is_leaving:
                before[live] = live.placement
                draft.release(live)
        picks = self._rule.pick(scene)
        self._passed = dict(picks.passed)
        _SelectionPlacement(draft, [*picks.wants, *picks.fill], before, self._passed).run()
        for live, reason in self._passed.items():
            draft.because(live, reason)
        for live in draft.touched:
            self._file(live)
        self._rule.settle(scene)
        relaxes_s = min((draft.allocator.stage(live, draft.now_s)[1] for live in scene.waiting), default=math.inf)
        self.wakeup_s = min(self._rule.wakeup_s(scene), relaxes_s)

    def _file(self, live: LiveJob) -> None:
        """A job that a draft touched: it holds devices now, or it comes back when it has left them."""
        scene = self._scene
        if live.placement is None:
            if live in scene.holding:
                del scene.holding[live]
                scene.leaving[live] = None
        elif live.job.gpu_milli:
            scene.waiting.pop(live, None)
            scene.holding[live] = None

    def _start_bare(self, draft: Draft) -> None:
        for live in list(self._bare):
            offered = draft.offer(live)
            if isinstance(offered, Reason):
                draft.because(live, offered)
            else:
                draft.assign_offered(live, offered)
                del self._bare[live]


class _SelectionPlacement:
    """Wants are served in order; who keeps its place does so unless somebody before it in the order needs it."""

    def __init__(
        self, draft: Draft, wants: list[Want], before: Mapping[LiveJob, Placement], passed: dict[LiveJob, Reason]
    ) -> None:
        self._draft = draft
        self._wants = wants
        self._before = before
        self._passed = passed
        self._failed: set[Hashable] = set()
        self._stayers: list[LiveJob] = []
        """Who sits where it was, last in the order first."""

    def run(self) -> None:
        """Everybody in turn."""
        draft = self._draft
        for want in self._wants:
            if self._sit_back(want):
                self._stayers.insert(0, want.live)
        for want in self._wants:
            if self._stayers and self._stayers[-1] is want.live:
                self._stayers.pop()
            if want.live.placement is None and not self._sit_back(want) and not self._has_failed(want):
                placement = self._find(want)
                if isinstance(placement, Reason):
                    self._failed.add(self._shape(want))
                    if want.live not in self._passed:
                        draft.because(want.live, placement)
                else:
                    draft.assign_offered(want.live, placement)
                    self._passed.pop(want.live, None)

    def _sit_back(self, want: Want) -> bool:
        """Back to the devices that the job had, if they are what is wanted and nobody took them."""
        held = self._before.get(want.live)
        if held is None or want.live.placement is not None:
            return False
        job, inventory = want.live.job, self._draft.inventory
        if want.kind is not None and inventory.nodes[held[0].node].node.device_type != want.kind:
            return False
        if want.node is not None and any(slot.node != want.node for slot in held):
            return False
        if not inventory.is_free(held, job.roles, job.exclusive, back=True):
            return False
        self._draft.assign_offered(want.live, held)
        return True

    def _shape(self, want: Want) -> Hashable:
        allocator, now_s = self._draft.allocator, self._draft.now_s
        return (allocator.equivalence_key(want.live), allocator.stage(want.live, now_s)[0], want.kind, want.node)

    def _has_failed(self, want: Want) -> bool:
        """Whether a job like it found no place before, when there was more room."""
        return want.live.wait_code is not None and self._shape(want) in self._failed

    def _find(self, want: Want) -> Placement | Reason:
        """Free devices, or those of jobs that keep their place and come later, the last first."""
        draft = self._draft
        found = reason = self._offer(want)
        if not isinstance(found, Reason) or not self._stayers:
            return found
        mark = draft.mark()
        for gone, later in enumerate(self._stayers, start=1):
            draft.release(later)
            found = self._offer(want)
            if not isinstance(found, Reason):
                del self._stayers[:gone]
                return found
        draft.undo(mark)
        return reason

    def _offer(self, want: Want) -> Placement | Reason:
        draft, live = self._draft, want.live
        if want.node is not None:
            placement = on_node(draft.inventory, live.job, want.node)
            if placement is not None:
                return placement
        return draft.offer(live if want.kind is None else narrowed(live, want.kind))
