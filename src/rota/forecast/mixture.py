"""The distribution of a run time's logarithm: what was seen around a centre, and how uncertain that centre is."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from rota.forecast.chance import beyond, normal_at, normal_beyond, uniforms

COMMON = 0.08
"""Standard deviation of the logarithm of an error that all jobs of a run share: nothing is quite as it was."""

MOST_KNOTS = 64
"""Points by which a distribution is written as one of normal scores."""
LEAST_APART = 1e-6


@dataclass(frozen=True, slots=True)
class EstimateDoubt:
    """How much shorter a job is expected to run than it declares, if it declares more than is usual."""

    usual: float
    doubt: float
    reach: float

    def shift(self, declared: float) -> float:
        """Return what to add to the centre."""
        return -self.doubt * min(max(declared - self.usual, -self.reach), self.reach)


@dataclass(frozen=True, slots=True)
class Mixture:
    """Normal distributions of equal width around a centre that is itself uncertain."""

    key: str
    centre: float
    unsure: float
    offsets: list[float]
    total: list[float]
    width: float
    beliefs: tuple[EstimateDoubt, ...]
    within: float = 1.0
    """The standard deviation in the group."""
    _knots: list[tuple[float, float]] = field(default_factory=list)
    """Deviations and their normal scores, filled when they are first asked for."""

    def middle(self, declared: float, off: float) -> float:
        """Return the centre of jobs that declare so much, in a run in which all are off by so much."""
        centre = self.centre + off
        for each in self.beliefs:
            centre += each.shift(declared)
        return centre

    def off(self, run: int) -> float:
        """Return by how much the centre is off in a run."""
        return COMMON * normal_at(uniforms(run, "common")[0]) + self.unsure * normal_at(uniforms(run, self.key)[0])

    def draw(self, middle: float, share: float, place: float) -> float:
        """Return the logarithm at two uniform numbers: one chooses the part, one the place in it."""
        at = min(bisect_right(self.total, share * self.total[-1]), len(self.offsets) - 1)
        return middle + self.offsets[at] + self.width * normal_at(place)

    def draw_beyond(self, middle: float, least: float, share: float, place: float) -> float:
        """Return the same, known to exceed `least`; the centre is the likelier the better it agrees with that."""
        lower = [0.0, *self.total[:-1]]
        weights = [
            (upper - below) * beyond((least - middle - offset) / self.width)
            for below, upper, offset in zip(lower, self.total, self.offsets, strict=True)
        ]
        total = list(accumulate(weights))
        if not total[-1] > 1e-12:  # longer than all that was seen: as long again, as likely as not
            return least - math.log(max(share, 1e-6))
        at = min(bisect_right(total, share * total[-1]), len(self.offsets) - 1)
        centre = middle + self.offsets[at]
        return centre + self.width * normal_beyond((least - centre) / self.width, place)

    def score(self, deviation: float) -> float:
        """Return where a deviation from the centre lies in the distribution, as that of a standard normal number."""
        knots = self._scored()
        at = bisect_right(knots, (deviation, math.inf))
        if at in (0, len(knots)):
            last, z = knots[0 if at == 0 else -1]
            return z + (deviation - last) / self.within
        (low, low_z), (high, high_z) = knots[at - 1], knots[at]
        return low_z + (high_z - low_z) * (deviation - low) / (high - low)

    def deviation(self, score: float) -> float:
        """Return the deviation from the centre with a score; beyond what was seen as in a normal distribution."""
        knots = self._scored()
        at = bisect_right(knots, score, key=lambda knot: knot[1])
        if at in (0, len(knots)):
            last, z = knots[0 if at == 0 else -1]
            return last + (score - z) * self.within
        (low, low_z), (high, high_z) = knots[at - 1], knots[at]
        return low + (high - low) * (score - low_z) / (high_z - low_z)

    def _scored(self) -> list[tuple[float, float]]:
        if not self._knots:
            weights = [upper - lower for lower, upper in pairwise((0.0, *self.total))]
            ordered = sorted(zip(self.offsets, weights, strict=True))
            every = max(len(ordered) / MOST_KNOTS, 1.0)
            below, due = 0.0, 0.0
            for number, (offset, weight) in enumerate(ordered):
                is_apart = not self._knots or offset - self._knots[-1][0] > LEAST_APART
                if is_apart and (number >= due or number == len(ordered) - 1):
                    self._knots.append((offset, normal_at((below + 0.5 * weight) / self.total[-1])))
                    due = number + every
                below += weight
        return self._knots
