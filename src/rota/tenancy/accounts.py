"""What tenants hold of their shares: one account each, and one for every tenant above."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rota.core.model import WHOLE, DeviceType, TenantId
from rota.core.tenants import ANY_TYPE, Share, TenantPlan


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

    def line(self, tenant: TenantId) -> Iterator[tuple[TenantId, Account]]:
        """A tenant's account and those above it, nearest first."""
        name: TenantId | None = tenant
        while name is not None and name in self:
            yield name, self[name]
            name = self[name].share.parent


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
