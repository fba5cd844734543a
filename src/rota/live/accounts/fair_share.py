"""The fair-share standing of tenants and their users, as `sshare` shows it: shares, decayed usage, and the factor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rota.store.accounts.usage import HOUR_S, UsageRow

HALF_LIFE_S = 7 * 86400.0
SPAN_HALF_LIVES = 12
"""Older usage counts less than a four-thousandth, and is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FairShareStanding:
    """How a tenant, or a user of one, stands."""

    tenant: str
    user: str
    """Empty for the tenant itself."""
    shares: float
    norm_shares: float
    """Its part of all shares; a user's is its part of the tenant's."""
    raw_usage_s: float
    """Device-seconds, each counted half after every half-life."""
    usage: float
    """Its part of all usage."""
    factor: float
    """1 is unused, 0.5 is exactly its share, 0 is far above it."""


def standings(
    rows: Iterable[UsageRow],
    now_s: float,
    weights: Mapping[str, float],
    half_life_s: float = HALF_LIFE_S,
) -> list[FairShareStanding]:
    """Return the standing of each tenant with its users; `weights` are those of tenants, 1 for others."""
    used: dict[str, dict[str, float]] = {name: {} for name in weights}
    for row in rows:
        users = used.setdefault(row.tenant, {})
        age_s = max(now_s - row.hour_s - HOUR_S / 2, 0.0)
        users[row.owner] = users.get(row.owner, 0.0) + row.device_s * 0.5 ** (age_s / half_life_s)
    total = sum(sum(users.values()) for users in used.values())
    shares = sum(weights.get(name, 1.0) for name in used)
    found: list[FairShareStanding] = []
    for tenant, users in sorted(used.items()):
        weight = weights.get(tenant, 1.0)
        norm = weight / shares if shares else 0.0
        found.append(_standing(tenant, "", weight, norm, sum(users.values()), total))
        for user, amount in sorted(users.items()):
            found.append(_standing(tenant, user, 1.0, norm / len(users), amount, total))
    return found


def _standing(tenant: str, user: str, shares: float, norm: float, used_s: float, total_s: float) -> FairShareStanding:
    usage = used_s / total_s if total_s else 0.0
    factor = 2.0 ** (-usage / norm) if norm else 0.0
    return FairShareStanding(
        tenant=tenant, user=user, shares=shares, norm_shares=norm, raw_usage_s=used_s, usage=usage, factor=factor
    )
