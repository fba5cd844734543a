"""The round scheduler: shares of time become leases, round by round (Narayanan et al., OSDI 2020, section 5).

On each device type, the contender that received least of its share goes first; devices without a claim are backfilled.
A round is over when all its leases are, and jobs move only then.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np

from rota.core.engine.draft import Draft
from rota.core.engine.protocols import Capabilities, Changes
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import DeviceType, JobState
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.mechanisms.cpu_jobs import CpuJobs
from rota.mechanisms.rng_state import rng_state, set_rng_state
from rota.mechanisms.rounds.contenders import RoundCapacity, RoundJobBuilder
from rota.mechanisms.rounds.deficits import Deficits
from rota.mechanisms.rounds.lease_rules import LeaseRules
from rota.mechanisms.rounds.pair_speeds import PairSpeeds, PartnerIndex
from rota.mechanisms.rounds.round_leases import LeaseGrants, RoundLease, credit_served
from rota.mechanisms.rounds.round_placement import RoundPlacement, Selected
from rota.mechanisms.rounds.rule import (
    SHARES_ONLY,
    RoundFeatures,
    RoundJob,
    ShareQuestion,
    ShareRule,
    members_of,
    sized,
)
from rota.mechanisms.rounds.selection import left_of, select
from rota.perf.speed.model import SpeedModel

LengthRule = Callable[[Sequence[RoundJob], float], float]
"""The length of the next round, by the jobs that contend and the time."""


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
        lease_rules: LeaseRules,
        rng: random.Random,
        valid_s: float = math.inf,
        length: LengthRule | None = None,
        features: RoundFeatures = SHARES_ONLY,
    ) -> None:
        """Shares are computed again after `valid_s` even if no job came or left; `length` sets each round's length."""
        self._name = name
        self._valid_s = valid_s
        self._rule = rule
        self._speed = speed
        self._round_s = round_s
        self._quantum_s = round_s / 2
        self._length = length
        self._features = features
        self._lease_rules = lease_rules
        self._rng = rng
        self._types: tuple[DeviceType, ...] = ()
        self._capacity = RoundCapacity()
        self._forget()

    def _forget(self) -> None:
        self._jobs: dict[int, RoundJob] = {}
        self._deficits = Deficits(len(self._types), self._quantum_s)
        self._newcomers: dict[LiveJob, None] = {}
        self._gone: set[int] = set()
        self._cpu_jobs = CpuJobs()
        self._leased: dict[LiveJob, None] = {}
        self._leases: list[RoundLease] = []
        self._ended_s: dict[int, float] = {}
        """When the leases of jobs of the current round ended."""
        self._placement = RoundPlacement(self._types, self._jobs)
        self._seen: dict[int, float] = {}
        self._pair_speeds = PairSpeeds(self._speed, self._types, self._features.mixed_sharing)
        self._due = self._stale = False
        self._began_s = self._round_end_s = self._solved_s = 0.0
        self._retry_s = math.inf

    @property
    def wakeup_s(self) -> float:
        """When a round without leases is retried, or a job without devices relaxes its locality."""
        return min(self._retry_s, self._cpu_jobs.relaxes_s)

    @property
    def memory(self) -> Any:
        """The current round, the deficits, the random state, and what the rule and the lease rules remember."""
        return {
            "policy": self._name,
            "types": list(self._types),
            "stock": [list(each) for each in astuple(self._capacity)],
            "jobs": [RoundJobBuilder.memory(job) for job in self._jobs.values()],
            "comers": [live.seq for live in self._newcomers],
            "bare": [live.seq for live in self._cpu_jobs],
            "gone": sorted(self._gone),
            "over": list(self._ended_s.items()),
            "turns": [[*lease.selected, lease.until_s] for lease in self._leases],
            "due": self._due,
            "stale": self._stale,
            "times_s": [self._began_s, self._round_end_s, self._solved_s],
            "wakeup_s": [None if each == math.inf else each for each in (self._retry_s, self._cpu_jobs.relaxes_s)],
            "ledger": self._deficits.memory,
            "chance": rng_state(self._rng),
            "rule": self._rule.memory,
            "habits": self._lease_rules.memory,
            "speeds": self._speed.memory,
            "seen": list(self._seen.items()),
        }

    def _recall(self, memory: Any, jobs: dict[int, LiveJob]) -> None:
        """Continue a round; jobs that are gone leave the deficits."""
        self._types = tuple(DeviceType(kind) for kind in memory["types"])
        self._capacity = RoundCapacity(*(tuple(each) for each in memory["stock"]))
        self._speed.recall(memory["speeds"])
        self._seen = dict(memory["seen"])
        self._pair_speeds = PairSpeeds(self._speed, self._types, self._features.mixed_sharing)
        self._jobs = {each[0]: self._builder().recall(each, jobs) for each in memory["jobs"] if each[0] in jobs}
        self._placement = RoundPlacement(self._types, self._jobs)
        self._newcomers = {jobs[seq]: None for seq in memory["comers"] if seq in jobs}
        for seq in memory["bare"]:
            if seq in jobs:
                self._cpu_jobs.add(jobs[seq])
        self._gone = {seq for seq in memory["gone"] if seq in jobs}
        self._leases = [
            RoundLease(Selected(tuple(contender), at, tuple(parts)), until_s)
            for contender, at, parts, until_s in memory["turns"]
        ]
        self._ended_s = dict(memory["over"])
        self._due, self._stale = memory["due"], memory["stale"]
        self._began_s, self._round_end_s, self._solved_s = memory["times_s"]
        self._retry_s, self._cpu_jobs.relaxes_s = (math.inf if each is None else each for each in memory["wakeup_s"])
        self._deficits = Deficits(len(self._types), self._quantum_s)
        self._deficits.recall(memory["ledger"])
        lost = {seq for seq, *_ in memory["jobs"]} - set(self._jobs)
        if lost:
            self._deficits.leave(lost)
            self._due = self._stale = True
        set_rng_state(self._rng, memory["chance"])
        self._rule.recall(memory["rule"])
        self._lease_rules.recall(memory["habits"])

    # -- events ----------------------------------------------------------------------------------

    def adopt(self, state: State) -> None:
        """Rebuild from a state, and continue the round in its memory if this policy wrote it."""
        self._forget()
        if isinstance(state.memory, dict) and state.memory.get("policy") == self._name:
            self._recall(state.memory, {live.seq: live for live in state.jobs.values()})
        for live in state.jobs.values():
            if live.lease is not None and not live.state.is_final:
                self._leased[live] = None
            if not self._is_known(live) and self._contends(live):
                self._newcomers[live] = None
                self._due = True
            elif live.seq in self._jobs and live.state.is_final and live.seq not in self._gone:
                self._gone.add(live.seq)
                self._due = True

    def _builder(self) -> RoundJobBuilder:
        return RoundJobBuilder(self._speed, self._features, self._types, self._capacity)

    def _is_known(self, live: LiveJob) -> bool:
        return live.seq in self._jobs or live in self._newcomers or live in self._cpu_jobs

    def _contends(self, live: LiveJob) -> bool:
        """Whether rounds place a job: it waits for devices, or holds some."""
        if live.placement is not None:
            return live.job.gpu_milli > 0
        return live.is_contending

    def note(self, changes: Changes, now_s: float) -> None:
        """Note arrivals and departures; no job moves before the round is over."""
        for live in (*changes.left, *changes.lapsed):
            if live in self._leased:
                del self._leased[live]
                self._ended_s[live.seq] = now_s
        for live in changes.left:
            self._newcomers.pop(live, None)
            self._cpu_jobs.remove(live)
            if live.seq in self._jobs and (live not in changes.arrived or live.state.is_final):
                self._gone.add(live.seq)
            self._due = True
        if self._speed.is_estimate and now_s == self._began_s:
            self._seen.update({live.seq: live.rate for live in changes.started})
        if changes.lapsed:
            self._due = True
        for live in changes.arrived:
            if live.state.is_final:  # it came and left in one step
                continue
            self._gone.discard(live.seq)
            if live.seq not in self._jobs and live.state is JobState.WAITING:
                self._newcomers[live] = None
                self._due = True
            elif not self._leases:  # the round was selected while the job was leaving, so that no job runs in it
                self._due = True
        if changes.shrunk or (changes.freed and not changes.left):
            self._stale = self._due = True
            if not self._leased:
                self._retry_s = now_s

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """It waits for a later round or for a placement, or no device type suits it."""
        job = self._jobs.get(waiting.seq)
        if job is not None and not any(job.speeds):
            return Reason(code=ReasonCode.NEVER_FITS, need_milli=waiting.job.gpu_milli)
        if waiting in self._cpu_jobs and isinstance(offered := draft.offer(waiting), Reason):
            return offered
        return self._placement.why(waiting) or Reason(code=ReasonCode.ROUND)

    # -- a round ---------------------------------------------------------------------------------

    def plan(self, draft: Draft) -> None:
        """When all leases are over, close the round and select the next."""
        if self._leased or not (self._due or self._retry_s <= draft.now_s):
            self._cpu_jobs.start(draft)
            return
        self._due = False
        self._close_round()
        self._update_capacity(draft.inventory)
        self._admit(draft)
        self._solve(draft.now_s)
        self._began_s = draft.now_s
        if self._length is not None:
            self._round_s = self._length(list(self._jobs.values()), draft.now_s)
        self._start_round(draft, self._order())
        self._cpu_jobs.start(draft)
        self._retry_s = math.inf
        if not self._leases and self._jobs:
            again_s = self._solved_s + self._lease_rules.solve_gap_s if self._stale else math.inf
            self._retry_s = min(again_s, self._placement.relaxes_s)

    def _close_round(self) -> None:
        """Credit the contenders of the last round with the time served; drop jobs that are gone."""
        if self._leases:
            from_s = self._lease_rules.served_from_s(self._began_s, self._round_end_s)
            credit_served(self._deficits, self._leases, self._ended_s, self._lease_rules, from_s)
            self._round_end_s = max(lease.until_s for lease in self._leases)
            if self._speed.is_estimate:
                self._learn()
            self._leases, self._ended_s = [], {}
        if self._lease_rules.failed:
            self._lease_rules.failed = False
            self._stale = True
        if self._gone:
            self._deficits.leave(self._gone)
            for seq in self._gone:
                del self._jobs[seq]
            self._placement.forget(self._gone)
            self._gone = set()
            self._stale = True

    def _learn(self) -> None:
        """Correct estimated speeds by those observed in the last round, and rebuild the jobs that they affect."""
        changed = self._builder().learn([lease.selected for lease in self._leases], self._jobs, self._seen)
        self._seen = {}
        if changed:
            self._pair_speeds = PairSpeeds(self._speed, self._types, self._features.mixed_sharing)
            for seq, known in self._jobs.items():
                self._jobs[seq] = self._builder().again(known)
            self._stale = True

    def _update_capacity(self, inventory: Inventory) -> None:
        """Read the capacity; if it changed, look up the speeds of all jobs again."""
        capacity = RoundCapacity.of(inventory)
        if capacity == self._capacity:
            return
        self._types, self._capacity = tuple(pool.device_type for pool in inventory.pools), capacity
        all_jobs = [job.live for job in self._jobs.values()]
        self._jobs = {}
        self._pair_speeds = PairSpeeds(self._speed, self._types, self._features.mixed_sharing)
        self._placement = RoundPlacement(self._types, self._jobs)
        self._deficits = Deficits(len(self._types), self._quantum_s)
        self._newcomers = dict.fromkeys([*all_jobs, *self._newcomers])

    def _admit(self, draft: Draft) -> None:
        pairs_up = self._rule.packs and self._lease_rules.lists_all_pairs and self._newcomers
        partners = PartnerIndex(self._pair_speeds, self._jobs.values()) if pairs_up else None
        for live in self._newcomers:
            if not live.job.gpu_milli:
                self._cpu_jobs.add(live)
                continue
            job = self._builder().admit(draft, live, self._placement)
            self._deficits.join([(job.seq,)], job.scale, np.array([job.speeds]) > 0)
            if partners is not None:
                pairs, both_run = partners.pairs(job)
                self._deficits.join(pairs, job.scale, both_run)
                partners.add(job)
            for size in job.sizes:
                self._deficits.join([sized(job.seq, size.tasks)], size.scale, np.array([size.speeds]) > 0)
            self._jobs[job.seq] = job
            self._stale = True
        self._newcomers = {}

    def _solve(self, now_s: float) -> None:
        """Compute shares when a job came or left, but not more often than the lease rules allow."""
        if not self._jobs:
            self._solved_s = 0.0
        self._stale |= now_s - self._solved_s >= self._valid_s
        if not self._stale or (self._solved_s and now_s < self._solved_s + self._lease_rules.solve_gap_s):
            return
        self._stale = False
        self._deficits.close(now_s - self._solved_s)
        self._solved_s = now_s
        jobs, mixed = list(self._jobs.values()), self._features.mixed_sharing
        asked = ShareQuestion(now_s, jobs, self._types, self._capacity.devices, self._pair_speeds, mixed=mixed)
        shares = self._rule.shares(asked) if jobs else {}
        if self._rule.packs and not self._lease_rules.lists_all_pairs:
            self._enter_pairs(shares)
        self._deficits.set_shares(shares)

    def _enter_pairs(self, shares: Any) -> None:
        """Keep only pairs that have a share in the deficits."""
        self._deficits.forget_idle_pairs()
        for contender in shares:
            if len(contender) > 1 and contender not in self._deficits:
                one, other = (self._jobs[seq] for seq in contender)
                scale = max(one.scale, other.scale)
                self._deficits.join([contender], scale, self._pair_speeds.run_together(one, other)[None, :])

    # -- selection and placement -----------------------------------------------------------------

    def _select(
        self, order: Sequence[int], placed: Sequence[Selected] = (), failed: Sequence[Selected] = ()
    ) -> list[Selected]:
        """The contenders that run next, type by type, on the devices that the placed ones leave."""
        return select(
            self._deficits,
            left_of(self._capacity.devices, self._deficits, placed),
            order,
            backfills=self._rule.backfills,
            serve_newcomers=self._lease_rules.serves_newcomers,
            spread={seq: job for seq, job in self._jobs.items() if job.rooms},
            taken={seq for each in (*placed, *failed) for seq in members_of(each.contender)},
        )

    def _order(self) -> list[int]:
        """The order in which types are filled."""
        order = list(range(len(self._types)))
        if not self._rule.sees_types and not self._rule.packs:
            self._rng.shuffle(order)
        return order

    def _start_round(self, draft: Draft, order: Sequence[int]) -> None:
        """Place and lease the selected contenders; the devices of those that found no placement go to the next."""
        placed = self._placement.place(draft, self._select(order))
        if self._placement.failed:
            placed += self._placement.place_rest(draft, self._select(order, placed, list(self._placement.failed)))
        grants = LeaseGrants(self._jobs, self._speed, self._pair_speeds, self._lease_rules)
        for each in placed:
            lease, members = grants.grant(draft, each, self._round_s)
            self._leased.update({job.live: None for job in members})
            self._leases.append(lease)
        for job in self._jobs.values():
            if job.live.placement is None and job.live.wait_code is None:
                draft.because(job.live, self.explain(job.live, draft))
