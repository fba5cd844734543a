"""The round mechanism: shares of time become leases, round by round (Narayanan et al., OSDI 2020, section 5).

Who has had least of what it should have had goes first on each type; devices that nobody has a claim to are
filled up. A round is over when all its leases are, and only then is anybody moved.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from rota.core.engine.draft import Draft
from rota.core.engine.protocols import Capabilities, Changes
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import DeviceType, JobState
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.mechanisms.rounds.contenders import ContenderBuilder, Stock
from rota.mechanisms.rounds.deficits import Deficits
from rota.mechanisms.rounds.lease_rules import LeaseRules, SelectedJob, timed_leases
from rota.mechanisms.rounds.round_placement import Drawn, RoundPlacement, parts_of, stays_put
from rota.mechanisms.rounds.rule import (
    SHARES_ONLY,
    Contender,
    Freedoms,
    Mates,
    PairSpeeds,
    Question,
    ShareRule,
    chance_of,
    members_of,
    set_chance,
    sized,
)
from rota.mechanisms.rounds.selection import draw, left_of
from rota.perf.speed.model import SpeedModel


@dataclass(slots=True)
class _Turn:
    """A party that was seated in the present round."""

    drawn: Drawn
    until_s: float


RoundLength = Callable[[Sequence[Contender], float], float]
"""How long the next round takes, by who contends and what time it is."""


class RoundScheduler:
    """The policy that a share rule makes."""

    capabilities = Capabilities()

    def __init__(
        self,
        rule: ShareRule,
        speed: SpeedModel,
        *,
        name: str,
        round_s: float,
        habits: LeaseRules,
        rng: random.Random,
        good_for_s: float = math.inf,
        length: RoundLength | None = None,
        freedoms: Freedoms = SHARES_ONLY,
    ) -> None:
        """`good_for_s`: how long shares hold though nobody comes or goes; `length` says anew how long each round is."""
        self._name = name
        self._good_for_s = good_for_s
        self._rule = rule
        self._speed = speed
        self._round_s = round_s
        self._quantum_s = round_s / 2
        self._length = length
        self._freedoms = freedoms
        self._habits = habits
        self._rng = rng
        self._types: tuple[DeviceType, ...] = ()
        self._stock = Stock()
        self._forget()

    def _forget(self) -> None:
        self._jobs: dict[int, Contender] = {}
        self._ledger = Deficits(len(self._types), self._quantum_s)
        self._comers: dict[LiveJob, None] = {}
        self._gone: set[int] = set()
        self._bare: dict[LiveJob, None] = {}
        self._out: dict[LiveJob, None] = {}
        self._turns: list[_Turn] = []
        self._over: dict[int, float] = {}
        """When jobs of the present round were through with their lease."""
        self._seating = RoundPlacement(self._types, self._jobs)
        self._seen: dict[int, float] = {}
        self._beside = PairSpeeds(self._speed, self._types, self._freedoms.mixed_sharing)
        self._due = self._stale = False
        self._began_s = self._round_end_s = self._solved_s = 0.0
        self._again_s = self._bare_s = math.inf

    @property
    def wakeup_s(self) -> float:
        """When a round that came to nothing is drawn again, or a job without devices asks for less."""
        return min(self._again_s, self._bare_s)

    @property
    def memory(self) -> Any:
        """Where the present round stands, the books, the state of chance, what rule and habits remember."""
        return {
            "policy": self._name,
            "types": list(self._types),
            "stock": [list(each) for each in astuple(self._stock)],
            "jobs": [ContenderBuilder.memory(job) for job in self._jobs.values()],
            "comers": [live.seq for live in self._comers],
            "bare": [live.seq for live in self._bare],
            "gone": sorted(self._gone),
            "over": list(self._over.items()),
            "turns": [[*turn.drawn, turn.until_s] for turn in self._turns],
            "due": self._due,
            "stale": self._stale,
            "times_s": [self._began_s, self._round_end_s, self._solved_s],
            "wakeup_s": [None if each == math.inf else each for each in (self._again_s, self._bare_s)],
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
        self._stock = Stock(*(tuple(each) for each in memory["stock"]))
        self._speed.recall(memory["speeds"])
        self._seen = dict(memory["seen"])
        self._beside = PairSpeeds(self._speed, self._types, self._freedoms.mixed_sharing)
        self._jobs = {each[0]: self._entrance().recall(each, jobs) for each in memory["jobs"] if each[0] in jobs}
        self._seating = RoundPlacement(self._types, self._jobs)
        self._comers = {jobs[seq]: None for seq in memory["comers"] if seq in jobs}
        self._bare = {jobs[seq]: None for seq in memory["bare"] if seq in jobs}
        self._gone = {seq for seq in memory["gone"] if seq in jobs}
        self._turns = [
            _Turn(Drawn(tuple(party), at, tuple(parts)), until_s) for party, at, parts, until_s in memory["turns"]
        ]
        self._over = dict(memory["over"])
        self._due, self._stale = memory["due"], memory["stale"]
        self._began_s, self._round_end_s, self._solved_s = memory["times_s"]
        self._again_s, self._bare_s = (math.inf if each is None else each for each in memory["wakeup_s"])
        self._ledger = Deficits(len(self._types), self._quantum_s)
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

    def _entrance(self) -> ContenderBuilder:
        return ContenderBuilder(self._speed, self._freedoms, self._types, self._stock)

    def _is_known(self, live: LiveJob) -> bool:
        return live.seq in self._jobs or live in self._comers or live in self._bare

    def _contends(self, live: LiveJob) -> bool:
        """Whether a job is for rounds to place: it waits for devices, or holds some."""
        if live.placement is not None:
            return live.job.gpu_milli > 0
        return live.is_contending

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
            elif not self._turns:  # a round was drawn while it was on its way out, so that nobody runs in it
                self._due = True
        if changes.shrunk or (changes.freed and not changes.left):
            self._stale = self._due = True
            if not self._out:
                self._again_s = now_s

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """A job waits for a round in which its turn comes, or for a place; or it can't run on anything there is."""
        job = self._jobs.get(waiting.seq)
        if job is not None and not any(job.speeds):
            return Reason(code=ReasonCode.NEVER_FITS, need_milli=waiting.job.gpu_milli)
        if waiting in self._bare and isinstance(offered := draft.offer(waiting), Reason):
            return offered
        return self._seating.why(waiting) or Reason(code=ReasonCode.ROUND)

    # -- a round ---------------------------------------------------------------------------------

    def plan(self, draft: Draft) -> None:
        """When all leases are over: settle the round that was, and draw the next."""
        if self._out or not (self._due or self._again_s <= draft.now_s):
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
        self._seat(draft, self._order())
        self._start_bare(draft)
        self._again_s = math.inf
        if not self._turns and self._jobs:
            again_s = self._solved_s + self._habits.solve_gap_s if self._stale else math.inf
            self._again_s = min(again_s, self._seating.relaxes_s)

    def _settle(self) -> None:
        """Who ran in the last round has had so much more; who is gone leaves the books."""
        if self._turns:
            from_s = self._habits.served_from_s(self._began_s, self._round_end_s)
            for turn in sorted(self._turns, key=lambda turn: -turn.until_s):
                party = turn.drawn.party
                over_s = max((self._over.get(seq, turn.until_s) for seq in members_of(party)), default=turn.until_s)
                until_s = self._habits.served_until_s(turn.until_s, over_s)
                for kind, part in parts_of(turn.drawn):
                    self._ledger.served(party, kind, max(until_s - from_s, 0.0) * part)
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
        changed = self._entrance().learn([turn.drawn for turn in self._turns], self._jobs, self._seen)
        self._seen = {}
        if changed:
            self._beside = PairSpeeds(self._speed, self._types, self._freedoms.mixed_sharing)
            for seq, known in self._jobs.items():
                self._jobs[seq] = self._entrance().again(known)
            self._stale = True

    def _survey(self, inventory: Inventory) -> None:
        """Look at what there is; if that has changed, everybody's speeds are looked up anew."""
        stock = Stock.of(inventory)
        if stock == self._stock:
            return
        self._types, self._stock = tuple(pool.device_type for pool in inventory.pools), stock
        everyone = [job.live for job in self._jobs.values()]
        self._jobs = {}
        self._beside = PairSpeeds(self._speed, self._types, self._freedoms.mixed_sharing)
        self._seating = RoundPlacement(self._types, self._jobs)
        self._ledger = Deficits(len(self._types), self._quantum_s)
        self._comers = dict.fromkeys([*everyone, *self._comers])

    def _admit(self, draft: Draft) -> None:
        pairs_up = self._rule.packs and self._habits.lists_all_pairs and self._comers
        mates = Mates(self._beside, self._jobs.values()) if pairs_up else None
        for live in self._comers:
            if not live.job.gpu_milli:
                self._bare[live] = None
                continue
            job = self._entrance().admit(draft, live, self._seating)
            self._ledger.join([(job.seq,)], job.scale, np.array([job.speeds]) > 0)
            if mates is not None:
                pairs, both_run = mates.pairs(job)
                self._ledger.join(pairs, job.scale, both_run)
                mates.add(job)
            for size in job.sizes:
                self._ledger.join([sized(job.seq, size.tasks)], size.scale, np.array([size.speeds]) > 0)
            self._jobs[job.seq] = job
            self._stale = True
        self._comers = {}

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
        jobs, mixed = list(self._jobs.values()), self._freedoms.mixed_sharing
        asked = Question(now_s, jobs, self._types, self._stock.devices, self._beside, mixed=mixed)
        shares = self._rule.shares(asked) if jobs else {}
        if self._rule.packs and not self._habits.lists_all_pairs:
            self._enter_pairs(shares)
        self._ledger.set_shares(shares)

    def _enter_pairs(self, shares: Any) -> None:
        """Only pairs that have a share now are in the books."""
        self._ledger.forget_idle_pairs()
        for party in shares:
            if len(party) > 1 and party not in self._ledger:
                one, other = (self._jobs[seq] for seq in party)
                scale = max(one.scale, other.scale)
                self._ledger.join([party], scale, self._beside.run_together(one, other)[None, :])

    # -- drawing and seating ---------------------------------------------------------------------

    def _draw(self, order: Sequence[int], seated: Sequence[Drawn] = (), failed: Sequence[Drawn] = ()) -> list[Drawn]:
        """Type by type, the parties that run next, as many as there are devices for, beside those who sit already."""
        return draw(
            self._ledger,
            left_of(self._stock.devices, self._ledger, seated),
            order,
            backfills=self._rule.backfills,
            newcomers=self._habits.serves_newcomers,
            spread={seq: job for seq, job in self._jobs.items() if job.rooms},
            taken={seq for each in (*seated, *failed) for seq in members_of(each.party)},
        )

    def _order(self) -> list[int]:
        """The order in which types are filled."""
        order = list(range(len(self._types)))
        if not self._rule.sees_types and not self._rule.packs:
            self._rng.shuffle(order)
        return order

    def _seat(self, draft: Draft, order: Sequence[int]) -> None:
        """Who is drawn gets devices and a lease; where one finds no place now, its devices go to whoever is next."""
        seated = self._seating.seat(draft, self._draw(order))
        if self._seating.failed:
            seated += self._seating.seat_rest(draft, self._draw(order, seated, list(self._seating.failed)))
        for each in seated:
            party, at, parts = each
            members = [self._jobs[seq] for seq in members_of(party)]
            speeds = [members[0].speed(party, at)]
            if parts:
                speeds = [self._speed.blend(zip(parts, members[0].part_speeds, strict=True))]
            elif len(members) > 1:
                speeds = self._beside(members[0], members[1])[:, at].tolist()
            stays = [stays_put(job.live, draft.touched.get(job.live)) for job in members]
            seats = [SelectedJob(*seat) for seat in zip(members, speeds, stays, strict=True)]
            how = timed_leases if self._speed.is_estimate else self._habits.leases
            leases = how(seats, draft.now_s, self._round_s)
            for job, lease in zip(members, leases, strict=True):
                draft.lease(job.live, lease)
                self._out[job.live] = None
            self._turns.append(_Turn(each, max(lease.until_s for lease in leases)))
        for job in self._jobs.values():
            if job.live.placement is None and job.live.wait_code is None:
                draft.because(job.live, self.explain(job.live, draft))

    def _start_bare(self, draft: Draft) -> None:
        """Jobs without devices need no turn: they start as soon as there is room for them."""
        self._bare_s = math.inf
        for live in list(self._bare):
            offered = draft.offer(live)
            if isinstance(offered, Reason):
                draft.because(live, offered)
                self._bare_s = min(self._bare_s, draft.allocator.stage(live, draft.now_s)[1])
            else:
                draft.assign_offered(live, offered)
                del self._bare[live]
