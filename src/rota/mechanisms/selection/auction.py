"""The partial allocation auction for gangs (Cole, Gkatzelis and Goel, EC 2013).

Each bidder requests a number of devices, all or none. The winners have the largest sum of gains. A winner keeps only
the fraction of its award that corresponds to the loss its presence causes the others, so that false bids do not pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rota.mechanisms.arrays import Floats

_NEVER = -np.inf


@dataclass(frozen=True, slots=True)
class Award:
    """A bidder that won, and the fraction of its award that it may keep."""

    bidder: int
    keeps: float


def auction(devices: int, sizes: Sequence[int], gains: Sequence[float]) -> list[Award]:
    """The winners in order of bidding. A gain is the logarithm of the bidder's improvement.

    Exact, by dynamic programming: the best gain of the first bidders and of the last ones for every number of
    devices, so that the best outcome without one bidder is the best division of the devices between the two sides.
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
    """The best gain for every number of devices with one more bidder."""
    if size >= len(best) or gain <= 0:
        return best
    more = best.copy()
    np.maximum(more[size:], best[: len(best) - size] + gain, out=more[size:])
    return more
