"""Sizes and device types under Rota's own policy: the smallest sizes by level, then the rest by marginal gain.

Jobs are taken in the order of their levels while devices are left, each at its smallest size. Where device types
differ, the chosen jobs share them so that the sum of relative speeds is large: the job that would lose most on another
type chooses first. What is left goes, task by task, to the job whose rate of completion gains most per device. A job
keeps its type and its size unless a change gains more than the restart costs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from rota.core.model.job import WHOLE, DeviceType, Job
from rota.core.state.job_record import LiveJob
from rota.mechanisms.declare import Knowledge
from rota.mechanisms.elastic.rule import Candidate, DefaultSizeRule, SizePlan, SizeQuestion, Target, even_sizes
from rota.mechanisms.ordering.rule import Turn
from rota.policies.own.order import ServiceOrder
from rota.policies.own.params import RotaParams

KEEPS = 1.25
"""A change of type or size must promise this factor."""
STAYS = 20.0
"""A job keeps its device type for this many times what a restart costs."""
SOONEST_S = 1.0
"""The least time between plans without an event."""


@dataclass(slots=True)
class _Choice:
    """One job of a plan in progress."""

    found: Candidate
    speeds: dict[DeviceType, float]
    """Speed at the smallest size by type, relative to the fastest."""
    sizes: tuple[int, ...]
    at: int = 0
    kind: DeviceType | None = None

    @property
    def tasks(self) -> int:
        """The size chosen so far."""
        return self.sizes[self.at]

    @property
    def need_milli(self) -> int:
        """Thousandths of devices that the size chosen so far holds."""
        return self.tasks * self.found.per_task_milli


class _Place(NamedTuple):
    """The place of a waiting job in the order, and what it was found for."""

    job: Job
    since_s: float
    changes: int
    """How often places had changed by something other than the job's own service."""
    turn: Turn

    def holds_for(self, live: LiveJob, now_s: float, changes: int) -> bool:
        """Return whether the job still waits, unchanged."""
        if live.holds or live.since_s != self.since_s or live.job is not self.job:
            return False
        return self.changes == changes and now_s < self.turn.until_s


