"""Tenancy `quota`: devices by count. A tenant may claim its share at any time and borrow what others leave idle.

Tenants may be parts of tenants: what a team does not use, its siblings may claim before strangers do. Who
borrowed gives back when an owner asks, the one that has had most lately first, but not before it has run for
the guaranteed time.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace

from rota.core.engine.protocols import Offer, Placer
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.cells import CellPlan
from rota.core.model.cluster import Cluster
from rota.core.model.job import OPPORTUNISTIC, WHOLE, DeviceType, Job, TenantId
from rota.core.model.placement import Placement
from rota.core.model.tenants import ANY_TYPE, TenantPlan
from rota.core.state.decayed_usage import DecayedUsage
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.tenancy.accounts import Accounts, Lending
from rota.tenancy.open import OpenAllocator
from rota.tenancy.shares import stated_shares

ACCOUNTS = "quota"
"""Under which name the state keeps what tenants have had."""


class QuotaAllocator:
    """Shares by count; which devices is the placement's choice."""

    def __init__(self, placer: Placer, cluster: Cluster | None) -> None:
        cells, tenants = (None, None) if cluster is None else (cluster.cells, cluster.tenants)
        self._plan: TenantPlan = stated_shares(cells, tenants)
        self._open = OpenAllocator(placer)
        self._state: State | None = None
        """Whose books these are."""
        self._reset(Inventory(cluster), DecayedUsage(self._plan.half_life_s, {}))

    def _reset(self, inventory: Inventory, use: DecayedUsage) -> None:
        self._accounts = Accounts(self._plan)
        self._use = use
        self._by_user: dict[tuple[TenantId, str], int] = {}
        self._holders: dict[LiveJob, DeviceType] = {}
        self._lodgers: dict[LiveJob, None] = {}
        """Those of them whose tenant owns nothing, or that have no guarantee."""
        self._is_adopting = False
        self._ripens_s = math.inf
        """When the first borrower has had its guaranteed time from whom somebody wanted devices back."""
        self._read_types(inventory)

    def _read_types(self, inventory: Inventory) -> None:
        self._type_of = [books.node.device_type for books in inventory.nodes]
        self._types = tuple(pool.device_type for pool in inventory.pools if pool.devices)

    # -- what the engine asks --------------------------------------------------------------------

    @property
    def ledger(self) -> QuotaAllocator:
        """These are the books."""
        return self

    def refuse(self, job: Job) -> str | None:
        """A job that is larger than a limit can never start."""
        over = self._never(job)
        if over is None:
            return None
        words, most = over
        return f"{words} is {most}; a job of {job.gpus:g} devices can never start there"

    def quota_scope(self, live: LiveJob) -> Hashable:
        """Tenants do not hold each other up."""
        return live.job.tenant if live.standing > OPPORTUNISTIC else None

    def equivalence_key(self, live: LiveJob) -> Hashable:
        """Jobs of one user that are placed in the same way are alike."""
        job = live.job
        return (job.tenant, job.user, live.standing, live.demoted, self._open.equivalence_key(live))

    def stage(self, live: LiveJob, now_s: float) -> tuple[int, float]:
        """As with placement alone."""
        return self._open.stage(live, now_s)

    def offer(self, live: LiveJob, inventory: Inventory, now_s: float) -> Placement | Reason:
        """Idle devices within the tenant's limits, or why there are none."""
        over = self._user_limit(live)
        if over is not None:
            return over
        reason: Reason | None = None
        kinds = self._kinds(live.job)
        for kind in kinds:
            if not self._may_hold(live, kind):
                continue
            answer = self._open.offer(self._narrowed(live, kind), inventory, now_s)
            if not isinstance(answer, Reason):
                return answer
            reason = answer
        if not kinds:
            return self._open.offer(live, inventory, now_s)
        if reason is None:
            return self._limit_reason(live.job)
        used = self._used_reason(live) if reason.code is ReasonCode.DEVICES_BUSY else None
        return self._lent_reason(live, now_s) or used or reason

    def displace(self, live: LiveJob, inventory: Inventory, now_s: float) -> Offer | None:
        """Devices that belong to the tenant, or to a tenant above it, and were lent."""
        job = live.job
        if live.standing == OPPORTUNISTIC or self._user_limit(live) is not None or not job.gpu_milli:
            return None
        for kind in self._kinds(job):
            if not self._may_hold(live, kind) or not self._is_anything_lent(kind):
                continue
            for name, account in self._accounts.line(job.tenant):
                if account.fits(kind, job.gpu_milli):
                    offer = self._reclaim(live, kind, name, inventory, now_s)
                    if offer is not None:
                        return offer
                    self._ripens_s = min([self._ripens_s, *(at_s for at_s, _ in self._unripe(kind, now_s))])
        return None

    def may_displace(self, live: LiveJob, victim: LiveJob, now_s: float) -> bool:
        """A policy's own preemption stays within a tenant and respects the guaranteed run time."""
        if now_s - victim.since_s < self._plan.min_run_s:
            return False
        if victim.standing == OPPORTUNISTIC or live.standing == OPPORTUNISTIC:
            return victim.standing == OPPORTUNISTIC
        return victim.job.tenant == live.job.tenant and victim.job.priority <= live.job.priority

    def missing_milli(self, live: LiveJob, inventory: Inventory) -> int:
        """Nought: even where the count does not suffice, lent devices can be had back."""
        return 0

    def yields_milli(self, live: LiveJob, victim: LiveJob, inventory: Inventory) -> int:
        """The victim's devices that the job can use, if it may have them."""
        return self._open.yields_milli(live, victim, inventory) if self.may_displace(live, victim, math.inf) else 0

    def short_milli(self, live: LiveJob, inventory: Inventory) -> int:
        """What the share lacks in which the job fits; what the cluster lacks if it can only borrow."""
        own = self._own_share(live)
        return self._open.missing_milli(live, inventory) if own is None else max(own[0], 0)

    def returns_milli(self, live: LiveJob, holder: LiveJob, inventory: Inventory) -> int:
        """What a holder has of the same share; anything, if the job can only borrow."""
        own = self._own_share(live)
        if own is None:
            return self._open.yields_milli(live, holder, inventory)
        _, kind, owner = own
        is_mine = holder.standing > OPPORTUNISTIC and owner in dict(self._accounts.line(holder.job.tenant))
        return holder.gpu_milli if is_mine and self._holders.get(holder) == kind else 0

    def _own_share(self, live: LiveJob) -> tuple[int, DeviceType, TenantId] | None:
        """The share that lacks least for a job that fits into it: how much, of which type, and whose it is."""
        if live.standing == OPPORTUNISTIC:
            return None
        need = live.job.gpu_milli
        found = [
            (need - (account.owned[key] * WHOLE - account.held.get(key, 0)), kind, name)
            for kind in self._kinds(live.job)
            for name, account in self._accounts.line(live.job.tenant)
            for key in (kind, ANY_TYPE)
            if account.owned.get(key, 0) * WHOLE >= need
        ]
        return min(found, key=lambda share: share[0], default=None)

    # -- books -----------------------------------------------------------------------------------

    def promise(self, cells: CellPlan | None, tenants: TenantPlan | None, inventory: Inventory) -> None:
        """Other shares. What tenants have had lately is not forgotten."""
        self._plan = stated_shares(cells, tenants)
        self._reset(inventory, DecayedUsage(self._plan.half_life_s, {}))

    def could_hold(self, live: LiveJob) -> bool:
        """Whether no limit is smaller than the job; beyond its share it may borrow."""
        return self._never(live.job) is None

    def keeps_promise(self, live: LiveJob) -> bool:
        """Whether no limit that came later stands against it."""
        return live.job.priority == OPPORTUNISTIC or not live.demoted

    def adopt(self, state: State) -> None:
        """Open the books anew and enter what jobs hold."""
        past = state.past.setdefault(ACCOUNTS, {})
        self._reset(state.inventory, DecayedUsage(self._plan.half_life_s, past))
        self._state = state
        self._is_adopting = True
        for live in state.jobs.values():
            if live.placement is not None:
                self.moved(live, None, live.placement, undo=False)
        self._is_adopting = False
        # Who had been refused before may want devices back as soon as anyone has had its time.
        self._ripens_s = min((at_s for at_s, _ in self._unripe(None, state.now_s)), default=math.inf)

    def moved(self, live: LiveJob, before: Placement | None, after: Placement | None, *, undo: bool) -> None:
        """A job's claim changed."""
        for placement, sign in ((before, -1), (after, 1)):
            for slot in placement or ():
                milli = slot.devices.bit_count() * slot.milli * sign
                if milli:
                    self._charge(live, self._type_of[slot.node], milli)
        self._lodgers.pop(live, None)
        if after:
            self._holders[live] = self._type_of[after[0].node]
            if live.standing == OPPORTUNISTIC or live.job.tenant not in self._accounts:
                self._lodgers[live] = None
        else:
            self._holders.pop(live, None)

    def node_turned(self, index: int, inventory: Inventory) -> None:
        """Shares are counts; they do not depend on which nodes are up. A new node may be of a new type."""
        self._read_types(inventory)

    @property
    def wakeup_s(self) -> float:
        """When a borrower has had its guaranteed time from whom somebody wanted devices back."""
        return self._ripens_s

    def wake(self) -> None:
        """Who is refused again will say so."""
        self._ripens_s = math.inf

    def _charge(self, live: LiveJob, kind: DeviceType, milli: int) -> None:
        job = live.job
        for name, account in self._accounts.line(job.tenant):
            if job.user:
                self._by_user[name, job.user] = self._by_user.get((name, job.user), 0) + milli
            if live.standing > OPPORTUNISTIC:
                account.take(kind, milli)
                note = self._use.resume if self._is_adopting else self._use.change
                note(name, milli / WHOLE, self._now_s)

    @property
    def _now_s(self) -> float:
        return 0.0 if self._state is None else self._state.now_s

    def lately(self, tenant: TenantId) -> float:
        """Device-seconds that a tenant has had, faded, per unit of its weight."""
        account = self._accounts.get(tenant)
        return math.inf if account is None else self._use.of(tenant, self._now_s) / account.share.weight

    # -- shares ----------------------------------------------------------------------------------

    def _kinds(self, job: Job) -> list[DeviceType]:
        """Types of device that will do, best first."""
        roles = [role for role in job.roles if role.device_milli]
        named = next((role.device_types for role in roles if role.device_types), ())
        return [kind for kind in named or self._types if kind in self._types]

    def _may_hold(self, live: LiveJob, kind: DeviceType) -> bool:
        """Whether no limit is in the way; what was admitted before a limit came is beyond it."""
        line = self._accounts.line(live.job.tenant)
        return live.demoted or all(account.under_limit(kind, live.job.gpu_milli) for _, account in line)

    def _never(self, job: Job) -> tuple[str, int] | None:
        """The limit that is smaller than a job by itself, in words, if there is one."""
        for name, account in self._accounts.line(job.tenant):
            if account.share.per_user is not None and job.user and job.gpu_milli > account.share.per_user * WHOLE:
                return f"tenants.{name}.per_user", account.share.per_user
            kinds = self._kinds(job)
            if kinds and not any(account.within_limit(kind, job.gpu_milli) for kind in kinds):
                return f"tenants.{name}.limit", min(account.share.limit.values())
        return None

    def _narrowed(self, live: LiveJob, kind: DeviceType) -> LiveJob:
        """The job as if it asked for one type only, where there are several."""
        if len(self._types) == 1 or not live.job.gpu_milli:
            return live
        roles = tuple(replace(role, device_types=(kind,)) if role.device_milli else role for role in live.job.roles)
        twin = LiveJob(replace(live.job, roles=roles), live.seq, live.submitted_s, live.nominal_rate)
        twin.since_s = live.since_s
        return twin

    def _user_limit(self, live: LiveJob) -> Reason | None:
        job = live.job
        if not job.user or live.demoted:
            return None
        for name, account in self._accounts.line(job.tenant):
            most = account.share.per_user
            if most is None:
                continue
            left = most * WHOLE - self._by_user.get((name, job.user), 0)
            if job.gpu_milli > left:
                return Reason(
                    code=ReasonCode.USER_LIMIT,
                    need_milli=job.gpu_milli,
                    free_milli=left,
                    owned_milli=most * WHOLE,
                    tenant=name,
                )
        return None

    def _limit_reason(self, job: Job) -> Reason:
        """Every type that will do is used up to a limit."""
        most = room = 0
        for kind in self._kinds(job):
            tops, rooms = [], []
            for _, account in self._accounts.line(job.tenant):
                for name in (kind, ANY_TYPE):
                    if name in account.share.limit:
                        tops.append(account.share.limit[name] * WHOLE)
                        rooms.append(tops[-1] - account.held.get(name, 0))
            most, room = max(most, min(tops, default=0)), max(room, min(rooms, default=0))
        code = ReasonCode.QUOTA_USED if most >= job.gpu_milli else ReasonCode.QUOTA_TOO_SMALL
        return Reason(code=code, need_milli=job.gpu_milli, free_milli=room, owned_milli=most, tenant=job.tenant)

    def _lent_reason(self, live: LiveJob, now_s: float) -> Reason | None:
        """Where the job's share is lent to others who still have their guaranteed time: who, and until when."""
        own = self._own_share(live)
        if own is None or own[0] > 0:
            return None
        _, kind, owner = own
        unripe = [
            entry for entry in self._unripe(kind, now_s) if owner not in dict(self._accounts.line(entry[1].job.tenant))
        ]
        if not unripe:
            return None
        at_s, borrower = min(unripe, key=lambda entry: (entry[0], entry[1].seq))
        need = live.job.gpu_milli
        return Reason(code=ReasonCode.SHARE_LENT, need_milli=need, tenant=owner, job=borrower.job.id, until_s=at_s)

    def _used_reason(self, live: LiveJob) -> Reason | None:
        """Where the tenant's share, or one above it, has no room for the job: how much there is, and what is left."""
        if live.standing == OPPORTUNISTIC:
            return None
        need = live.job.gpu_milli
        shares = [
            (account.owned[key] * WHOLE, account.owned[key] * WHOLE - account.held.get(key, 0), name)
            for kind in self._kinds(live.job)
            for name, account in self._accounts.line(live.job.tenant)
            for key in (kind, ANY_TYPE)
            if key in account.owned
        ]
        large = [share for share in shares if share[0] >= need]
        nothing = (0, 0, live.job.tenant)
        owned, left, owner = max(large or shares, key=lambda share: (share[1], share[0]), default=nothing)
        free = max(left, 0)
        reason = Reason(code=ReasonCode.SHARE_USED, need_milli=need, free_milli=free, owned_milli=owned, tenant=owner)
        return reason if free < need else None

    # -- reclaiming ------------------------------------------------------------------------------

    def _reclaim(
        self, live: LiveJob, kind: DeviceType, owner: TenantId, inventory: Inventory, now_s: float
    ) -> Offer | None:
        """Take back from borrowers, one after the other, until the job fits; the inventory is left as it was."""
        wanted = self._narrowed(live, kind)
        victims: list[tuple[LiveJob, Placement]] = []
        found: Placement | None = None
        lending = Lending(self._accounts, kind)
        for victim in self._borrowers(kind, now_s):
            placement = victim.placement
            is_lodger = victim.standing == OPPORTUNISTIC
            if placement is None or not (is_lodger or lending.give_back(victim.job.tenant, owner, victim.gpu_milli)):
                continue
            inventory.give(placement, victim.job.roles, victim.job.exclusive)
            victims.append((victim, placement))
            answer = self._open.offer(wanted, inventory, now_s)
            if not isinstance(answer, Reason):
                found = answer
                break
        for victim, placement in reversed(victims):
            inventory.take(placement, victim.job.roles, victim.job.exclusive)
        if found is None:
            return None
        return Offer(placement=found, victims=tuple(victim for victim, _ in victims))

    def _is_anything_lent(self, kind: DeviceType) -> bool:
        """Whether anyone holds devices of a type beyond what it owns."""
        return bool(self._lodgers) or Lending(self._accounts, kind).is_any

    def _borrowers(self, kind: DeviceType, now_s: float) -> list[LiveJob]:
        """Who may have to give back: work without a guarantee, then of those that have had most, the latest first."""
        ripe = [
            live
            for live, at in self._holders.items()
            if at == kind and now_s - live.since_s >= self._plan.min_run_s and not live.is_leaving
        ]
        return sorted(
            ripe,
            key=lambda live: (
                live.standing != OPPORTUNISTIC,
                -self.lately(live.job.tenant),
                live.job.priority,
                -live.since_s,
                -live.seq,
            ),
        )

    def _unripe(self, kind: DeviceType | None, now_s: float) -> list[tuple[float, LiveJob]]:
        """Holders of a type, or of any, that still have their guaranteed time, and until when."""
        return [
            (live.since_s + self._plan.min_run_s, live)
            for live, at in self._holders.items()
            if kind in (None, at) and live.since_s + self._plan.min_run_s > now_s
        ]
