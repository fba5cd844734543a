"""Trading of device generations between owners, so that both sides gain (Chaudhary et al., 2020).

Every owner starts with a fair share of each type. The owner that gains least from the faster type sells to the one that
gains most, for devices of the slower type; the price lies between the two valuations, at the next-highest offer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_LEAST = 1e-9
"""Shares and gains below this are rounding."""


@dataclass(frozen=True, slots=True)
class Trade:
    """A transfer of `fast` fast devices from seller to buyer, for `price` slow ones each."""

    seller: str
    buyer: str
    fast: float
    price: float


def trade(
    fast: dict[str, float], slow: dict[str, float], speedup: Mapping[str, float], room: dict[str, float]
) -> list[Trade]:
    """Trade between two types until no owner gains; change the shares and return the trades.

    `speedup` is how much faster an owner's jobs run on a fast device. Overstating it does not lower the price, which is
    what the next owner would pay. `room` is how many more devices an owner has jobs for: no owner sells for devices
    that it could not use.
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
    """Max-min fair shares by weight, none above the owner's demand."""
    parts: dict[str, float] = {}
    total = sum(weights[owner] for owner in demand)
    for owner in sorted(demand, key=lambda owner: (demand[owner] / weights[owner], owner)):
        parts[owner] = min(demand[owner], devices * weights[owner] / max(total, _LEAST))
        devices -= parts[owner]
        total -= weights[owner]
    return parts