class LevelSizes(DefaultSizeRule):
    """Rule for elastic jobs and for clusters of several device types."""

    replans_without_events = True

    def __init__(self, order: ServiceOrder, params: RotaParams, knowledge: Knowledge) -> None:
        self._order = order
        self._params = params
        self._speed = knowledge.speed
        self._restart_s = knowledge.restart_s
        self._growth: dict[Hashable, float] = {}
        self._relative: dict[Hashable, dict[DeviceType, float]] = {}
        self._waiting: dict[int, _Place] = {}
        """By sequence number, the places of waiting jobs."""

    def plan(self, question: SizeQuestion) -> SizePlan:
        """Choose jobs by level, types by gain, then sizes by gain."""
        now_s = question.now_s
        ranked = []
        until_s = math.inf
        for found in question.candidates:
            turn = self._turn(found.live, now_s)
            ranked.append((turn.key, found))
            if found.tasks:
                until_s = min(until_s, turn.until_s)
        ranked.sort(key=lambda pair: pair[0])
        free = {pool.device_type: pool.usable * WHOLE for pool in question.pools}
        chosen = self._choose(ranked, question, free)
        self._assign_types(chosen, free, question)
        if self._params.elastic:
            self._grow(chosen, free, question)
        targets = {each.found.seq: Target(each.tasks, each.kind) for each in chosen}
        waits = len(chosen) < len(question.candidates) or len(question.pools) > 1
        return SizePlan(targets, max(until_s, now_s + max(self._restart_s, SOONEST_S)) if waits else math.inf)

    def forget(self, live: LiveJob) -> None:
        """Drop the place of a job that ended."""
        self._waiting.pop(live.seq, None)

    def _turn(self, live: LiveJob, now_s: float) -> Turn:
        """Return a job's place in the order; that of a job that waits stays until it runs, is changed or is due."""
        changes = self._order.changes
        known = self._waiting.get(live.seq)
        if known is not None and known.holds_for(live, now_s, changes):
            return known.turn
        turn = self._order.turn(live, now_s)
        live.remember(turn.memo)
        if not live.holds:
            self._waiting[live.seq] = _Place(live.job, live.since_s, changes, turn)
        return turn

    # -- which jobs ------------------------------------------------------------------------------

    def _choose(
        self, ranked: list[tuple[tuple[float, ...], Candidate]], question: SizeQuestion, free: dict[DeviceType, int]
    ) -> list[_Choice]:
        """Take jobs in order while some set of types has room for their smallest sizes, by count."""
        left = question.free_milli
        by_type = dict(free)
        chosen = []
        for _, found in ranked:
            if not left:
                break
            sizes = self._sizes(found, question)
            if not sizes:
                continue
            need = sizes[0] * found.per_task_milli
            if need > left:
                continue
            speeds = self._speeds(found, sizes[0], question)
            if not speeds:
                continue
            kind = max(speeds, key=lambda each: (by_type[each] >= need, speeds[each]))
            if by_type[kind] < need:
                continue
            by_type[kind] -= need
            left -= need
            chosen.append(_Choice(found, speeds, sizes))
        return chosen

    def _sizes(self, found: Candidate, question: SizeQuestion) -> tuple[int, ...]:
        """Return the sizes to choose from; without `elastic`, only the requested one."""
        if not found.sizes or not found.is_elastic:
            return found.sizes
        if not self._params.elastic:
            return (found.requested,)
        return even_sizes(found, question.node_devices)

    def _speeds(self, found: Candidate, tasks: int, question: SizeQuestion) -> dict[DeviceType, float]:
        """Return the speed on each type that can hold the job, relative to the fastest; empty if there is none."""
        job, need = found.live.job, tasks * found.per_task_milli
        key = (self._speed.speed_key(job), job.roles, job.elastic, tasks, tuple(pool.usable for pool in question.pools))
        known = None if self._speed.is_estimate else self._relative.get(key)
        if known is not None:
            return known
        speeds = {}
        for pool in question.pools:
            if pool.usable * WHOLE < need:
                continue
            kind = pool.device_type
            speed = self._speed.at_size(job, kind, tasks) if found.is_elastic else self._speed.on_type(job, kind)
            if speed > 0:
                speeds[kind] = speed
        best = max(speeds.values(), default=0.0)
        found_speeds = self._relative[key] = {kind: speed / best for kind, speed in speeds.items()}
        return found_speeds

    # -- which types -----------------------------------------------------------------------------

    def _assign_types(self, chosen: list[_Choice], free: dict[DeviceType, int], question: SizeQuestion) -> None:
        """Let the job that would lose most choose its type first; a job stays on its type unless it gains enough."""
        if len(free) == 1:
            (kind,) = free
            for each in chosen:
                free[kind] -= each.need_milli
            return
        alike: dict[Hashable, list[_Choice]] = {}
        for each in chosen:
            if self._stays(each, free, question.now_s):
                each.kind = each.found.device_type
                assert each.kind is not None
                free[each.kind] -= each.need_milli
            else:
                alike.setdefault((each.need_milli, tuple(each.speeds.items())), []).append(each)
        for jobs in alike.values():
            jobs.sort(key=lambda each: -each.found.seq)
        self._share_types(list(alike.values()), free)
        chosen[:] = [each for each in chosen if each.kind is not None]

    def _share_types(self, alike: list[list[_Choice]], free: dict[DeviceType, int]) -> None:
        """Assign types to lists of jobs with equal speeds and needs; a job for which no type has room gets none."""
        largest = max((jobs[0].need_milli for jobs in alike), default=0)
        regrets: list[float] = []
        while alike:
            if len(regrets) != len(alike) or min(free.values()) < largest:
                regrets = [self._regret(jobs[-1], free) for jobs in alike]
            best = max(range(len(alike)), key=lambda at: (regrets[at], -alike[at][-1].found.seq))
            each = alike[best].pop()
            if not alike[best]:
                del alike[best]
            room = {kind: speed for kind, speed in each.speeds.items() if free[kind] >= each.need_milli}
            if not room:
                continue
            kind = max(room, key=lambda name: room[name])
            present = each.found.device_type
            if present in room and room[kind] < KEEPS * room[present]:
                kind = present
            each.kind = kind
            free[kind] -= each.need_milli

    def _stays(self, each: _Choice, free: dict[DeviceType, int], now_s: float) -> bool:
        """Return whether a job keeps its type because it has not run there for long, as restarts count."""
        found = each.found
        if not found.tasks or found.device_type not in each.speeds:
            return False
        has_room = free[found.device_type] >= each.need_milli
        return has_room and now_s < found.live.since_s + STAYS * self._restart_s

    def _regret(self, each: _Choice, free: dict[DeviceType, int]) -> float:
        """Return what a job loses, per device, if it does not get its best type with room."""
        need = each.need_milli
        speeds = sorted((speed for kind, speed in each.speeds.items() if free[kind] >= need), reverse=True)
        if not speeds:
            return math.inf
        loss = speeds[0] - (speeds[1] if len(speeds) > 1 else 0.0)
        return loss / max(need / WHOLE, 1e-3)

    # -- which sizes -----------------------------------------------------------------------------

    def _grow(self, chosen: list[_Choice], free: dict[DeviceType, int], question: SizeQuestion) -> None:
        """Give devices that are left to the jobs whose rate of completion gains most per device."""
        only = next(iter(free)) if len(free) == 1 else None
        heap: list[tuple[float, int, int]] = []
        for at, each in enumerate(chosen):
            self._push(heap, at, each, each.kind or only, question)
        while heap:
            _, _, at = heapq.heappop(heap)
            each = chosen[at]
            kind = each.kind or only
            assert kind is not None
            need = (each.sizes[each.at + 1] - each.tasks) * each.found.per_task_milli
            if need > free[kind]:
                continue
            free[kind] -= need
            each.at += 1
            self._push(heap, at, each, kind, question)

    def _push(
        self,
        heap: list[tuple[float, int, int]],
        at: int,
        each: _Choice,
        kind: DeviceType | None,
        question: SizeQuestion,
    ) -> None:
        """Queue a job's next step up if it makes the job faster."""
        if kind is None or each.at + 1 >= len(each.sizes):
            return
        now, larger = each.tasks, each.sizes[each.at + 1]
        slow, fast = self._at(each, kind, now, question), self._at(each, kind, larger, question)
        if not slow or fast <= slow:
            return
        gain = (fast - slow) / slow / max((larger - now) * each.found.per_task_milli / WHOLE, 1e-3)
        if larger <= each.found.tasks:
            gain *= KEEPS
        heapq.heappush(heap, (-gain, each.found.seq, at))

    def _at(self, each: _Choice, kind: DeviceType, tasks: int, question: SizeQuestion) -> float:
        """Return the speed at a size, looked up once for equivalent jobs."""
        job = each.found.live.job
        several = each.found.gpus(tasks) > question.node_devices
        key = (self._speed.speed_key(job), job.roles, kind, tasks, several)
        speed = self._growth.get(key)
        if speed is None:
            speed = self._growth[key] = self._speed.at_size(job, kind, tasks, several_nodes=several)
        return speed
