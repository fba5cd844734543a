"""Tenancy `quota`: devices by count. A tenant may claim its share at any time and borrow what others leave idle.

Tenants may contain tenants: what a team does not use, its siblings may claim before other tenants. A borrower returns
devices when their owner asks for them, the one that has used most lately first, but not before its minimum run time.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace

from rota.core.engine.protocols import Offer, Placer
from rota.core.errors import InvariantBroken
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.cluster import Cluster
from rota.core.model.job import OPPORTUNISTIC, DeviceType, Job, TenantId
from rota.core.model.placement import Placement
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.tenancy.open import OpenAllocator
from rota.tenancy.quota.accounts import Lending
from rota.tenancy.quota.ledger import QuotaLedger
from rota.tenancy.quota.reasons import lent_reason, limit_reason, used_reason, user_limit_reason
from rota.tenancy.quota.stated_shares import stated_shares


class QuotaAllocator:
    """Shares by count; which devices is the placement's choice."""

    def __init__(self, placer: Placer, cluster: Cluster | None) -> None:
        cells, tenants = (None, None) if cluster is None else (cluster.cells, cluster.tenants)
        self._open = OpenAllocator(placer)
        self._ledger = QuotaLedger(stated_shares(cells, tenants), Inventory(cluster), placer.neighbours)
        self._shortage = QuotaShortage(self, self._open)
        self._reservation = QuotaReservation(self._ledger, self._open)

    @property
    def ledger(self) -> QuotaLedger:
        """The accounts of tenants and users."""
        return self._ledger

    @property
    def has_guarantees(self) -> bool:
        """Tenants have shares."""
        return True

    @property
    def shortage(self) -> QuotaShortage:
        """None by count: lent devices can be reclaimed."""
        return self._shortage

    @property
    def reservation_shortage(self) -> QuotaReservation:
        """What the tenant's share lacks."""
        return self._reservation

    def refuse(self, job: Job) -> str | None:
        """Refuse a job that is larger than a limit: it can never start."""
        over = self._ledger.limit_below(job)
        if over is None:
            return None
        words, most = over
        return f"{words} is {most}; a job of {job.gpus:g} devices can never start there"

    def quota_scope(self, live: LiveJob) -> Hashable:
        """The tenant: tenants do not delay each other."""
        return live.job.tenant if live.standing > OPPORTUNISTIC else None

    def equivalence_key(self, live: LiveJob) -> Hashable:
        """Jobs of one user that are placed in the same way are interchangeable."""
        job = live.job
        return (job.tenant, job.user, live.standing, live.demoted, self._open.equivalence_key(live))

    def stage(self, live: LiveJob, now_s: float) -> tuple[int, float]:
        """As with placement alone."""
        return self._open.stage(live, now_s)

    def offer(self, live: LiveJob, inventory: Inventory, now_s: float) -> Placement | Reason:
        """Idle devices within the tenant's limits, or why there are none."""
        ledger = self._ledger
        over = user_limit_reason(ledger, live)
        if over is not None:
            return over
        reason: Reason | None = None
        kinds = ledger.kinds(live.job)
        for kind in kinds:
            if not ledger.may_hold(live, kind):
                continue
            answer = self._open.offer(self._narrowed(live, kind), inventory, now_s)
            if not isinstance(answer, Reason):
                return answer
            reason = answer
        if not kinds:
            return self._open.offer(live, inventory, now_s)
        if reason is None:
            return limit_reason(ledger, live.job)
        used = used_reason(ledger, live) if reason.code is ReasonCode.DEVICES_BUSY else None
        return lent_reason(ledger, live, now_s) or used or reason

    def place(self, live: LiveJob, inventory: Inventory, now_s: float) -> Placement | None:
        """What is offered, without a reason if nothing is."""
        answer = self.offer(live, inventory, now_s)
        return None if isinstance(answer, Reason) else answer

    def reason(self, live: LiveJob, inventory: Inventory, now_s: float) -> Reason:
        """Not asked, since no refusal is kept."""
        raise InvariantBroken(f"job {live.job.id}: its refusal was kept")

    def displace(self, live: LiveJob, inventory: Inventory, now_s: float) -> Offer | None:
        """Devices that belong to the tenant, or to a tenant above it, and were lent."""
        job, ledger = live.job, self._ledger
        if live.standing == OPPORTUNISTIC or user_limit_reason(ledger, live) is not None or not job.gpu_milli:
            return None
        for kind in ledger.kinds(job):
            if not ledger.may_hold(live, kind) or not self._is_any_lent(kind):
                continue
            for name, account in ledger.accounts.line(job.tenant):
                if account.fits(kind, job.gpu_milli):
                    offer = self._reclaim(live, kind, name, inventory, now_s)
                    if offer is not None:
                        return offer
                    ends = (at_s for at_s, _ in ledger.protected(kind, now_s))
                    ledger.reclaimable_s = min([ledger.reclaimable_s, *ends])
        return None

    def keeps_refusal(self, job: Job) -> bool:
        """No: what a job may use follows from accounts that change without any device."""
        return False

    def may_displace(self, live: LiveJob, victim: LiveJob, now_s: float) -> bool:
        """Whether a policy's own preemption stays within a tenant and respects the minimum run time."""
        if not self._ledger.has_run_minimum(victim, now_s):
            return False
        if victim.standing == OPPORTUNISTIC or live.standing == OPPORTUNISTIC:
            return victim.standing == OPPORTUNISTIC
        return victim.job.tenant == live.job.tenant and victim.job.priority <= live.job.priority

    # -- reclaiming ------------------------------------------------------------------------------

    def _narrowed(self, live: LiveJob, kind: DeviceType) -> LiveJob:
        """The job as if it asked for one type only, where there are several."""
        if self._ledger.has_one_type or not live.job.gpu_milli:
            return live
        roles = tuple(replace(role, device_types=(kind,)) if role.device_milli else role for role in live.job.roles)
        twin = LiveJob(replace(live.job, roles=roles), live.seq, live.submitted_s, live.nominal_rate)
        twin.since_s = live.since_s
        return twin

    def _reclaim(
        self, live: LiveJob, kind: DeviceType, owner: TenantId, inventory: Inventory, now_s: float
    ) -> Offer | None:
        """Reclaim from one borrower after the other until the job fits; the inventory is left unchanged."""
        wanted = self._narrowed(live, kind)
        victims: list[tuple[LiveJob, Placement]] = []
        found: Placement | None = None
        lending = Lending(self._ledger.accounts, kind)
        for victim in self._borrowers(kind, now_s):
            placement = victim.placement
            is_opportunistic = victim.standing == OPPORTUNISTIC
            if placement is None or not (
                is_opportunistic or lending.give_back(victim.job.tenant, owner, victim.gpu_milli)
            ):
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

    def _is_any_lent(self, kind: DeviceType) -> bool:
        """Whether any job holds devices of a type beyond what its tenant owns."""
        return bool(self._ledger.unguaranteed) or Lending(self._ledger.accounts, kind).is_any

    def _borrowers(self, kind: DeviceType, now_s: float) -> list[LiveJob]:
        """Jobs that may have to return devices: those without a guarantee, then by recent usage, the latest first."""
        ledger = self._ledger
        reclaimable = [
            live
            for live, at in ledger.holders.items()
            if at == kind and ledger.has_run_minimum(live, now_s) and not live.is_leaving
        ]
        return sorted(
            reclaimable,
            key=lambda live: (
                live.standing != OPPORTUNISTIC,
                -ledger.lately(live.job.tenant),
                live.job.priority,
                -live.since_s,
                -live.seq,
            ),
        )


