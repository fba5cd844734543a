"""What tenants hold of their shares: one account each, and one for every tenant above."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rota.core.model.job import WHOLE, DeviceType, TenantId
from rota.core.model.tenants import ANY_TYPE, Share, TenantPlan


@dataclass(slots=True)
class Account:
    """What a tenant and all tenants below it hold with their shares, in thousandths by type."""

    share: Share
    owned: dict[DeviceType, int]
    held: dict[DeviceType, int] = field(default_factory=dict)

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

    def within_limit(self, kind: DeviceType, milli: int) -> bool:
        """Whether so many devices are within what it may ever hold, if it held nothing else."""
        limit = self.share.limit
        return all(name not in limit or milli <= limit[name] * WHOLE for name in (kind, ANY_TYPE))

    def lent_to(self, kind: DeviceType) -> int:
        """How many thousandths it holds beyond what it owns; negative where it holds less."""
        amounts = [self.held.get(key, 0) - self.owned[key] * WHOLE for key in (kind, ANY_TYPE) if key in self.owned]
        return min(amounts, default=self.held.get(kind, 0))

    def take(self, kind: DeviceType, milli: int) -> None:
        """It holds so many thousandths more."""
        for name in (kind, ANY_TYPE):
            self.held[name] = self.held.get(name, 0) + milli


class Accounts(dict[TenantId, Account]):
    """The accounts of a plan, all empty."""

    def __init__(self, plan: TenantPlan) -> None:
        super().__init__({name: Account(share, _owned(plan, name)) for name, share in plan.shares.items()})
        self.children: dict[TenantId, list[TenantId]] = {name: [] for name in plan.shares}
        """The tenants that each contains."""
        for name, share in plan.shares.items():
            if share.parent is not None:
                self.children[share.parent].append(name)

    def line(self, tenant: TenantId) -> Iterator[tuple[TenantId, Account]]:
        """A tenant's account and those above it, nearest first."""
        name: TenantId | None = tenant
        while name is not None and name in self:
            yield name, self[name]
            name = self[name].share.parent


class Lending:
    """What tenants hold of a type beyond their own, reduced as one job after the other is reclaimed from."""

    def __init__(self, accounts: Accounts, kind: DeviceType) -> None:
        self._accounts = accounts
        self._lent = {name: account.lent_to(kind) for name, account in accounts.items()}

    @property
    def is_any(self) -> bool:
        """Whether any tenant holds more than its own, or of its children's guarantees."""
        return any(amount > 0 or self._beside_children(name) > 0 for name, amount in self._lent.items())

    def give_back(self, tenant: TenantId, owner: TenantId, milli: int) -> bool:
        """Return whether `owner` may reclaim what a job of `tenant` holds; if so, its tenants hold less from now on.

        It may if the job's tenants hold more than their own at every level up to the one that contains both: one that
        uses what its own parent left idle takes nothing from others. Tenants within `owner` have the same right.
        """
        line = [name for name, _ in self._accounts.line(tenant)]
        if owner in line:
            return False
        above = dict(self._accounts.line(owner))
        apart = [name for name in line if name not in above]
        if any(self._lent[name] <= 0 for name in apart) or (line and not apart and self._beside_children(tenant) <= 0):
            return False
        for name in line:
            self._lent[name] -= milli
        return True

    def _beside_children(self, tenant: TenantId) -> int:
        """What a tenant's own jobs hold beyond what it has not guaranteed to its children."""
        return self._lent[tenant] - sum(self._lent[name] for name in self._accounts.children[tenant])


def _owned(plan: TenantPlan, name: TenantId) -> dict[DeviceType, int]:
    """What a tenant is guaranteed; where that is not stated, the sum of the guarantees within it."""
    if plan.shares[name].guaranteed:
        return dict(plan.shares[name].guaranteed)
    owned: dict[DeviceType, int] = {}
    for child, share in plan.shares.items():
        if share.parent == name:
            for kind, amount in _owned(plan, child).items():
                owned[kind] = owned.get(kind, 0) + amount
    return owned
