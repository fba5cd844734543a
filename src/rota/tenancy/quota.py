"""Tenancy `quota`: devices by count. A tenant may claim its share at any time and borrow what others leave idle.

Tenants may be parts of tenants: what a team does not use, its siblings may claim before strangers do. Who
borrowed gives back when an owner asks, the one that has had most lately first, but not before it has run for
the guaranteed time.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace

from rota.core.cluster import Cluster
from rota.core.errors import RotaError
from rota.core.inventory import Inventory
from rota.core.live import LiveJob
from rota.core.model import OPPORTUNISTIC, WHOLE, DeviceType, Job, TenantId
from rota.core.placement import Placement
from rota.core.policy import Offer, Placer
from rota.core.reasons import Reason, ReasonCode
from rota.core.state import State
from rota.core.tenants import ANY_TYPE, Share, TenantPlan
from rota.tenancy.open import OpenAllocator

_NO_SHARE = Share()


@dataclass(slots=True)
class Account:
    """What a tenant and all tenants below it hold with their shares, in thousandths by type; and what they have had."""

    share: Share
    held: dict[DeviceType, int] = field(default_factory=dict)
    owned: dict[DeviceType, int] = field(default_factory=dict)
    past: float = 0.0
    """Device-seconds of the past, those of one half-life ago counted half, as of `past_at_s`."""
    past_at_s: float = 0.0

    def fits(self, kind: DeviceType, milli: int) -> bool:
        """Whether so many more devices would be its own."""
        return any(
            name in self.owned and self.held.get(name, 0) + milli <= self.owned[name] * WHOLE
            for name in (kind, ANY_TYPE)
        )

    def under_limit(self, kind: DeviceType, milli: int) -> bool:
        """Whether so many more devices are within what it may ever hold."""
        limit = self.share.limit
        return all(
            name not in limit or self.held.get(name, 0) + milli <= limit[name] * WHOLE for name in (kind, ANY_TYPE)
        )


class QuotaAllocator:
    """Shares by count; which devices is the placement's choice."""

    def __init__(self, placer: Placer, cluster: Cluster | None) -> None:
        if cluster is None or cluster.tenants is None:
            raise RotaError("tenancy 'quota' needs a cluster file with a section `tenants`")
        self._plan: TenantPlan = cluster.tenants
        self._open = OpenAllocator(placer)
        self._types = tuple(cluster.devices_by_type)
        self._type_of = [node.device_type for node in cluster.nodes]
        self._reset()

    def _reset(self) -> None:
        self._accounts = {name: Account(share) for name, share in self._plan.shares.items()}
        for name, account in self._accounts.items():
            account.owned = _owned(self._plan, name)
        self._by_user: dict[tuple[TenantId, str], int] = {}
        self._holders: dict[LiveJob, DeviceType] = {}
        self._lodgers: dict[LiveJob, None] = {}
        """Those of them whose tenant owns nothing, or that ask for no guarantee."""
        self._now_s = 0.0

    # -- what the engine asks --------------------------------------------------------------------

    @property
    def ledger(self) -> QuotaAllocator:
        """These are the books."""
        return self

    def realm(self, live: LiveJob) -> Hashable:
        """Tenants do not hold each other up."""
        return live.job.tenant if live.job.priority > OPPORTUNISTIC else None

    def shape(self, live: LiveJob) -> Hashable:
        """Jobs of one user that are placed in the same way are alike."""
        job = live.job
        return (job.tenant, job.user, job.priority, self._open.shape(live))

    def stage(self, live: LiveJob, now_s: float) -> tuple[int, float]:
        """As with placement alone; and to be asked again when whoever runs now has had its guaranteed time."""
        stage, until_s = self._open.stage(live, now_s)
        ripe_s = live.since_s + self._plan.min_run_s
        if now_s < ripe_s and self._plan.min_run_s:
            return stage, min(until_s, ripe_s)
        return stage + 2, until_s

    def offer(self, live: LiveJob, inventory: Inventory, now_s: float) -> Placement | Reason:
        """Idle devices within the tenant's limits, or why there are none."""
        self._now_s = now_s
        over = self._user_limit(live.job)
        if over is not None:
            return over
        answer: Placement | Reason | None = None
        for kind in self._kinds(live.job):
            if not self._may_hold(live.job, kind):
                continue
            answer = self._open.offer(self._narrowed(live, kind), inventory, now_s)
            if not isinstance(answer, Reason):
                return answer
        return self._limit_reason(live.job) if answer is None else answer

    def displace(self, live: LiveJob, inventory: Inventory, now_s: float) -> Offer | None:
        """Devices that belong to the tenant, or to a tenant above it, and were lent."""
        job = live.job
        if job.priority == OPPORTUNISTIC or self._user_limit(job) is not None or not job.gpu_milli:
            return None
        for kind in self._kinds(job):
            if not self._may_hold(job, kind) or not self._is_anything_lent(kind):
                continue
            for name, account in self._line(job.tenant):
                if account.fits(kind, job.gpu_milli):
                    offer = self._reclaim(live, kind, name, inventory, now_s)
                    if offer is not None:
                        return offer
        return None

    def may_displace(self, live: LiveJob, victim: LiveJob, now_s: float) -> bool:
        """A policy's own pre-emption stays within a tenant and respects the guaranteed run time."""
        if now_s - victim.since_s < self._plan.min_run_s:
            return False
        if victim.job.priority == OPPORTUNISTIC or live.job.priority == OPPORTUNISTIC:
            return victim.job.priority == OPPORTUNISTIC
        return victim.job.tenant == live.job.tenant and victim.job.priority <= live.job.priority

    def missing_milli(self, live: LiveJob, inventory: Inventory) -> int:
        """Nought: even where the count does not suffice, lent devices can be had back."""
        return 0

    def yields_milli(self, live: LiveJob, victim: LiveJob, inventory: Inventory) -> int:
        """The victim's devices that the job can use, if it may have them."""
        return self._open.yields_milli(live, victim, inventory) if self.may_displace(live, victim, math.inf) else 0

    def short_milli(self, live: LiveJob, inventory: Inventory) -> int:
        """What the share lacks in which the job fits; what the cluster lacks if it can only borrow."""
        own = self._own_share(live.job)
        return self._open.missing_milli(live, inventory) if own is None else max(own[0], 0)

    def returns_milli(self, live: LiveJob, holder: LiveJob, inventory: Inventory) -> int:
        """What a holder has of the same share; anything, if the job can only borrow."""
        own = self._own_share(live.job)
        if own is None:
            return self._open.yields_milli(live, holder, inventory)
        _, kind, owner = own
        is_mine = holder.job.priority > OPPORTUNISTIC and owner in dict(self._line(holder.job.tenant))
        return holder.gpu_milli if is_mine and self._holders.get(holder) == kind else 0

    def _own_share(self, job: Job) -> tuple[int, DeviceType, TenantId] | None:
        """The share that lacks least for a job that fits into it: how much, of which type, and whose it is."""
        if job.priority == OPPORTUNISTIC:
            return None
        found = [
            (job.gpu_milli - (account.owned[key] * WHOLE - account.held.get(key, 0)), kind, name)
            for kind in self._kinds(job)
            for name, account in self._line(job.tenant)
            for key in (kind, ANY_TYPE)
            if account.owned.get(key, 0) * WHOLE >= job.gpu_milli
        ]
        return min(found, key=lambda share: share[0], default=None)

    # -- books -----------------------------------------------------------------------------------

    def adopt(self, state: State) -> None:
        """Open the books anew and enter what jobs hold."""
        self._reset()
        self._now_s = state.now_s
        for live in state.jobs.values():
            if live.placement is not None:
                self.moved(live, None, live.placement, undo=False)

    def moved(self, live: LiveJob, before: Placement | None, after: Placement | None, *, undo: bool) -> None:
        """A job's claim changed."""
        for placement, sign in ((before, -1), (after, 1)):
            if placement is None:
                continue
            for slot in placement:
                milli = slot.devices.bit_count() * slot.milli * sign
                if milli and slot.node < len(self._type_of):
                    self._charge(live.job, self._type_of[slot.node], milli)
        self._lodgers.pop(live, None)
        if after:
            self._holders[live] = self._type_of[after[0].node]
            if live.job.priority == OPPORTUNISTIC or live.job.tenant not in self._accounts:
                self._lodgers[live] = None
        else:
            self._holders.pop(live, None)

    def node_turned(self, index: int, inventory: Inventory) -> None:
        """Shares are counts; they do not depend on which nodes are up."""

    def _charge(self, job: Job, kind: DeviceType, milli: int) -> None:
        if job.user:
            key = (job.tenant, job.user)
            self._by_user[key] = self._by_user.get(key, 0) + milli
        if job.priority == OPPORTUNISTIC:
            return
        for _, account in self._line(job.tenant):
            self._age(account)
            for name in (kind, ANY_TYPE):
                account.held[name] = account.held.get(name, 0) + milli

    def _age(self, account: Account) -> None:
        """Bring what a tenant has had up to now; it fades by half in every half-life."""
        passed_s = self._now_s - account.past_at_s
        if passed_s > 0:
            fade = 0.5 ** (passed_s / self._plan.half_life_s)
            rate = account.held.get(ANY_TYPE, 0) / WHOLE
            # The integral of a constant use under the same fading.
            account.past = account.past * fade + rate * self._plan.half_life_s / math.log(2) * (1 - fade)
            account.past_at_s = self._now_s

    def lately(self, tenant: TenantId) -> float:
        """Device-seconds that a tenant has had, faded, per unit of its weight."""
        account = self._accounts.get(tenant)
        if account is None:
            return math.inf
        self._age(account)
        return account.past / account.share.weight

    # -- shares ----------------------------------------------------------------------------------

    def _line(self, tenant: TenantId) -> Iterator[tuple[TenantId, Account]]:
        """A tenant's account and those above it, nearest first."""
        name: TenantId | None = tenant
        while name is not None and name in self._accounts:
            account = self._accounts[name]
            yield name, account
            name = account.share.parent

    def _kinds(self, job: Job) -> list[DeviceType]:
        """Types of device that will do, best first."""
        roles = [role for role in job.roles if role.device_milli]
        named = next((role.device_types for role in roles if role.device_types), ())
        return [kind for kind in named or self._types if kind in self._types]

    def _may_hold(self, job: Job, kind: DeviceType) -> bool:
        return all(account.under_limit(kind, job.gpu_milli) for _, account in self._line(job.tenant))

    def _narrowed(self, live: LiveJob, kind: DeviceType) -> LiveJob:
        """The job as if it asked for one type only, where there are several."""
        if len(self._types) == 1 or not live.job.gpu_milli:
            return live
        roles = tuple(replace(role, device_types=(kind,)) if role.device_milli else role for role in live.job.roles)
        twin = LiveJob(replace(live.job, roles=roles), live.seq, live.submitted_s, live.nominal_rate)
        twin.since_s = live.since_s
        return twin

    def _user_limit(self, job: Job) -> Reason | None:
        most = self._plan.shares.get(job.tenant, _NO_SHARE).per_user
        if most is None or not job.user:
            return None
        left = most * WHOLE - self._by_user.get((job.tenant, job.user), 0)
        if job.gpu_milli <= left:
            return None
        return Reason(
            code=ReasonCode.USER_LIMIT,
            need_milli=job.gpu_milli,
            free_milli=left,
            owned_milli=most * WHOLE,
            tenant=job.tenant,
        )

    def _limit_reason(self, job: Job) -> Reason:
        """Every type that will do is used up to a limit."""
        most = room = 0
        for kind in self._kinds(job):
            tops, rooms = [], []
            for _, account in self._line(job.tenant):
                for name in (kind, ANY_TYPE):
                    if name in account.share.limit:
                        tops.append(account.share.limit[name] * WHOLE)
                        rooms.append(tops[-1] - account.held.get(name, 0))
            most, room = max(most, min(tops, default=0)), max(room, min(rooms, default=0))
        code = ReasonCode.QUOTA_USED if most >= job.gpu_milli else ReasonCode.QUOTA_TOO_SMALL
        return Reason(code=code, need_milli=job.gpu_milli, free_milli=room, owned_milli=most, tenant=job.tenant)

    # -- reclaiming ------------------------------------------------------------------------------

    def _reclaim(
        self, live: LiveJob, kind: DeviceType, owner: TenantId, inventory: Inventory, now_s: float
    ) -> Offer | None:
        """Take back from borrowers, one after the other, until the job fits; the inventory is left as it was."""
        wanted = self._narrowed(live, kind)
        victims: list[tuple[LiveJob, Placement]] = []
        found: Placement | None = None
        lent = dict(self._lent(kind))
        for victim in self._borrowers(kind, owner, now_s):
            placement = victim.placement
            if placement is None or not self._still_lent(victim, owner, lent):
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
        return bool(self._lodgers) or any(amount > 0 for _, amount in self._lent(kind))

    def _lent(self, kind: DeviceType) -> Iterator[tuple[TenantId, int]]:
        """How many thousandths each tenant holds beyond what it owns."""
        for name, account in self._accounts.items():
            amounts = [
                account.held.get(key, 0) - account.owned[key] * WHOLE
                for key in (kind, ANY_TYPE)
                if key in account.owned
            ]
            yield name, min(amounts, default=account.held.get(kind, 0))

    def _still_lent(self, victim: LiveJob, owner: TenantId, lent: dict[TenantId, int]) -> bool:
        """Whether a victim's tenant still holds more than its own; if so, less from now on."""
        if victim.job.priority == OPPORTUNISTIC:
            return True
        line = [name for name, _ in self._line(victim.job.tenant)]
        outside = line[: line.index(owner)] if owner in line else line
        if line and not any(lent[name] > 0 for name in outside):
            return False
        for name in line:
            lent[name] -= victim.gpu_milli
        return True

    def _borrowers(self, kind: DeviceType, owner: TenantId, now_s: float) -> list[LiveJob]:
        """Who may have to give back: work without a guarantee, then of those that have had most, the latest first."""
        ripe = [
            live
            for live, at in self._holders.items()
            if at == kind and now_s - live.since_s >= self._plan.min_run_s and live.stopping is None
        ]
        return sorted(
            ripe,
            key=lambda live: (
                live.job.priority != OPPORTUNISTIC,
                -self.lately(live.job.tenant),
                live.job.priority,
                -live.since_s,
                -live.seq,
            ),
        )


def _owned(plan: TenantPlan, name: TenantId) -> dict[DeviceType, int]:
    """What a tenant is promised; where nothing is said of it, what those below it are promised together."""
    if plan.shares[name].guaranteed:
        return dict(plan.shares[name].guaranteed)
    owned: dict[DeviceType, int] = {}
    for child, share in plan.shares.items():
        if share.parent == name:
            for kind, amount in _owned(plan, child).items():
                owned[kind] = owned.get(kind, 0) + amount
    return owned
