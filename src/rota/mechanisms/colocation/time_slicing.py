"""Time slicing of jobs on shared devices, with packing by trial, as in Gandiva.

The job that has been suspended longest runs next. Two jobs are packed on trial for a quantum; they stay packed if their
observed speeds add up to more than time slicing gives.
"""

from __future__ import annotations

import math
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.errors import PlanRefused
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import WHOLE
from rota.core.model.placement import packed
from rota.core.state.job_record import LiveJob

HALF = WHOLE // 2
_SLACK = 1e-9
Pair = tuple[int, int]


class TimeSlices:
    """Time slices of all groups, and which pairs of jobs run well when packed."""

    def __init__(self, quantum_s: float, *, packs: bool, switching: float = math.inf) -> None:
        self._quantum_s = quantum_s
        self._switching = switching
        """The largest part of the time that may be lost to switching: slices are longer where a switch takes long."""
        self._switched_s: dict[int, float] = {}
        """When the switch to a job was ordered, until it runs."""
        self._cost_s: dict[int, float] = {}
        """How long the last switch to a job took."""
        self._packs = packs
        self.alone: dict[int, float] = {}
        """Observed speeds of jobs that had their devices to themselves."""
        self._began_s: dict[int, float] = {}
        """When the present slice began: when a job began to work on its devices, or continued alone after a trial."""
        self._kept: set[Pair] = set()
        self._rejected: set[Pair] = set()

    @property
    def memory(self) -> Any:
        """The observations, as a serialisable value."""
        return {
            "alone": sorted(self.alone.items()),
            "began_s": sorted(self._began_s.items()),
            "cost_s": sorted(self._cost_s.items()),
            "kept": sorted(map(list, self._kept)),
            "apart": sorted(map(list, self._rejected)),
        }

    def recall(self, memory: Any) -> None:
        """Restore what `memory` returned."""
        self.alone, self._began_s = dict(memory["alone"]), dict(memory["began_s"])
        self._cost_s = dict(memory.get("cost_s", ()))
        self._kept = {(one, other) for one, other in memory["kept"]}
        self._rejected = {(one, other) for one, other in memory["apart"]}

    def observe(self, live: LiveJob, now_s: float) -> None:
        """Record the present speed of a job if it has its devices to itself; its slice begins when it works on them."""
        if live.is_settled and not _is_off_device(live) and self._began_s.get(live.seq, -math.inf) < live.since_s:
            self._began_s[live.seq] = began_s = max(now_s, live.work_from_s)
            if (ordered_s := self._switched_s.pop(live.seq, None)) is not None:
                self._cost_s[live.seq] = began_s - ordered_s
        if live.is_settled and live.rate > 0 and has_whole_devices(live):
            self.alone[live.seq] = live.rate

    def forget(self, live: LiveJob) -> None:
        """Drop what is stored about a job that has ended."""
        self.alone.pop(live.seq, None)
        for kept in (self._began_s, self._switched_s, self._cost_s):
            kept.pop(live.seq, None)
        for pairs in (self._kept, self._rejected):
            pairs.difference_update([pair for pair in pairs if live.seq in pair])

    def serve(self, draft: Draft, jobs: list[LiveJob]) -> float | None:
        """Serve one group; return when to serve it again, None if the driver has still to answer orders for it."""
        running = [live for live in jobs if not _is_off_device(live)]
        suspended = sorted((live for live in jobs if _is_off_device(live)), key=lambda live: (live.since_s, live.seq))
        if not all(live.is_settled for live in running) or any(not live.is_suspended for live in suspended):
            return None
        if not running:
            return draft.now_s + self._quantum_s if self._resume_next(draft, suspended) else draft.now_s
        if len(running) == 1 and not suspended:
            return math.inf if self._give_all(draft, running[0]) else draft.now_s
        began_s = max(max(live.since_s, self._began_s.get(live.seq, 0.0)) for live in running)
        due_s = began_s + self._slice_s(running)
        if draft.now_s >= due_s:
            self._end_quantum(draft, running, suspended)
            return draft.now_s + self._quantum_s if suspended else math.inf
        if len(running) == 1:
            self._give_all(draft, running[0])
        return due_s

    def explain(self, waiting: LiveJob, jobs: list[LiveJob]) -> Reason:
        """Return which job of a group has its turn while another is suspended, and how long the slice takes."""
        running = [live for live in jobs if live is not waiting and not _is_off_device(live)]
        if not running:
            return Reason(code=ReasonCode.ROUND)
        cost_s = max(self._cost_s.get(live.seq, 0.0) for live in running)
        slice_s = max(self._quantum_s, cost_s / self._switching)
        return Reason(code=ReasonCode.TURN, job=running[0].job.id, slice_s=slice_s, switch_s=cost_s)

    def _slice_s(self, running: list[LiveJob]) -> float:
        """Return the length of the present slice: the quantum, or more if the switch to it took long."""
        cost_s = max(self._cost_s.get(live.seq, 0.0) for live in running)
        return max(self._quantum_s, cost_s / self._switching)

    def _end_quantum(self, draft: Draft, running: list[LiveJob], suspended: list[LiveJob]) -> None:
        """End a quantum: judge a trial, begin one, or resume the next job."""
        if len(running) == 2 and self._pair(*running) not in self._kept:
            if self._gains(*running):
                self._kept.add(self._pair(*running))
            else:
                self._rejected.add(self._pair(*running))
                last = max(running, key=lambda live: (live.since_s, live.seq))
                first = next(live for live in running if live is not last)
                draft.suspend(last)
                self._give_all(draft, first)
                self._began_s[first.seq] = draft.now_s
                return
        if not suspended or not all(makes_room(live) for live in running):
            return
        if (
            self._packs
            and len(running) == 1
            and has_whole_devices(running[0])
            and self._pack_on_trial(draft, running[0], suspended)
        ):
            return
        mark = draft.mark()
        for live in running:
            draft.suspend(live)
        if not self._resume_next(draft, suspended):
            draft.undo(mark)

    def make_room(self, draft: Draft, jobs: list[LiveJob]) -> None:
        """Suspend the running jobs of a group, so that a new job gets the first slice."""
        for live in jobs:
            if not _is_off_device(live):
                draft.suspend(live)

    def _resume_next(self, draft: Draft, suspended: list[LiveJob]) -> bool:
        """Resume the job suspended longest, with its packed partner if it has one; return False if none can resume.

        Where jobs outside the group hold fractions of its devices, it resumes with half of each.
        """
        for first in suspended:
            partner = next((live for live in suspended if self._pair(first, live) in self._kept), None)
            if partner is None and _resume(draft, first, WHOLE):
                self._switched_s[first.seq] = draft.now_s
                return True
            if _resume(draft, first, HALF):
                self._switched_s[first.seq] = draft.now_s
                if partner is not None:
                    _resume(draft, partner, HALF)
                return True
        return False

    def _pack_on_trial(self, draft: Draft, one: LiveJob, suspended: list[LiveJob]) -> bool:
        """Pack a suspended job with the running one, if both were observed alone and the pair was never rejected."""
        for other in suspended:
            if self._pair(one, other) in self._rejected or not {one.seq, other.seq} <= self.alone.keys():
                continue
            mark = draft.mark()
            try:
                draft.share(one, packed(one.placement or (), HALF))
                draft.resume(other, packed(other.suspended_on or (), HALF))
            except PlanRefused:
                draft.undo(mark)
                self._rejected.add(self._pair(one, other))
                continue
            return True
        return False

    def _gains(self, one: LiveJob, other: LiveJob) -> bool:
        """Return whether two packed jobs outrun time-sliced ones: more than one job's worth in total."""
        return sum(live.rate / self.alone.get(live.seq, live.nominal_rate) for live in (one, other)) > 1.0 + _SLACK

    def _give_all(self, draft: Draft, live: LiveJob) -> bool:
        """Give a job all of its devices; return False while jobs outside its group hold fractions of them."""
        if has_whole_devices(live):
            return True
        try:
            draft.share(live, packed(live.placement or (), WHOLE))
        except PlanRefused:
            return False
        return True

    def _pair(self, one: LiveJob, other: LiveJob) -> Pair:
        return (min(one.seq, other.seq), max(one.seq, other.seq))


def _resume(draft: Draft, live: LiveJob, milli: int) -> bool:
    """Resume a job with that fraction of its devices if it is free."""
    there = packed(live.suspended_on or (), milli)
    if not draft.can_resume(live, there):
        return False
    draft.resume(live, there)
    return True


def makes_room(live: LiveJob) -> bool:
    """Return whether a job that is suspended leaves room for another; False where its memory has no place to go."""
    checkpoint = live.job.checkpoint
    return checkpoint is None or checkpoint.suspend_s != math.inf


def has_whole_devices(live: LiveJob) -> bool:
    """Return whether a running job has its devices to itself."""
    return all(slot.milli == WHOLE for slot in live.placement or ())


def _is_off_device(live: LiveJob) -> bool:
    return live.suspended_on is not None
