"""Fairness between the users of a tenant over time: a user who had more than an equal share comes later.

Service is charged to the user of a job by the level at which the job had it, and fades by half in every half-life. A
user is entitled to the mean of what the users of its tenant had that have jobs now. What its jobs had up to some level
beyond that puts it ahead at this level: its jobs of the level then rank as if each had had a part of it. So a user
that floods a level, or splits a long job, is behind the others, while a long job in the past holds up no short one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate

from rota.core.engine.protocols import Changes
from rota.core.model.job import Job
from rota.core.state.decayed_usage import Past
from rota.core.state.job_record import JobView, LiveJob
from rota.core.state.state import State
from rota.policies.own.levels import Levels
from rota.policies.own.params import RotaParams
from rota.policies.own.predictions import declarer

ACCOUNTS = "rota"
"""The key under which the state keeps the service of users."""
LOOK_S = 300.0
"""How often users are compared while jobs wait."""
LOOKS = 100.0
"""Users are compared at least this often in a half-life."""


class UserStandings:
    """By user and level, the level by which a job ranks at least."""

    def __init__(self, params: RotaParams, levels: Levels, service: Callable[[JobView, float], tuple[float, float]]):
        half_life_s = self._half_life_s = params.half_life_s
        self._lenient = params.lenient
        self._every_s = min(LOOK_S, half_life_s / LOOKS)
        self._levels = levels
        self._job_service = service
        """The service that a job had, and its growth now."""
        self._past: Past = {}
        """By user, its faded service at each level, and the moment as of which it is."""
        self._jobs: dict[str, dict[str, dict[LiveJob, float]]] = {}
        """By tenant and user, the jobs that are there, with the service that was charged."""
        self._running: dict[str, dict[LiveJob, None]] = {}
        """By user, the jobs whose service grows."""
        self._standing: dict[str, list[int]] = {}
        """By user who is ahead, the least rank of its jobs at each level."""
        self._looked_s = -math.inf
        self.changes = 0
        """How often some standing changed."""
        self.next_look_s = math.inf

    def least_rank(self, job: Job, level: int) -> int:
        """Return the level by which a job ranks at least whose service is at a level; 0 for a user not ahead."""
        return _at(self._standing.get(declarer(job)), level) if self._standing else 0

    def adopt(self, state: State) -> None:
        """Count the jobs of a state, and continue from the service in it."""
        self._jobs, self._running, self._standing = {}, {}, {}
        self.changes += 1
        self._looked_s, self.next_look_s = -math.inf, math.inf
        if not self._half_life_s:
            return
        now_s = state.now_s
        self._past = state.past.setdefault(ACCOUNTS, {})
        for live in state.jobs.values():
            if live.job.user and not live.state.is_final:
                user = declarer(live.job)
                had, pace = self._job_service(live, now_s)
                charged_s = self._past.get(user, [now_s])[-1]
                jobs = self._jobs.setdefault(live.job.tenant, {}).setdefault(user, {})
                jobs[live] = max(had - pace * (now_s - charged_s), 0.0)
                if live.run_since_s is not None:
                    self._running.setdefault(user, {})[live] = None
        self.look(now_s)

    def follow(self, changes: Changes, now_s: float) -> None:
        """Take in new jobs, drop ended ones, and charge users whose jobs start or stop."""
        if not self._half_life_s:
            return
        for group in (changes.left, changes.arrived, changes.started):
            for live in group:
                if live.job.user:
                    self._follow(live, now_s)
        if changes.arrived and self.next_look_s == math.inf and self._has_rivals:
            self.next_look_s = max(now_s, self._looked_s + self._every_s)

    def look(self, now_s: float) -> list[LiveJob]:
        """Compare the users of each tenant; return the jobs whose least rank changed."""
        found: dict[str, list[int]] = {}
        waits = False
        for users in self._jobs.values():
            if len(users) > 1:
                waits = waits or any(live.is_contending for jobs in users.values() for live in jobs)
                self._compare(users, found, now_s)
        before, self._standing = self._standing, found
        self._looked_s = now_s
        self.next_look_s = now_s + self._every_s if waits else math.inf
        changed = []
        for users in self._jobs.values():
            for user, jobs in users.items():
                was, now = before.get(user), found.get(user)
                if was != now:
                    changed += [live for live in jobs if self._differs(live, was, now, now_s)]
        self.changes += bool(changed)
        return changed

    def _differs(self, live: LiveJob, was: list[int] | None, now: list[int] | None, now_s: float) -> bool:
        """Whether a job's least rank is another one."""
        level = self._levels.of(self._job_service(live, now_s)[0])
        return _at(was, level) != _at(now, level)

    @property
    def _has_rivals(self) -> bool:
        return any(len(users) > 1 for users in self._jobs.values())

    def _compare(self, users: dict[str, dict[LiveJob, float]], found: dict[str, list[int]], now_s: float) -> None:
        """Find the users of a tenant that are ahead, and the ranks that follow."""
        had = {user: self._charge(user, jobs, now_s) for user, jobs in users.items()}
        total = {user: math.fsum(service[:-1]) for user, service in had.items()}
        mean = math.fsum(total.values()) / len(total)
        for user, gpu_s in total.items():
            if gpu_s > mean:
                upto = accumulate(had[user][:-1])
                ranks = [self._levels.of(max(each - mean, 0.0) / self._lenient) for each in upto]
                if ranks[-1]:
                    found[user] = ranks

    def _follow(self, live: LiveJob, now_s: float) -> None:
        """Charge the user of a job that changed; note whether the job is still there."""
        user = declarer(live.job)
        users = self._jobs.setdefault(live.job.tenant, {})
        jobs = users.get(user)
        if jobs is None:
            if live.state.is_final:
                return
            jobs = users[user] = {}
        self._charge(user, jobs, now_s)
        running = self._running.setdefault(user, {})
        if live.run_since_s is None or live.state.is_final:
            running.pop(live, None)
        else:
            running[live] = None
        if not live.state.is_final:
            jobs.setdefault(live, self._job_service(live, now_s)[0])
            return
        jobs.pop(live, None)
        if not jobs:
            del users[user], self._running[user]

    def _charge(self, user: str, jobs: dict[LiveJob, float], now_s: float) -> list[float]:
        """Charge a user up to now; return its service by level, and at the end the moment."""
        entry = self._past.setdefault(user, [now_s])
        passed_s = now_s - entry[-1]
        if passed_s <= 0:
            return entry
        fade = 0.5 ** (passed_s / self._half_life_s)
        fresh = (1 - fade) * self._half_life_s / (math.log(2) * passed_s)  # the mean fading of an even use since then
        entry[:] = [each * fade for each in entry[:-1]]
        for live in self._running.get(user, ()):
            had, charged = self._job_service(live, now_s)[0], jobs[live]
            if had > charged:
                self._add(entry, charged, had, fresh)
                jobs[live] = had
        entry.append(now_s)
        return entry

    def _add(self, entry: list[float], start: float, end: float, fresh: float) -> None:
        """Add the service of a job from one amount to another, each part to its level."""
        for level in range(self._levels.of(start), self._levels.of(end) + 1):
            if level >= len(entry):
                entry += [0.0] * (level + 1 - len(entry))
            upto = min(end, self._levels.limit(level))
            entry[level] += max(upto - start, 0.0) * fresh
            start = upto


def _at(ranks: list[int] | None, level: int) -> int:
    """Return the least rank at a level, 0 if there is none."""
    return ranks[min(level, len(ranks) - 1)] if ranks else 0
