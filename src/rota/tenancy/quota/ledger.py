"""What tenants and users hold of their shares, kept up to date with every claim of the engine."""

from __future__ import annotations

import math
from typing import NamedTuple

from rota.core.engine.protocols import ClaimFollower
from rota.core.model.cells import CellPlan
from rota.core.model.job import OPPORTUNISTIC, WHOLE, DeviceType, Job, TenantId
from rota.core.model.placement import Placement
from rota.core.model.tenants import ANY_TYPE, TenantPlan
from rota.core.state.decayed_usage import DecayedUsage
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.tenancy.quota.accounts import Accounts
from rota.tenancy.quota.stated_shares import stated_shares

ACCOUNTS = "quota"
"""The name under which the state keeps what tenants have used."""


class OwnShare(NamedTuple):
    """A share that is large enough for a job: what it lacks at present, of which type, and its owner."""

    lacks_milli: int
    kind: DeviceType
    owner: TenantId


class QuotaLedger:
    """The accounts of tenants and users, and the jobs that hold devices."""

    def __init__(self, plan: TenantPlan, inventory: Inventory, neighbours: ClaimFollower | None = None) -> None:
        self._state: State | None = None
        """The state that these accounts follow."""
        self._neighbours = neighbours
        """What the placement knows of other jobs; it follows the same claims."""
        self._reset(plan, inventory, {})

    def _reset(self, plan: TenantPlan, inventory: Inventory, past: dict[str, list[float]]) -> None:
        self.plan = plan
        self.accounts = Accounts(plan)
        self.holders: dict[LiveJob, DeviceType] = {}
        self.unguaranteed: dict[LiveJob, None] = {}
        """Holders whose tenant owns nothing, or that have no guarantee."""
        self.held_by_user: dict[tuple[TenantId, str], int] = {}
        """Thousandths of devices by tenant and user; a tenant's include those of tenants within it."""
        self.reclaimable_s = math.inf
        """When the first borrower that a job needs devices of has used its minimum run time."""
        self._usage = DecayedUsage(plan.half_life_s, past)
        self._is_adopting = False
        self._read_types(inventory)

    def _read_types(self, inventory: Inventory) -> None:
        self._type_of = [account.node.device_type for account in inventory.nodes]
        self._types = tuple(pool.device_type for pool in inventory.pools if pool.devices)

    # -- what the engine reports -----------------------------------------------------------------

    def promise(self, cells: CellPlan | None, tenants: TenantPlan | None, inventory: Inventory) -> None:
        """Replace the shares. `adopt` brings back what tenants have used."""
        self._reset(stated_shares(cells, tenants), inventory, {})

    def adopt(self, state: State) -> None:
        """Rebuild the accounts from what the jobs of a state hold."""
        self._reset(self.plan, state.inventory, state.past.setdefault(ACCOUNTS, {}))
        self._state = state
        if self._neighbours is not None:
            self._neighbours.adopt(state)
        self._is_adopting = True
        for live in state.jobs.values():
            if live.placement is not None:
                self.moved(live, None, live.placement, undo=False)
        self._is_adopting = False
        # A job that was refused before may reclaim devices as soon as any holder has used its minimum run time.
        self.reclaimable_s = min((at_s for at_s, _ in self.protected(None, state.now_s)), default=math.inf)

    def moved(self, live: LiveJob, before: Placement | None, after: Placement | None, *, undo: bool) -> None:
        """Charge a job's tenants and user for what its claim changed."""
        if self._neighbours is not None and not self._is_adopting:
            self._neighbours.moved(live, before, after, undo=undo)
        for placement, sign in ((before, -1), (after, 1)):
            for slot in placement or ():
                milli = slot.devices.bit_count() * slot.milli * sign
                if milli:
                    self._charge(live, self._type_of[slot.node], milli)
        self.unguaranteed.pop(live, None)
        if after:
            self.holders[live] = self._type_of[after[0].node]
            if live.standing == OPPORTUNISTIC or live.job.tenant not in self.accounts:
                self.unguaranteed[live] = None
        else:
            self.holders.pop(live, None)

    def node_turned(self, index: int, inventory: Inventory) -> None:
        """Read the device types again: a new node may be of a new type. Shares do not depend on nodes."""
        self._read_types(inventory)

    def could_hold(self, live: LiveJob) -> bool:
        """Whether no limit is smaller than the job; beyond its share it may borrow."""
        return self.limit_below(live.job) is None

    def keeps_promise(self, live: LiveJob) -> bool:
        """Whether no limit that was set later rules the job out."""
        return live.job.priority == OPPORTUNISTIC or not live.demoted

    @property
    def wakeup_s(self) -> float:
        """When a borrower under reclaim has used its minimum run time."""
        return self.reclaimable_s

    def wake(self) -> None:
        """Forget that moment; a job that is refused again sets the next."""
        self.reclaimable_s = math.inf

    def _charge(self, live: LiveJob, kind: DeviceType, milli: int) -> None:
        job = live.job
        for name, account in self.accounts.line(job.tenant):
            if job.user:
                self.held_by_user[name, job.user] = self.held_by_user.get((name, job.user), 0) + milli
            if live.standing > OPPORTUNISTIC:
                account.take(kind, milli)
                note = self._usage.resume if self._is_adopting else self._usage.change
                note(name, milli / WHOLE, self._now_s)

    @property
    def _now_s(self) -> float:
        return 0.0 if self._state is None else self._state.now_s

    # -- what the allocator asks -----------------------------------------------------------------

    @property
    def has_one_type(self) -> bool:
        """Whether all devices are of one type."""
        return len(self._types) == 1

    def kinds(self, job: Job) -> list[DeviceType]:
        """Device types that a job accepts, best first."""
        roles = [role for role in job.roles if role.device_milli]
        named = next((role.device_types for role in roles if role.device_types), ())
        return [kind for kind in named or self._types if kind in self._types]

    def may_hold(self, live: LiveJob, kind: DeviceType) -> bool:
        """Whether a job keeps within all limits; one that was admitted before a limit was set is exempt."""
        line = self.accounts.line(live.job.tenant)
        return live.demoted or all(account.under_limit(kind, live.job.gpu_milli) for _, account in line)

    def limit_below(self, job: Job) -> tuple[str, int] | None:
        """The limit that is smaller than a job by itself, if there is one: its name in the file, and its value."""
        for name, account in self.accounts.line(job.tenant):
            if account.share.per_user is not None and job.user and job.gpu_milli > account.share.per_user * WHOLE:
                return f"tenants.{name}.per_user", account.share.per_user
            kinds = self.kinds(job)
            if kinds and not any(account.within_limit(kind, job.gpu_milli) for kind in kinds):
                return f"tenants.{name}.limit", min(account.share.limit.values())
        return None

    def own_share(self, live: LiveJob) -> OwnShare | None:
        """The share that lacks least of those that are large enough for a job; None if it can only borrow."""
        need = live.job.gpu_milli
        if live.standing == OPPORTUNISTIC or not need:
            return None
        found = [
            OwnShare(need - (account.owned[key] * WHOLE - account.held.get(key, 0)), kind, name)
            for kind in self.kinds(live.job)
            for name, account in self.accounts.line(live.job.tenant)
            for key in (kind, ANY_TYPE)
            if account.owned.get(key, 0) * WHOLE >= need
        ]
        return min(found, key=lambda share: share.lacks_milli, default=None)

    def is_within(self, live: LiveJob, owner: TenantId) -> bool:
        """Whether a job belongs to a tenant, or to one within it."""
        return any(name == owner for name, _ in self.accounts.line(live.job.tenant))

    def lately(self, tenant: TenantId) -> float:
        """Decayed device-seconds that a tenant has used, per unit of its weight."""
        account = self.accounts.get(tenant)
        return math.inf if account is None else self._usage.of(tenant, self._now_s) / account.share.weight

    def has_run_minimum(self, live: LiveJob, now_s: float) -> bool:
        """Whether a holder has used its minimum run time."""
        return now_s - live.since_s >= self.plan.min_run_s

    def protected(self, kind: DeviceType | None, now_s: float) -> list[tuple[float, LiveJob]]:
        """Holders of a type, or of any, within their minimum run time, each with its end."""
        return [
            (live.since_s + self.plan.min_run_s, live)
            for live, at in self.holders.items()
            if kind in (None, at) and live.since_s + self.plan.min_run_s > now_s
        ]
