"""Trading of device generations between owners, so that everybody gains and nobody loses (Chaudhary et al., 2020).

Everybody starts with a fair share of each type. Whoever gains least from the faster type sells to whoever gains most,
for devices of the slower type; the price lies between what the two think it worth, at the next-highest offer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_LEAST = 1e-9
"""Shares and gains below this are rounding."""


@dataclass(frozen=True, slots=True)
class Trade:
    """So many fast devices go from seller to buyer, for `price` slow ones each."""

    seller: str
    buyer: str
    fast: float
    price: float


def trade(
    fast: dict[str, float], slow: dict[str, float], speedup: Mapping[str, float], room: dict[str, float]
) -> list[Trade]:
    """Trade between two types until nobody gains any more; the shares are changed, and the trades returned.

    `speedup` is by how much an owner's jobs run faster on a fast device. An owner that names more than the truth pays
    no less, as the price is what the next one would pay. `room` is how many devices more an owner has jobs for: nobody
    sells for devices that it could not use.
    """
    trades: list[Trade] = []
    for _ in range(4 * len(speedup)):
        sellers = [owner for owner in speedup if fast.get(owner, 0.0) > _LEAST and room.get(owner, 0.0) > _LEAST]
        buyers = [owner for owner in speedup if slow.get(owner, 0.0) > _LEAST]
        if not sellers or not buyers:
            break
        seller = min(sellers, key=lambda owner: (speedup[owner], owner))
        buyer = max(buyers, key=lambda owner: (speedup[owner], owner))
        if speedup[buyer] <= speedup[seller] * (1 + _LEAST):
            break
        others = (speedup[owner] for owner in speedup if owner != buyer and speedup[owner] <= speedup[buyer])
        price = max([speedup[seller], *others])
        amount = min(fast[seller], slow[buyer] / price)
        if price > 1:
            amount = min(amount, room[seller] / (price - 1))
        for owner, sign in ((seller, -1), (buyer, 1)):
            fast[owner] = fast.get(owner, 0.0) + sign * amount
            slow[owner] = slow.get(owner, 0.0) - sign * amount * price
            room[owner] = room.get(owner, 0.0) + sign * amount * (price - 1)
        trades.append(Trade(seller, buyer, amount, price))
    return trades


def max_min(devices: float, weights: Mapping[str, float], demand: Mapping[str, float]) -> dict[str, float]:
    """A fair part for everybody by weight, but to nobody more than it has jobs for."""
    parts: dict[str, float] = {}
    total = sum(weights[owner] for owner in demand)
    for owner in sorted(demand, key=lambda owner: (demand[owner] / weights[owner], owner)):
        parts[owner] = min(demand[owner], devices * weights[owner] / max(total, _LEAST))
        devices -= parts[owner]
        total -= weights[owner]
    return parts
