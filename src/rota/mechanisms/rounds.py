"""The round mechanism: shares of time become leases, round by round (Narayanan et al., OSDI 2020, section 5).

Who has had least of what it should have had goes first on each type; devices that nobody has a claim to are
filled up. A round is over when all its leases are, and only then is anybody moved.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rota.core.inventory import Inventory
from rota.core.live import LiveJob
from rota.core.model import DeviceType, JobState
from rota.core.policy import Changes, Draft
from rota.core.reasons import Reason, ReasonCode
from rota.core.state import State
from rota.mechanisms.draw import draw
from rota.mechanisms.habits import Habits, Seat, timed_leases
from rota.mechanisms.ledger import Ledger
from rota.mechanisms.seats import Drawn, Seating, stays_put
from rota.mechanisms.shares import (
    Contender,
    PairSpeeds,
    Party,
    Question,
    ShareRule,
    chance_of,
    contender,
    members_of,
    set_chance,
    sized,
    tasks_of_party,
)
from rota.mechanisms.shares_elastic import elastic_contender, sizes_of
from rota.perf.speed import SpeedModel


@dataclass(slots=True)
class _Turn:
    """A party that was seated in the present round."""

    party: Party
    at: int
    until_s: float


RoundLength = Callable[[Sequence[Contender], float], float]
"""How long the next round takes, by who contends and what time it is."""


class RoundScheduler:
    """The policy that a share rule makes."""

    def __init__(
        self,
        rule: ShareRule,
        speed: SpeedModel,
        *,
        name: str,
        round_s: float,
        habits: Habits,
        rng: random.Random,
        good_for_s: float = math.inf,
        length: RoundLength | None = None,
        elastic: bool = False,
    ) -> None:
        """`good_for_s`: how long shares hold though nobody comes or goes; `length` says anew how long each round is.

        With `elastic`, the rule decides how many tasks elastic jobs have.
        """
        self._name = name
        self._good_for_s = good_for_s
        self._rule = rule
        self._speed = speed
        self._round_s = round_s
        self._quantum_s = round_s / 2
        self._length = length
        self._elastic = elastic
        self._habits = habits
        self._rng = rng
        self._types: tuple[DeviceType, ...] = ()
        self._devices: tuple[int, ...] = ()
        self._node_devices: tuple[int, ...] = ()
        """What the largest node of each type has."""
        self._forget()

    def _forget(self) -> None:
        self._jobs: dict[int, Contender] = {}
        self._ledger = Ledger(len(self._types), self._quantum_s)
        self._comers: dict[LiveJob, None] = {}
        self._gone: set[int] = set()
        self._bare: dict[LiveJob, None] = {}
        self._out: dict[LiveJob, None] = {}
        self._turns: list[_Turn] = []
        self._over: dict[int, float] = {}
        """When jobs of the present round were through with their lease."""
        self._seating = Seating(self._types, self._jobs)
        self._seen: dict[int, float] = {}
        self._beside = PairSpeeds(self._speed, self._types)
        self._due = self._stale = False
        self._began_s = self._round_end_s = self._solved_s = 0.0
        self.wakeup_s = math.inf

    @property
    def memory(self) -> Any:
        """Where the present round stands, the books, the state of chance, what rule and habits remember."""
        return {
            "policy": self._name,
            "types": list(self._types),
            "devices": list(self._devices),
            "node_devices": list(self._node_devices),
            "jobs": [[seq, list(job.able), list(job.able_at)] for seq, job in self._jobs.items()],
            "comers": [live.seq for live in self._comers],
            "bare": [live.seq for live in self._bare],
            "gone": sorted(self._gone),
            "over": list(self._over.items()),
            "turns": [[list(turn.party), turn.at, turn.until_s] for turn in self._turns],
            "due": self._due,
            "stale": self._stale,
            "times_s": [self._began_s, self._round_end_s, self._solved_s],
            "wakeup_s": None if self.wakeup_s == math.inf else self.wakeup_s,
            "ledger": self._ledger.memory,
            "chance": chance_of(self._rng),
            "rule": self._rule.memory,
            "habits": self._habits.memory,
            "speeds": self._speed.memory,
            "seen": list(self._seen.items()),
        }

    def _recall(self, memory: Any, jobs: dict[int, LiveJob]) -> None:
        """Take up a round where it stood. Who is not there any more leaves the books."""
        self._types = tuple(DeviceType(kind) for kind in memory["types"])
        self._devices, self._node_devices = tuple(memory["devices"]), tuple(memory["node_devices"])
        self._speed.recall(memory["speeds"])
        self._seen = dict(memory["seen"])
        self._beside = PairSpeeds(self._speed, self._types)
        self._jobs = {
            seq: self._contender(jobs[seq], able, dict(able_at)) for seq, able, able_at in memory["jobs"] if seq in jobs
        }
        self._seating = Seating(self._types, self._jobs)
        self._comers = {jobs[seq]: None for seq in memory["comers"] if seq in jobs}
        self._bare = {jobs[seq]: None for seq in memory["bare"] if seq in jobs}
        self._gone = {seq for seq in memory["gone"] if seq in jobs}
        self._turns = [_Turn(tuple(party), at, until_s) for party, at, until_s in memory["turns"]]
        self._over = dict(memory["over"])
        self._due, self._stale = memory["due"], memory["stale"]
        self._began_s, self._round_end_s, self._solved_s = memory["times_s"]
        self.wakeup_s = math.inf if memory["wakeup_s"] is None else memory["wakeup_s"]
        self._ledger = Ledger(len(self._types), self._quantum_s)
        self._ledger.recall(memory["ledger"])
        lost = {seq for seq, *_ in memory["jobs"]} - set(self._jobs)
        if lost:
            self._ledger.leave(lost)
            self._due = self._stale = True
        set_chance(self._rng, memory["chance"])
        self._rule.recall(memory["rule"])
        self._habits.recall(memory["habits"])

    # -- what the engine tells -------------------------------------------------------------------

    def adopt(self, state: State) -> None:
        """Index a state anew, and go on with the round that its memory tells of, if it is this policy's."""
        self._forget()
        if isinstance(state.memory, dict) and state.memory.get("policy") == self._name:
            self._recall(state.memory, {live.seq: live for live in state.jobs.values()})
        for live in state.jobs.values():
            if live.lease is not None and not live.state.is_final:
                self._out[live] = None
            if not self._is_known(live) and self._contends(live):
                self._comers[live] = None
                self._due = True
            elif live.seq in self._jobs and live.state.is_final and live.seq not in self._gone:
                self._gone.add(live.seq)
                self._due = True

    def _is_known(self, live: LiveJob) -> bool:
        return live.seq in self._jobs or live in self._comers or live in self._bare

    def _contends(self, live: LiveJob) -> bool:
        """Whether a job is for rounds to place: it waits for devices, or holds some."""
        if live.placement is not None:
            return live.job.gpu_milli > 0
        return live.state is JobState.WAITING and not live.unmet

    def note(self, changes: Changes, now_s: float) -> None:
        """Remember who came and went; nothing moves before the round is over."""
        for live in (*changes.left, *changes.lapsed):
            if live in self._out:
                del self._out[live]
                self._over[live.seq] = now_s
        for live in changes.left:
            self._comers.pop(live, None)
            self._bare.pop(live, None)
            if live.seq in self._jobs and live not in changes.arrived:
                self._gone.add(live.seq)
            self._due = True
        if self._speed.is_estimate and now_s == self._began_s:
            self._seen.update({live.seq: live.rate for live in changes.started})
        if changes.lapsed:
            self._due = True
        for live in changes.arrived:
            self._gone.discard(live.seq)
            if live.seq not in self._jobs and live.state is JobState.WAITING:
                self._comers[live] = None
                self._due = True
        if changes.shrunk or (changes.freed and not changes.left):
            self._stale = self._due = True

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """A job waits for a round in which its turn comes; or it can't run on anything there is."""
        job = self._jobs.get(waiting.seq)
        if job is not None and not any(job.speeds):
            return Reason(code=ReasonCode.NEVER_FITS, need_milli=waiting.job.gpu_milli)
        return Reason(code=ReasonCode.ROUND)

    # -- a round ---------------------------------------------------------------------------------

    def plan(self, draft: Draft) -> None:
        """When all leases are over: settle the round that was, and draw the next."""
        if self._out or not (self._due or self.wakeup_s <= draft.now_s):
            self._start_bare(draft)
            return
        self._due = False
        self._settle()
        self._survey(draft.inventory)
        self._admit(draft)
        self._solve(draft.now_s)
        self._began_s = draft.now_s
        if self._length is not None:
            self._round_s = self._length(list(self._jobs.values()), draft.now_s)
        self._seat(draft, self._draw())
        self._start_bare(draft)
        self.wakeup_s = math.inf
        if not self._turns and self._jobs:
            again_s = self._solved_s + self._habits.solve_gap_s if self._stale else math.inf
            self.wakeup_s = min(again_s, self._seating.relaxes_s)

    def _settle(self) -> None:
        """Who ran in the last round has had so much more; who is gone leaves the books."""
        if self._turns:
            from_s = self._habits.served_from_s(self._began_s, self._round_end_s)
            for turn in sorted(self._turns, key=lambda turn: -turn.until_s):
                over_s = max(
                    (self._over.get(seq, turn.until_s) for seq in members_of(turn.party)), default=turn.until_s
                )
                until_s = self._habits.served_until_s(turn.until_s, over_s)
                self._ledger.served(turn.party, turn.at, max(until_s - from_s, 0.0))
            self._round_end_s = max(turn.until_s for turn in self._turns)
            if self._speed.is_estimate:
                self._learn()
            self._turns, self._over = [], {}
        if self._habits.failed:
            self._habits.failed = False
            self._stale = True
        if self._gone:
            self._ledger.leave(self._gone)
            for seq in self._gone:
                del self._jobs[seq]
            self._seating.forget(self._gone)
            self._gone = set()
            self._stale = True

    def _learn(self) -> None:
        """What was seen of speeds in the last round corrects the estimates, for everybody whom they concern."""
        changed = False
        for turn in self._turns:
            members = [self._jobs[seq].live.job for seq in turn.party if seq in self._jobs]
            if len(members) < len(turn.party) or tasks_of_party(turn.party):
                continue
            for job, seq, other in zip(members, turn.party, members[::-1], strict=True):
                rate = self._seen.get(seq, 0.0)
                changed |= self._speed.observe(job, self._types[turn.at], rate, other if len(members) > 1 else None)
        self._seen = {}
        if self._speed.refit() or changed:
            self._beside = PairSpeeds(self._speed, self._types)
            for seq, known in self._jobs.items():
                self._jobs[seq] = self._contender(known.live, known.able, dict(known.able_at))
            self._stale = True

    def _survey(self, inventory: Inventory) -> None:
        """Look at what there is; if that has changed, everybody's speeds are looked up anew."""
        count, largest = [0] * len(inventory.pools), [0] * len(inventory.pools)
        for books in inventory.nodes:
            if books.up and not books.drained:
                count[books.pool] += books.node.devices
                largest[books.pool] = max(largest[books.pool], books.node.devices)
        devices = tuple(count)
        if devices == self._devices:
            return
        self._node_devices = tuple(largest)
        self._types, self._devices = tuple(pool.device_type for pool in inventory.pools), devices
        everyone = [job.live for job in self._jobs.values()]
        self._jobs = {}
        self._beside = PairSpeeds(self._speed, self._types)
        self._seating = Seating(self._types, self._jobs)
        self._ledger = Ledger(len(devices), self._quantum_s)
        self._comers = dict.fromkeys([*everyone, *self._comers])

    def _admit(self, draft: Draft) -> None:
        for live in self._comers:
            if not live.job.gpu_milli:
                self._bare[live] = None
                continue
            sizes = sizes_of(live.job) if self._elastic else []
            able_at = {tasks: self._seating.able(draft, live, tasks) for tasks in sizes}
            job = self._contender(live, self._seating.able(draft, live), able_at)
            parties: list[Party] = [(job.seq,)]
            runs = [np.array(job.speeds) > 0]
            if self._rule.packs and self._habits.lists_all_pairs:
                mates = [other for other in self._jobs.values() if other.scale == job.scale]
                parties += [(min(other.seq, job.seq), max(other.seq, job.seq)) for other in mates]
                runs += [self._beside(other, job).min(axis=0) > 0 for other in mates]
            self._ledger.join(parties, job.scale, np.array(runs).reshape(len(parties), len(self._types)))
            for size in job.sizes:
                self._ledger.join([sized(job.seq, size.tasks)], size.scale, np.array([size.speeds]) > 0)
            self._jobs[job.seq] = job
            self._stale = True
        self._comers = {}

    def _contender(self, live: LiveJob, able: Sequence[bool], able_at: Mapping[int, Sequence[bool]]) -> Contender:
        """A job with its speeds, on types where it could be placed at all; at all its sizes, if they are looked at."""
        if able_at:
            return elastic_contender(live, self._speed, self._types, able_at, self._node_devices)
        return contender(live, self._speed, self._types, able)

    def _solve(self, now_s: float) -> None:
        """Ask for shares when somebody came or went, but not more often than is the habit."""
        if not self._jobs:
            self._solved_s = 0.0
        self._stale |= now_s - self._solved_s >= self._good_for_s
        if not self._stale or (self._solved_s and now_s < self._solved_s + self._habits.solve_gap_s):
            return
        self._stale = False
        self._ledger.close(now_s - self._solved_s)
        self._solved_s = now_s
        shares = (
            self._rule.shares(Question(now_s, list(self._jobs.values()), self._types, self._devices, self._beside))
            if self._jobs
            else {}
        )
        if self._rule.packs and not self._habits.lists_all_pairs:
            self._enter_pairs(shares)
        self._ledger.set_shares(shares)

    def _enter_pairs(self, shares: Any) -> None:
        """Only pairs that have a share now are in the books."""
        self._ledger.forget_idle_pairs()
        for party in shares:
            if len(party) > 1 and party not in self._ledger:
                one, other = (self._jobs[seq] for seq in party)
                self._ledger.join([party], one.scale, self._beside(one, other).min(axis=0)[None, :] > 0)

    # -- drawing and seating ---------------------------------------------------------------------

    def _draw(self) -> list[Drawn]:
        """Type by type, the parties that run next, as many as there are devices for."""
        order = list(range(len(self._types)))
        if not self._rule.sees_types and not self._rule.packs:
            self._rng.shuffle(order)
        newcomers = self._habits.serves_newcomers
        return draw(self._ledger, self._devices, order, backfills=self._rule.backfills, newcomers=newcomers)

    def _seat(self, draft: Draft, drawn: list[Drawn]) -> None:
        """Who was drawn gets devices and a lease, as far as there is a place."""
        for party, at in self._seating.seat(draft, drawn):
            members = [self._jobs[seq] for seq in members_of(party)]
            speeds = [members[0].speed(party, at)]
            if len(members) > 1:
                speeds = self._beside(members[0], members[1])[:, at].tolist()
            stays = [stays_put(job.live, draft.touched.get(job.live)) for job in members]
            seats = [Seat(*each) for each in zip(members, speeds, stays, strict=True)]
            how = timed_leases if self._speed.is_estimate else self._habits.leases
            leases = how(seats, draft.now_s, self._round_s)
            for job, lease in zip(members, leases, strict=True):
                draft.lease(job.live, lease)
                self._out[job.live] = None
            self._turns.append(_Turn(party, at, max(lease.until_s for lease in leases)))
        for job in self._jobs.values():
            if job.live.placement is None and job.live.wait_code is None:
                draft.because(job.live, self.explain(job.live, draft))

    def _start_bare(self, draft: Draft) -> None:
        """Jobs without devices need no turn: they start as soon as there is room for them."""
        for live in list(self._bare):
            offered = draft.offer(live)
            if isinstance(offered, Reason):
                draft.because(live, offered)
            else:
                draft.assign_offered(live, offered)
                del self._bare[live]
