"""Chance that is the same for the same question: numbers that depend on the run and a name, not on the order of draws.

Two forecasts that differ in one thing then differ by that thing alone (common random numbers).
"""

from __future__ import annotations

import math
import random
from hashlib import blake2b
from statistics import NormalDist

_NORMAL = NormalDist()
_SCALE = 1.0 / 2**32
_EDGE = 1e-9


def uniforms(run: int, name: str) -> tuple[float, float]:
    """Return two independent numbers between 0 and 1 for a name in a run."""
    digest = int.from_bytes(blake2b(f"{run}:{name}".encode(), digest_size=8).digest(), "big")
    return ((digest >> 32) + 0.5) * _SCALE, ((digest & 0xFFFFFFFF) + 0.5) * _SCALE


def generator(run: int, name: str) -> random.Random:
    """Return a generator of its own for a name in a run."""
    return random.Random(f"{run}:{name}")


def normal_at(share: float) -> float:
    """Return the quantile of the standard normal distribution."""
    return _NORMAL.inv_cdf(min(max(share, _EDGE), 1.0 - _EDGE))


def beyond(z: float) -> float:
    """Return the probability that a standard normal number exceeds `z`."""
    return 0.5 * math.erfc(z / math.sqrt(2.0))


def normal_beyond(z: float, share: float) -> float:
    """Return a quantile of a standard normal number that is known to exceed `z`."""
    left = beyond(z)
    if left < _EDGE:  # far out in the tail it falls like an exponential
        return z - math.log(max(1.0 - share, _EDGE)) / max(z, 1.0)
    return max(normal_at(1.0 - left * (1.0 - share)), z)
