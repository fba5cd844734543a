"""Calibration of ranges: each end is moved until the right share of moments lies beyond it.

A range is stretched around its median by a factor below and one above. Each factor follows the quantile of what was
seen: a moment beyond the stretched end raises it, a moment within lowers it a little, in the ratio of the two shares
(online conformal prediction: Gibbs and Candes, 2021; with decaying steps: Angelopoulos, Barber and Bates, 2024). The
long-run share of moments beyond an end is therefore the wanted one for any sequence, under drift too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rota.store.forecasts import StoredForecast, StoredRange

BEYOND = 0.05
"""The wanted share of moments beyond each end of a 90% range."""
LEAST_STEP = 0.3
"""The step of a factor's logarithm after many moments: how quickly it follows a drift."""
FIRST_STEP = 0.5
LEAST, MOST = 0.2, 100.0
"""Bounds of a factor."""
MARGIN_S = 0.1
MARGIN_SHARE = 0.02
"""The margin that a range of no width gets by a factor of two: seconds, and a share of the time to its median."""
EPSILON = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class StretchedRange:
    """A range as it is given: None where an end is beyond the horizon."""

    low_s: float | None
    high_s: float | None


class EndFactor:
    """The factor of one end of a range. Deterministic: it follows from the scores in their order."""

    def __init__(self) -> None:
        self.log = 0.0
        self.seen = 0
        self.beyond = 0

    @property
    def value(self) -> float:
        """The factor."""
        return math.exp(self.log)

    def see(self, score: float) -> None:
        """Take the score of one moment: the factor that would just have held it."""
        is_beyond = score > self.value
        self.seen += 1
        self.beyond += is_beyond
        step = max(LEAST_STEP, FIRST_STEP / math.sqrt(self.seen))
        moved = self.log + step * ((1.0 if is_beyond else 0.0) - BEYOND)
        self.log = min(max(moved, math.log(LEAST)), math.log(MOST))


class RangeCalibration:
    """The factors of both ends, for one kind of moment."""

    def __init__(self) -> None:
        self.below = EndFactor()
        self.above = EndFactor()

    def see(self, made_s: float, predicted: StoredRange, actual_s: float) -> None:
        """Compare a predicted range, as it was computed, with what happened."""
        middle_s, margin_s = predicted.median_s, margin_of(made_s, predicted.median_s)
        self.below.see(score_of(middle_s - actual_s, _width(middle_s - predicted.low_s), margin_s))
        if predicted.high_s is not None:
            self.above.see(score_of(actual_s - middle_s, _width(predicted.high_s - middle_s), margin_s))

    def stretch(self, made_s: float, median_s: float, low_s: float | None, high_s: float | None) -> StretchedRange:
        """Return the range to give; it never begins before it is made."""
        margin_s = margin_of(made_s, median_s)
        below_s = stretched(_width(median_s - (made_s if low_s is None else low_s)), self.below.value, margin_s)
        floor_s = made_s if low_s is None else min(made_s, low_s)
        return StretchedRange(
            low_s=max(median_s - below_s, floor_s),
            high_s=None
            if high_s is None
            else median_s + stretched(_width(high_s - median_s), self.above.value, margin_s),
        )


def _width(width_s: float) -> float:
    return max(width_s, 0.0)


def margin_of(made_s: float, median_s: float) -> float:
    """Return the unit by which a range of no width is widened."""
    return MARGIN_S + MARGIN_SHARE * max(median_s - made_s, 0.0)


def stretched(width_s: float, factor: float, margin_s: float) -> float:
    """Return half a range, stretched: in proportion, and beyond 1 with a margin, so that one of no width grows too."""
    if factor <= 1.0:
        return width_s * factor
    return width_s + (factor - 1.0) * (width_s + margin_s)


def score_of(beyond_s: float, width_s: float, margin_s: float) -> float:
    """Return the factor at which `stretched` just reaches a distance from the median."""
    if beyond_s <= EPSILON:
        return 0.0
    if beyond_s <= width_s:
        return beyond_s / width_s
    return 1.0 + (beyond_s - width_s) / (width_s + margin_s)


class Calibration:
    """The calibrations of a manager's forecasts: of starts and of ends, by policy.

    It is rebuilt from the scored forecasts at a restart, so that the database holds all of it.
    """

    def __init__(self, scored: Iterable[StoredForecast] = ()) -> None:
        self._starts: dict[str, RangeCalibration] = {}
        self._ends: dict[str, RangeCalibration] = {}
        outcomes = []
        for each in scored:
            if each.started_s is not None:
                outcomes.append((each.started_s, 0, each))
            if each.state == "succeeded" and each.ended_s is not None:
                outcomes.append((each.ended_s, 1, each))
        for _, is_end, each in sorted(outcomes, key=lambda outcome: outcome[:2]):
            if is_end:
                self.see_end(each)
            else:
                self.see_start(each)

    def starts(self, policy: str) -> RangeCalibration:
        """Return the calibration of starts under a policy."""
        return self._starts.setdefault(policy, RangeCalibration())

    def ends(self, policy: str) -> RangeCalibration:
        """Return the calibration of ends under a policy."""
        return self._ends.setdefault(policy, RangeCalibration())

    def see_start(self, kept: StoredForecast) -> None:
        """Take the start of a job that was forecast; one that had started before says nothing."""
        if kept.start is not None and kept.started_s is not None and kept.started_s >= kept.made_s:
            self.starts(kept.policy).see(kept.made_s, kept.start, kept.started_s)

    def see_end(self, kept: StoredForecast) -> None:
        """Take the end of a job that was forecast; only a job that succeeded ran as long as it would."""
        if kept.end is not None and kept.ended_s is not None and kept.state == "succeeded":
            self.ends(kept.policy).see(kept.made_s, kept.end, kept.ended_s)
