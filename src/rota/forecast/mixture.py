"""The distribution of a run time's logarithm: what was seen around a centre, and how uncertain that centre is."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

from rota.forecast.chance import beyond, normal_at, normal_beyond, uniforms

IMPUTED = -1
"""The run by whose numbers the lengths of running jobs are drawn, around the centres as they are expected."""
COMMON = 0.08
"""Standard deviation of the logarithm of an error that all jobs of a run share: nothing is quite as it was."""


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

    def middle(self, declared: float, off: float) -> float:
        """Return the centre of jobs that declare so much, in a run in which all are off by so much."""
        centre = self.centre + off
        for each in self.beliefs:
            centre += each.shift(declared)
        return centre

    def off(self, run: int) -> float:
        """Return by how much the centre is off in a run."""
        if run == IMPUTED:
            return 0.0
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
