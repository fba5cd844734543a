"""The partial allocation auction for gangs (Cole, Gkatzelis and Goel, EC 2013): who wins, and what it costs others.

Bidders want a number of devices each, all or none. Winners are those whose gains add up to most; a winner keeps
only so much of its prize as its presence leaves to the others, which makes it pointless to lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rota.mechanisms.arrays import Floats

_NEVER = -np.inf


@dataclass(frozen=True, slots=True)
class Award:
    """A bidder that won, and the part of its prize that it may keep."""

    bidder: int
    keeps: float


def auction(devices: int, sizes: Sequence[int], gains: Sequence[float]) -> list[Award]:
    """The winners in order of bidding. Gains are logarithms: by how much each bidder would be better off.

    Exact, by dynamic programming: the best gain of the first bidders and of the last ones for every number of
    devices, so that the best outcome without one bidder is the best way to divide the devices between the two sides.
    """
    first = [np.zeros(devices + 1)]
    for size, gain in zip(sizes, gains, strict=True):
        first.append(_with(first[-1], size, gain))
    last = [np.zeros(devices + 1)]
    for size, gain in zip(reversed(sizes), reversed(gains), strict=True):
        last.append(_with(last[-1], size, gain))
    total = float(first[-1][devices])
    awards = []
    left = devices
    for bidder in range(len(sizes) - 1, -1, -1):
        if first[bidder + 1][left] <= first[bidder][left]:
            continue
        left -= sizes[bidder]
        without = float((first[bidder] + last[len(sizes) - 1 - bidder][::-1]).max())
        awards.append(Award(bidder, float(np.exp(min(total - gains[bidder] - without, 0.0)))))
    return awards[::-1]


def _with(best: Floats, size: int, gain: float) -> Floats:
    """The best gain for every number of devices when one more bidder may win."""
    if size >= len(best) or gain <= 0:
        return best
    more = best.copy()
    np.maximum(more[size:], best[: len(best) - size] + gain, out=more[size:])
    return more
