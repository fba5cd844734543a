"""The round mechanism: shares of time become leases, round by round (Narayanan et al., OSDI 2020, section 5).

Who has had least of what it should have had goes first on each type; devices that nobody has a claim to are
filled up. A round is over when all its leases are, and only then is anybody moved.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rota.core.inventory import Inventory
from rota.core.live import LiveJob
from rota.core.model import WHOLE, DeviceType, JobState
from rota.core.placement import Placement, packed
from rota.core.policy import Changes, Draft
from rota.core.reasons import Reason, ReasonCode
from rota.core.state import State
from rota.mechanisms.habits import Habits, Seat, timed_leases
from rota.mechanisms.ledger import Ledger
from rota.mechanisms.probe import narrowed
from rota.mechanisms.shares import (
    Contender,
    PairSpeeds,
    Party,
    Question,
    ShareRule,
    chance_of,
    contender,
    set_chance,
)
from rota.perf.speed import SpeedModel

HALF = WHOLE // 2
"""What each of two packed jobs holds of a device."""


@dataclass(slots=True)
class _Turn:
    """A party that was seated in the present round."""

    party: Party
    at: int
    until_s: float


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
    ) -> None:
        """`good_for_s` is for how long shares hold even if nobody comes or goes."""
        self._name = name
        self._good_for_s = good_for_s
        self._rule = rule
        self._speed = speed
        self._round_s = round_s
        self._habits = habits
        self._rng = rng
        self._types: tuple[DeviceType, ...] = ()
        self._devices: tuple[int, ...] = ()
        self._forget()

    def _forget(self) -> None:
        self._jobs: dict[int, Contender] = {}
        self._ledger = Ledger(len(self._types), self._round_s / 2)
        self._comers: dict[LiveJob, None] = {}
        self._gone: set[int] = set()
        self._bare: dict[LiveJob, None] = {}
        self._out: dict[LiveJob, None] = {}
        self._turns: list[_Turn] = []
        self._seen: dict[int, float] = {}
        self._probes: dict[tuple[int, int], LiveJob] = {}
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
            "jobs": list(self._jobs),
            "comers": [live.seq for live in self._comers],
            "bare": [live.seq for live in self._bare],
            "gone": sorted(self._gone),
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
        self._devices = tuple(memory["devices"])
        self._speed.recall(memory["speeds"])
        self._seen = dict(memory["seen"])
        self._beside = PairSpeeds(self._speed, self._types)
        self._jobs = {
            seq: contender(jobs[seq], self._speed, self._types, self._devices) for seq in memory["jobs"] if seq in jobs
        }
        self._comers = {jobs[seq]: None for seq in memory["comers"] if seq in jobs}
        self._bare = {jobs[seq]: None for seq in memory["bare"] if seq in jobs}
        self._gone = {seq for seq in memory["gone"] if seq in jobs}
        self._turns = [_Turn(tuple(party), at, until_s) for party, at, until_s in memory["turns"]]
        self._due, self._stale = memory["due"], memory["stale"]
        self._began_s, self._round_end_s, self._solved_s = memory["times_s"]
        self.wakeup_s = math.inf if memory["wakeup_s"] is None else memory["wakeup_s"]
        self._ledger = Ledger(len(self._types), self._round_s / 2)
        self._ledger.recall(memory["ledger"])
        lost = set(memory["jobs"]) - set(self._jobs)
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
        for live in changes.left:
            self._out.pop(live, None)
            self._comers.pop(live, None)
            self._bare.pop(live, None)
            if live.seq in self._jobs and live not in changes.arrived:
                self._gone.add(live.seq)
            self._due = True
        if self._speed.is_estimate and now_s == self._began_s:
            self._seen.update({live.seq: live.rate for live in changes.started})
        for live in changes.lapsed:
            self._out.pop(live, None)
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
        self._admit()
        self._solve(draft.now_s)
        self._began_s = draft.now_s
        self._seat(draft, self._draw())
        self._start_bare(draft)
        idle = self._stale and bool(self._jobs) and not self._turns
        self.wakeup_s = self._solved_s + self._habits.solve_gap_s if idle else math.inf

    def _settle(self) -> None:
        """Who ran in the last round has had so much more; who is gone leaves the books."""
        if self._turns:
            from_s = self._habits.served_from_s(self._began_s, self._round_end_s)
            for turn in sorted(self._turns, key=lambda turn: -turn.until_s):
                self._ledger.served(turn.party, turn.at, max(turn.until_s - from_s, 0.0))
            self._round_end_s = max(turn.until_s for turn in self._turns)
            if self._speed.is_estimate:
                self._learn()
            self._turns = []
        if self._habits.failed:
            self._habits.failed = False
            self._stale = True
        if self._gone:
            self._ledger.leave(self._gone)
            for seq in self._gone:
                del self._jobs[seq]
            self._probes = {key: probe for key, probe in self._probes.items() if key[0] in self._jobs}
            self._gone = set()
            self._stale = True

    def _learn(self) -> None:
        """What was seen of speeds in the last round corrects the estimates, for everybody whom they concern."""
        changed = False
        for turn in self._turns:
            members = [self._jobs[seq].live.job for seq in turn.party if seq in self._jobs]
            if len(members) < len(turn.party):
                continue
            for job, seq, other in zip(members, turn.party, members[::-1], strict=True):
                rate = self._seen.get(seq, 0.0)
                changed |= self._speed.observe(job, self._types[turn.at], rate, other if len(members) > 1 else None)
        self._seen = {}
        if self._speed.refit() or changed:
            self._beside = PairSpeeds(self._speed, self._types)
            for seq, known in self._jobs.items():
                self._jobs[seq] = contender(known.live, self._speed, self._types, self._devices)
            self._stale = True

    def _survey(self, inventory: Inventory) -> None:
        """Look at what there is; if that has changed, everybody's speeds are looked up anew."""
        pools = inventory.pools
        devices = tuple(pool.usable for pool in pools)
        if devices == self._devices:
            return
        self._types, self._devices = tuple(pool.device_type for pool in pools), devices
        everyone = [job.live for job in self._jobs.values()]
        self._jobs, self._probes = {}, {}
        self._beside = PairSpeeds(self._speed, self._types)
        self._ledger = Ledger(len(pools), self._round_s / 2)
        self._comers = dict.fromkeys([*everyone, *self._comers])

    def _admit(self) -> None:
        for live in self._comers:
            if not live.job.gpu_milli:
                self._bare[live] = None
                continue
            job = contender(live, self._speed, self._types, self._devices)
            parties: list[Party] = [(job.seq,)]
            runs = [np.array(job.speeds) > 0]
            if self._rule.packs and self._habits.lists_all_pairs:
                mates = [other for other in self._jobs.values() if other.scale == job.scale]
                parties += [(min(other.seq, job.seq), max(other.seq, job.seq)) for other in mates]
                runs += [self._beside(other, job).min(axis=0) > 0 for other in mates]
            self._ledger.join(parties, job.scale, np.array(runs).reshape(len(parties), len(self._types)))
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

    def _draw(self) -> list[tuple[Party, int]]:
        """Type by type, the parties that run next, as many as there are devices for."""
        ledger = self._ledger
        order = list(range(len(self._types)))
        if not self._rule.sees_types and not self._rule.packs:
            self._rng.shuffle(order)
        priority = ledger.priorities()
        taken: set[int] = set()
        drawn: list[tuple[Party, int]] = []
        for at in order:
            fits: NDArray[np.bool_] = ledger.runs[:, at] & (ledger.scale <= self._devices[at])
            if not self._rule.backfills:
                fits &= priority[:, at] > 0
            rows = ledger.order(priority, at)
            self._draw_type(rows[fits[rows]], at, taken, drawn)
        return drawn

    def _draw_type(self, rows: NDArray[np.int64], at: int, taken: set[int], drawn: list[tuple[Party, int]]) -> None:
        ledger, left = self._ledger, self._devices[at]
        scale, considered = ledger.scale[rows].tolist(), ledger.considered[rows].tolist()
        for (one, other), size, known in zip(ledger.members[rows].tolist(), scale, considered, strict=True):
            if one in taken or other in taken or size > left:
                continue
            left -= size
            taken.add(one)
            party: Party = (one,)
            if other >= 0:
                taken.add(other)
                party = (one, other)
            if known or self._habits.serves_newcomers:
                drawn.append((party, at))
            if not left:
                return

    def _seat(self, draft: Draft, drawn: list[tuple[Party, int]]) -> None:
        """Everyone gets up; who stays on a type sits down where it was, then the others find a place."""
        before: dict[int, Placement] = {}
        for seq, job in self._jobs.items():
            if job.live.placement is not None and job.live.stopping is None:
                before[seq] = job.live.placement
                draft.release(job.live)
        movers: list[tuple[Party, int]] = []
        for party, at in drawn:
            if not self._sit_down(draft, party, at, before):
                movers.append((party, at))
        for party, at in movers:
            self._find_place(draft, party, at)
        for job in self._jobs.values():
            if job.live.placement is None and job.live.wait_code is None:
                draft.because(job.live, self.explain(job.live, draft))

    def _sit_down(self, draft: Draft, party: Party, at: int, before: dict[int, Placement]) -> bool:
        """Back to the devices that one of the party had, if they are of the type and nobody took them."""
        kind = self._types[at]
        for seq in party:
            held = before.get(seq)
            if held is None or draft.inventory.nodes[held[0].node].node.device_type != kind:
                continue
            job = self._jobs[seq].live.job
            if job.roles[0].device_milli >= WHOLE:
                held = packed(held, WHOLE)
            if draft.inventory.is_free(held, job.roles, job.exclusive, back=True):
                return self._lease(draft, party, at, held)
        return False

    def _find_place(self, draft: Draft, party: Party, at: int) -> None:
        live = self._jobs[party[0]].live
        offered = draft.offer(self._probe(live, at))
        if isinstance(offered, Reason):
            draft.because(live, offered)
        else:
            self._lease(draft, party, at, offered)

    def _lease(self, draft: Draft, party: Party, at: int, place: Placement) -> bool:
        members = [self._jobs[seq] for seq in party]
        if any(job.live.stopping is not None for job in members):
            return False
        if len(members) > 1:
            place = packed(place, HALF)
            speeds = self._beside(members[0], members[1])[:, at].tolist()
        else:
            speeds = [members[0].speeds[at]]
        seats = [Seat(job, speed) for job, speed in zip(members, speeds, strict=True)]
        how = timed_leases if self._speed.is_estimate else self._habits.leases
        leases = how(seats, draft.now_s, self._round_s)
        for job, lease in zip(members, leases, strict=True):
            draft.assign_offered(job.live, place)
            draft.lease(job.live, lease)
            self._out[job.live] = None
        self._turns.append(_Turn(party, at, max(lease.until_s for lease in leases)))
        return True

    def _probe(self, live: LiveJob, at: int) -> LiveJob:
        """The same job, had it asked for just this type."""
        key = (live.seq, at)
        probe = self._probes.get(key)
        if probe is None:
            probe = narrowed(live, self._types[at])
            self._probes[key] = probe
        probe.since_s = live.since_s
        return probe

    def _start_bare(self, draft: Draft) -> None:
        """Jobs without devices need no turn: they start as soon as there is room for them."""
        for live in list(self._bare):
            offered = draft.offer(live)
            if isinstance(offered, Reason):
                draft.because(live, offered)
            else:
                draft.assign_offered(live, offered)
                del self._bare[live]
