"""What devices cost and consume, by type: the basis of metrics and policies that count money or energy."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

PRICES = {"v100": 2.48, "p100": 1.46, "k80": 0.45, "a100": 2.93, "h100": 11.06, "t4": 0.35}
"""Dollars an hour of one device on demand (Google Cloud, us-central1); others take `OTHER_PRICE`."""
OTHER_PRICE = 1.0
BOARD_W = {"v100": 300.0, "p100": 250.0, "k80": 150.0, "a100": 400.0, "h100": 700.0, "t4": 70.0, "a10": 150.0}
"""The board power of one device by its data sheet (of a K80, half of the board); others take `OTHER_W`."""
OTHER_W = 300.0
IDLE = 0.15
"""The fraction of its board power that a free device takes: an assumption."""
_WORD = re.compile("[a-z]+[0-9]+")


def known_type(kind: str, known: Mapping[str, float]) -> str | None:
    """The type of a table that a name means, as clusters and traces write it: `V100M32` and `Tesla-V100` are v100."""
    name = kind.lower()
    if name in known:
        return name
    return next((word for word in _WORD.findall(name) if word in known), None)


def price(kind: str) -> float | None:
    """Dollars an hour of a device; None for a type without a price."""
    found = known_type(kind, PRICES)
    return None if found is None else PRICES[found]


def board_w(kind: str) -> float | None:
    """The board power of a device; None for a type whose power is not known."""
    found = known_type(kind, BOARD_W)
    return None if found is None else BOARD_W[found]


def assumed_facts(kinds: Collection[str]) -> str | None:
    """A sentence about the types whose price or power is assumed; None if all are known."""
    dear = [kind for kind in kinds if price(kind) is None]
    strong = [kind for kind in kinds if board_w(kind) is None]
    parts = []
    if strong:
        parts.append(f"energy assumes {OTHER_W:g} W for device type {', '.join(strong)}")
    if dear:
        parts.append(f"cost assumes {OTHER_PRICE:g} USD an hour for device type {', '.join(dear)}")
    return "; ".join(parts) if parts else None
