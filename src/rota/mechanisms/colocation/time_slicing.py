"""Time slices: jobs that share devices have them for a quantum each, and those who can do so run together.

Who rests longest goes next. Two are packed on trial; whether they stay so is what was seen of their speeds.
"""

from __future__ import annotations

import math
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.errors import PlanRefused
from rota.core.model.job import WHOLE
from rota.core.model.placement import packed
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.groups import is_settled

HALF = WHOLE // 2
_MORE = 1e-9
Pair = tuple[int, int]


class TimeSlices:
    """Whose turn it is on devices that several jobs have, and which of them were seen to run well together."""

    def __init__(self, quantum_s: float, *, packs: bool) -> None:
        self._quantum_s = quantum_s
        self._packs = packs
        self.alone: dict[int, float] = {}
        """The speed of jobs that had their devices to themselves, as seen."""
        self._began_s: dict[int, float] = {}
        """When the slice of a job began that went on alone after a trial; of others it is when they got devices."""
        self._kept: set[Pair] = set()
        self._apart: set[Pair] = set()

    @property
    def memory(self) -> Any:
        """What was seen, as plain values."""
        return {
            "alone": sorted(self.alone.items()),
            "began_s": sorted(self._began_s.items()),
            "kept": sorted(map(list, self._kept)),
            "apart": sorted(map(list, self._apart)),
        }

    def recall(self, memory: Any) -> None:
        """Take up what was seen before."""
        self.alone, self._began_s = dict(memory["alone"]), dict(memory["began_s"])
        self._kept = {(one, other) for one, other in memory["kept"]}
        self._apart = {(one, other) for one, other in memory["apart"]}

    def saw(self, live: LiveJob) -> None:
        """A job runs at its present speed."""
        if is_settled(live) and live.rate > 0 and has_all(live):
            self.alone[live.seq] = live.rate

    def left(self, live: LiveJob) -> None:
        """A job is gone."""
        self.alone.pop(live.seq, None)
        self._began_s.pop(live.seq, None)
        for pairs in (self._kept, self._apart):
            pairs.difference_update([pair for pair in pairs if live.seq in pair])

    def tend(self, draft: Draft, jobs: list[LiveJob]) -> float | None:
        """Look after one group; when to look again, or None if orders for it are on their way."""
        crew = [live for live in jobs if not _rests(live)]
        resting = sorted((live for live in jobs if _rests(live)), key=lambda live: (live.since_s, live.seq))
        if not all(map(is_settled, crew)) or any(not is_resting(live) for live in resting):
            return None
        if not crew:
            return draft.now_s + self._quantum_s if self._go_next(draft, resting) else draft.now_s
        if len(crew) == 1 and not resting:
            return math.inf if self._widen(draft, crew[0]) else draft.now_s
        due_s = max(max(live.since_s, self._began_s.get(live.seq, 0.0)) for live in crew) + self._quantum_s
        if draft.now_s >= due_s:
            self._turn_over(draft, crew, resting)
            return draft.now_s + self._quantum_s if resting else math.inf
        if len(crew) == 1:
            self._widen(draft, crew[0])
        return due_s

    def _turn_over(self, draft: Draft, crew: list[LiveJob], resting: list[LiveJob]) -> None:
        """A quantum is over: judge a trial, begin one, or let the next go on."""
        if len(crew) == 2 and self._pair(*crew) not in self._kept:
            if self._pays(*crew):
                self._kept.add(self._pair(*crew))
            else:
                self._apart.add(self._pair(*crew))
                last = max(crew, key=lambda live: (live.since_s, live.seq))
                first = next(live for live in crew if live is not last)
                draft.suspend(last)
                self._widen(draft, first)
                self._began_s[first.seq] = draft.now_s
                return
        if not resting:
            return
        if self._packs and len(crew) == 1 and has_all(crew[0]) and self._try_pair(draft, crew[0], resting):
            return
        mark = draft.mark()
        for live in crew:
            draft.suspend(live)
        if not self._go_next(draft, resting):
            draft.undo(mark)

    def make_room(self, draft: Draft, jobs: list[LiveJob]) -> None:
        """Suspend who runs, so that a newcomer has its first slice."""
        for live in jobs:
            if not _rests(live):
                draft.suspend(live)

    def _go_next(self, draft: Draft, resting: list[LiveJob]) -> bool:
        """Who rests longest goes on, with the one that it is known to run well with; False if nobody can.

        Beside those who have parts of its devices and are not of its group it has half of each.
        """
        for first in resting:
            mate = next((live for live in resting if self._pair(first, live) in self._kept), None)
            if mate is None and _resume(draft, first, WHOLE):
                return True
            if _resume(draft, first, HALF):
                if mate is not None:
                    _resume(draft, mate, HALF)
                return True
        return False

    def _try_pair(self, draft: Draft, one: LiveJob, resting: list[LiveJob]) -> bool:
        """Let another run beside the one that does, if both were seen alone and it was not tried before."""
        for other in resting:
            if self._pair(one, other) in self._apart or not {one.seq, other.seq} <= self.alone.keys():
                continue
            mark = draft.mark()
            try:
                draft.share(one, packed(one.placement or (), HALF))
                draft.resume(other, packed(other.suspended_on or (), HALF))
            except PlanRefused:
                draft.undo(mark)
                self._apart.add(self._pair(one, other))
                continue
            return True
        return False

    def _pays(self, one: LiveJob, other: LiveJob) -> bool:
        """Whether two together do more than in turn: more than one job's worth."""
        return sum(live.rate / self.alone.get(live.seq, live.nominal_rate) for live in (one, other)) > 1.0 + _MORE

    def _widen(self, draft: Draft, live: LiveJob) -> bool:
        """All of its devices for a job that has nobody of its group beside it; not while others have parts of them."""
        if has_all(live):
            return True
        try:
            draft.share(live, packed(live.placement or (), WHOLE))
        except PlanRefused:
            return False
        return True

    def _pair(self, one: LiveJob, other: LiveJob) -> Pair:
        return (min(one.seq, other.seq), max(one.seq, other.seq))


def _resume(draft: Draft, live: LiveJob, milli: int) -> bool:
    """Let a job that rests have so much of its devices, if that is free."""
    there = packed(live.suspended_on or (), milli)
    if not draft.can_resume(live, there):
        return False
    draft.resume(live, there)
    return True


def has_all(live: LiveJob) -> bool:
    """Whether a job that runs has its devices to itself."""
    return all(slot.milli == WHOLE for slot in live.placement or ())


def _rests(live: LiveJob) -> bool:
    return live.suspended_on is not None


def is_resting(live: LiveJob) -> bool:
    """Whether a job is suspended and nothing else is on its way for it."""
    return live.is_suspended