class QuotaShortage:
    """Nothing by count, as lent devices can be reclaimed; what a policy may preempt counts."""

    def __init__(self, allocator: QuotaAllocator, placed: OpenAllocator) -> None:
        self._allocator = allocator
        self._placed = placed

    def milli(self, live: LiveJob, inventory: Inventory) -> int:
        """Always 0: lent devices can be reclaimed."""
        return 0

    def freed_by(self, holder: LiveJob, live: LiveJob, inventory: Inventory) -> int:
        """The holder's devices that the job can use, if the policy may preempt it for the job."""
        if not self._allocator.may_displace(live, holder, math.inf):
            return 0
        return self._placed.shortage.freed_by(holder, live, inventory)


class QuotaReservation:
    """What the share lacks in which a job fits; what the cluster lacks for a job that can only borrow."""

    def __init__(self, ledger: QuotaLedger, placed: OpenAllocator) -> None:
        self._ledger = ledger
        self._placed = placed

    def milli(self, live: LiveJob, inventory: Inventory) -> int:
        """What the share lacks, or the cluster."""
        own = self._ledger.own_share(live)
        return self._placed.shortage.milli(live, inventory) if own is None else max(own.lacks_milli, 0)

    def freed_by(self, holder: LiveJob, live: LiveJob, inventory: Inventory) -> int:
        """What a holder has of the same share; all that it holds, if the job can only borrow."""
        own = self._ledger.own_share(live)
        if own is None:
            return self._placed.shortage.freed_by(holder, live, inventory)
        is_own = holder.standing > OPPORTUNISTIC and self._ledger.is_within(holder, own.owner)
        return holder.gpu_milli if is_own and self._ledger.holders.get(holder) == own.kind else 0
