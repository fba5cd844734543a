"""The order of jobs under Rota's own policy: by level, running before waiting, users in turn, small gangs first.

A running job counts as a few levels lower than it is, so that only a job that has had far less displaces it. Jobs of
the first levels, which are short as far as is known, displace running jobs of all higher levels. A gang that leaves
little room for others can only run while they hold little; beyond the first levels its service counts by that room.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from rota.core.model.job import WHOLE, DeviceType, Job
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import JobView
from rota.mechanisms.declare import Knowledge
from rota.mechanisms.ordering.rule import Turn, later
from rota.perf.training.reports import Reports
from rota.policies.own.levels import Levels
from rota.policies.own.params import RotaParams
from rota.policies.own.predictions import GroupPredictor, alike, declarer
from rota.policies.own.users import UserStandings

OVERDUE = 1.25
"""A job that had this many times its predicted service without ending ranks by the service it had, from then on."""
LAST_PART = 0.1
"""The service to come counts as at least this fraction of the prediction."""
SHORT = 3
"""Waiting jobs below this level displace all running jobs that have reached it."""
RESTARTS = 5.0
"""The first level is at least as long as this many restarts of a job of one device."""
LOOK_AGAIN = 0.1
"""A running job that reports its progress is looked at again when its service has grown by this fraction."""


class RankMemo(NamedTuple):
    """What is remembered of a job: its predicted service, and the claim of its last report."""

    predicted_gpu_s: float = 0.0
    """0: not predictable."""
    claimed_gpu_s: float = 0.0
    """The service to come by the report that lowered its level; 0: none did."""
    claimed_at_gpu_s: float = 0.0
    """The service that it had then."""
    distrusted: bool = False
    """Whether a report proved false: the job reports in vain from then on."""
    beside: int = 0
    """How many jobs of its user were there when it came, in doublings: 0 for none, 1 for one or two, 2 up to six."""


class ServiceOrder:
    """Ranks jobs by the level of the lesser of the service they had and the service to come, where that is known."""

    def __init__(self, params: RotaParams, knowledge: Knowledge) -> None:
        self._params = params
        self._reports = knowledge.reports
        self._asks = params.progress and type(knowledge.reports) is not Reports
        """Whether jobs are asked that say by a label that they report; of real jobs, `reported` is read."""
        self._priorities = params.priorities
        self._margin = params.margin
        self._gangs = params.gangs
        self._base_gpu_s = max(params.base_gpu_s, RESTARTS * knowledge.restart_s)
        self._levels = Levels(self._base_gpu_s, params.growth)
        self.in_common_units = False
        """Whether service counts as seconds on the job's fastest type, as where types differ in speed."""
        self.standings = UserStandings(params, self._levels, self.service)
        self._present: dict[str, int] = {}
        """By user, the jobs that have a place in the order."""
        self._devices: dict[DeviceType, int] = {}
        """The devices of the cluster, by type."""
        self._total = 0
        self._recounts = 0
        self._sizes = GroupPredictor()
        self._declared = GroupPredictor()

    def counts_devices(self, inventory: Inventory) -> bool:
        """Count the devices of the cluster; return whether there are others than before, so that places may differ."""
        found = {pool.device_type: pool.devices for pool in inventory.pools}
        before, self._devices = self._devices, found
        self._total = inventory.devices
        self._recounts += found != before
        return found != before

    @property
    def changes(self) -> int:
        """How often places may have changed that jobs had by something other than their own service."""
        return self._recounts + self.standings.changes

    # -- what is learned -------------------------------------------------------------------------

    @property
    def memory(self) -> Any:
        """The groups of both predictors."""
        return {"sizes": self._sizes.memory, "declared": self._declared.memory}

    def recall(self, memory: Any) -> None:
        """Restore what `memory` returned."""
        self._sizes.recall(memory["sizes"])
        self._declared.recall(memory["declared"])

    def count(self, jobs: Iterable[JobView]) -> None:
        """Count the jobs of each user again, from those that are there; a job without a memo has no place yet."""
        self._present = {}
        for job in jobs:
            if job.memo is not None and job.job.user:
                self._present[declarer(job.job)] = self._present.get(declarer(job.job), 0) + 1

    def ended(self, job: JobView, now_s: float) -> bool:
        """Learn from a job that ended; predictions of jobs that wait already stay as they are."""
        if job.memo is not None and job.job.user:
            user = declarer(job.job)
            left = self._present.get(user, 0) - 1
            if left > 0:
                self._present[user] = left
            else:
                self._present.pop(user, None)
        attained = job.attained_gpu_s(now_s)
        if attained > 0:
            if self._params.learned:
                self._sizes.learn(alike(job.job), attained)
            if self._params.declared and job.job.estimate_s:
                self._declared.learn(declarer(job.job), attained / (job.job.estimate_s * job.job.gpus))
        return False

    def predicted_gpu_s(self, job: JobView) -> float:
        """Return the predicted service of a new job, 0 if it can't be predicted."""
        found: float | None = None
        if self._params.declared and job.job.estimate_s:
            ratio = self._declared.predict(declarer(job.job))
            found = None if ratio is None else ratio * job.job.estimate_s * job.job.gpus
        if found is None and len(self._sizes):
            found = self._sizes.predict(alike(job.job))
        return found or 0.0

    # -- the order -------------------------------------------------------------------------------

    def turn(self, job: JobView, now_s: float) -> Turn:
        """The job's place in the order."""
        memo = job.memo
        if type(memo) is not RankMemo:
            memo = _remembered(memo) or self._first_memo(job)
        asked = job.job
        had, pace = self.service(job, now_s)
        raw = level = self._levels.of(had)
        least = self.standings.least_rank(asked, level)
        room, margin = 1.0, self._margin
        if level >= SHORT and asked.gpu_milli > WHOLE and self._gangs and not self.in_common_units:
            room = self.room(asked)
            level = self._level(had, room)
            margin = max(margin - (raw - level), 0)
        waits = not job.holds
        knows = level > 0 and bool(memo.predicted_gpu_s or job.reported is not None or (self._asks and asked.labels))
        plain = not (waits or least or asked.deadline_s is not None or (knows and room < 1.0))
        until_gpu_s = self._until_gpu_s(raw, level, room, plain)
        if knows:
            level, memo, until_gpu_s = self._with_knowledge(job, had, room, memo, now_s, level, until_gpu_s)
        until_s = math.inf
        if pace:
            until_s = later(now_s, (until_gpu_s - had) / pace)
        if asked.deadline_s is not None and self._params.deadlines:
            level, until_s = _with_deadline(job, asked.deadline_s, now_s, level, until_s)
        rank = level if level > least else least
        if not waits:
            if level > SHORT:
                level = max(level - margin, SHORT)
            if rank > SHORT:
                rank = max(rank - margin, SHORT)
        priority = asked.priority if self._priorities else 0
        return Turn((-priority, rank, level, waits, memo.beside, asked.gpu_milli, job.seq), 0.0, until_s, memo)

    def service(self, job: JobView, now_s: float) -> tuple[float, float]:
        """Return the service that a job had, and its growth while it runs."""
        if not self.in_common_units:
            return job.attained_gpu_s(now_s), job.gpus if job.progress_rate else 0.0
        unit = job.job.gpus / (job.nominal_rate or 1.0)
        return job.work_done(now_s) * unit, job.progress_rate * unit

    def room(self, job: Job) -> float:
        """Return the fraction of the devices that a job can use of which others must leave it at least one more to run.

        A gang of k of m devices waits while others hold more than m - k.
        """
        devices = self._total
        if job.roles[0].device_types or len(job.roles) > 1:
            types = {kind for role in job.roles for kind in role.device_types}
            devices = sum(count for kind, count in self._devices.items() if not types or kind in types)
        least = job.gpu_milli
        if job.elastic is not None and self._params.elastic:
            least = job.elastic.min_tasks * job.roles[0].device_milli
        return max(devices - least / WHOLE + 1.0, 1.0) / devices if devices and least > WHOLE else 1.0

    def _until_gpu_s(self, raw: int, level: int, room: float, plain: bool) -> float:
        """Return the service at which the place of a job changes; `plain`: it runs, and by nothing but its service.

        Then the margin, from the level without the room, or the level by the room decides, whichever is lower. All
        levels that the margin makes alike are passed at once.
        """
        if plain and raw - level < self._margin:
            return self._levels.limit(raw if raw < SHORT else max(raw, SHORT + self._margin))
        until = self._levels.limit(level) / room
        return until if plain or room >= 1.0 else min(until, self._levels.limit(raw))

    def _level(self, gpu_s: float, room: float) -> int:
        """Return the level of a service; beyond the first levels, that of a gang counts by the room that it leaves."""
        level = self._levels.of(gpu_s)
        return level if room >= 1.0 or level <= SHORT else max(self._levels.of(gpu_s * room), SHORT)

    def _first_memo(self, job: JobView) -> RankMemo:
        """Return what is remembered of a job that has no place yet: its prediction, and the jobs of its user."""
        beside = 0
        if self._params.users and job.job.user:
            user = declarer(job.job)
            there = self._present.get(user, 0)
            self._present[user] = there + 1
            beside = (there + 1).bit_length() - 1
        return RankMemo(self.predicted_gpu_s(job), beside=beside)

    def _with_knowledge(
        self, job: JobView, had: float, room: float, memo: RankMemo, now_s: float, level: int, until: float
    ) -> tuple[int, RankMemo, float]:
        """Return the level by predictions and reports, what to remember, and the service at which to look again."""
        if memo.predicted_gpu_s and had < OVERDUE * memo.predicted_gpu_s:
            level, until = self._lesser(level, until, had, memo.predicted_gpu_s, room)
        if self._params.progress and not memo.distrusted:
            done = job.reported
            if done is None:
                done = self._reports.fraction_done(job.job, job.work_done(now_s))
            if done is not None:
                level, memo, until = self._by_report(level, until, had, done, memo, room)
        return level, memo, until

    def _lesser(self, level: int, until: float, had: float, predicted: float, room: float) -> tuple[int, float]:
        """Return the lesser of the levels by service had and to come, and the service at which it changes."""
        least, end = LAST_PART * predicted, OVERDUE * predicted
        to_come = max(predicted - had, least)
        lower = self._level(to_come, room)
        lesser = min(level, lower)
        if lower <= level:
            until = end
        if lesser and to_come > least:
            before = self._levels.limit(lesser - 1) / (room if lesser > SHORT else 1.0)
            if before > least:
                until = min(until, had + max(to_come - before, 0.0) + 1e-3)
        return lesser, min(until, end)

    def _by_report(
        self, level: int, until: float, had: float, done: float, memo: RankMemo, room: float
    ) -> tuple[int, RankMemo, float]:
        """Return the level by a report of the fraction done; a job whose claim proves false is not trusted again.

        A claim that lowers the level is remembered. It is false if the job then has half as much again as it claimed,
        and a first level's service more, without ending.
        """
        base = self._base_gpu_s
        allowed = memo.claimed_at_gpu_s + 1.5 * memo.claimed_gpu_s + base
        if memo.claimed_gpu_s and had > allowed:
            return level, memo._replace(distrusted=True), until
        if not 0 < done <= 1:
            return level, memo, min(until, had + base)
        to_come = had * (1 - done) / done
        lower = self._level(to_come, room)
        if lower < level and (not memo.claimed_gpu_s or had + to_come < memo.claimed_at_gpu_s + memo.claimed_gpu_s):
            memo = memo._replace(claimed_gpu_s=max(to_come, 1.0), claimed_at_gpu_s=had)
        return min(level, lower), memo, min(until, had + max(LOOK_AGAIN * had, base / 4))


def _with_deadline(job: JobView, deadline_s: float, now_s: float, level: int, until_s: float) -> tuple[int, float]:
    """Return the level one earlier in the second half of the time to a deadline, and when that begins or ends.

    One level is all that a declared deadline can gain, so that the bound on other jobs' waits grows by one factor.
    """
    urgent_s = (job.submitted_s + deadline_s) / 2
    if now_s < urgent_s:
        return level, min(until_s, urgent_s)
    if now_s < deadline_s:
        return max(level - 1, 0), min(until_s, deadline_s)
    return level, until_s


def _remembered(memo: Any) -> RankMemo | None:
    """A job's memo; from a database or a journal it comes as a list."""
    if memo is None or type(memo) is RankMemo:
        return memo
    return RankMemo(*memo) if isinstance(memo, (list, tuple)) and 3 < len(memo) <= len(RankMemo._fields) else None
