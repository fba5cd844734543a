"""Scores of forecasts: how many ranges held what happened, and how far the median was off, by groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from rota.store.forecasts import StoredForecast, StoredRange

LEAST_WAIT_S = 1e-3
HORIZONS: tuple[tuple[float, str], ...] = (
    (10.0, "below 10 s"),
    (60.0, "10 s to 1 min"),
    (600.0, "1 to 10 min"),
    (3600.0, "10 min to 1 h"),
    (6 * 3600.0, "1 to 6 h"),
    (86400.0, "6 h to 1 d"),
    (math.inf, "above 1 d"),
)
"""Time from the forecast to the predicted moment: upper bounds and names."""
SIZES: tuple[tuple[float, str], ...] = (
    (0.0, "no GPU"),
    (1.0, "up to 1 GPU"),
    (8.0, "2 to 8 GPUs"),
    (math.inf, "more than 8 GPUs"),
)
BY_HOUR_S = 2 * 86400.0
"""Periods up to this long are split by hours, longer ones by days."""


class ScoredMoment(Enum):
    """The moment that a range predicts."""

    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastScore:
    """One forecast of one moment, compared with what happened."""

    kept: StoredForecast
    predicted: StoredRange
    moment: ScoredMoment
    actual_s: float | None
    """None: it is overdue, and known only to be later than its range."""

    @property
    def is_covered(self) -> bool:
        """Whether the range as it was given held the moment."""
        return self.actual_s is not None and self._within(self.predicted.given_low_s, self.predicted.given_high_s)

    @property
    def was_covered_raw(self) -> bool:
        """Whether the range as it was computed, before calibration, held the moment."""
        return self.actual_s is not None and self._within(self.predicted.low_s, self.predicted.high_s)

    def _within(self, low_s: float, high_s: float | None) -> bool:
        assert self.actual_s is not None
        return low_s <= self.actual_s and (high_s is None or self.actual_s <= high_s)

    @property
    def error(self) -> float | None:
        """The distance of the median from what happened, as a part of the time from the forecast to that moment."""
        if self.actual_s is None:
            return None
        return abs(self.predicted.median_s - self.actual_s) / max(self.actual_s - self.kept.made_s, LEAST_WAIT_S)

    @property
    def lateness(self) -> float | None:
        """By which part of the predicted time the moment came later than the median; negative if sooner."""
        if self.actual_s is None:
            return None
        return (self.actual_s - self.predicted.median_s) / max(self.actual_s - self.kept.made_s, LEAST_WAIT_S)

    @property
    def width(self) -> float | None:
        """The width of the range as given, as a part of the time to its median; None without an upper end."""
        if self.predicted.given_high_s is None:
            return None
        span_s = self.predicted.given_high_s - self.predicted.given_low_s
        return span_s / max(self.predicted.median_s - self.kept.made_s, LEAST_WAIT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthRow:
    """The scores of one group of forecasts."""

    group: str
    forecasts: int
    scored: int
    overdue: int
    """Forecasts of moments that are later than their range and have not come yet; counted as not covered."""
    coverage: float | None
    coverage_uncalibrated: float | None
    median_error: float | None
    p90_error: float | None
    lateness: float | None
    """The median lateness: above 0 where jobs start later than predicted."""
    width: float | None


Key = Callable[[ForecastScore], str]


def score(kept: StoredForecast, moment: ScoredMoment, now_s: float) -> ForecastScore | None:
    """Return the score of a forecast; None while nothing can be said, or if the job never came to that moment."""
    predicted = kept.start if moment is ScoredMoment.START else kept.end
    if predicted is None:
        return None
    actual_s = kept.started_s if moment is ScoredMoment.START else kept.ended_s
    if moment is ScoredMoment.END and kept.state not in (None, "succeeded"):
        return None
    if actual_s is None:
        is_late = kept.state is None and predicted.given_high_s is not None and now_s > predicted.given_high_s
        return ForecastScore(kept=kept, predicted=predicted, moment=moment, actual_s=None) if is_late else None
    if actual_s < kept.made_s:
        return None
    return ForecastScore(kept=kept, predicted=predicted, moment=moment, actual_s=actual_s)


def by_policy(found: ForecastScore) -> str:
    """The policy under which it was made."""
    return found.kept.policy


def by_kind(found: ForecastScore) -> str:
    """What the forecast rests on."""
    return found.kept.basis


def by_cause(found: ForecastScore) -> str:
    """Whether it was made at submission or asked for."""
    return found.kept.cause


def by_tenant(found: ForecastScore) -> str:
    """The job's tenant."""
    return found.kept.tenant


def by_horizon(found: ForecastScore) -> str:
    """How far ahead the predicted moment was."""
    ahead_s = found.predicted.median_s - found.kept.made_s
    return next(name for limit_s, name in HORIZONS if ahead_s <= limit_s)


def by_size(found: ForecastScore) -> str:
    """How many GPUs the job asks for."""
    return next(name for limit, name in SIZES if found.kept.gpus <= limit)


def by_hour(found: ForecastScore) -> str:
    """The hour in which it was made."""
    return datetime.fromtimestamp(found.kept.made_s, UTC).strftime("%Y-%m-%dT%H:00Z")


def by_day(found: ForecastScore) -> str:
    """The day on which it was made."""
    return datetime.fromtimestamp(found.kept.made_s, UTC).strftime("%Y-%m-%d")


KEYS: dict[str, Key] = {
    "policy": by_policy,
    "horizon": by_horizon,
    "kind": by_kind,
    "size": by_size,
    "cause": by_cause,
    "tenant": by_tenant,
}
_ORDERED = {name: rank for rank, (_, name) in enumerate((*HORIZONS, *SIZES))}


def rows_by(scores: Sequence[ForecastScore], key: Key) -> list[TruthRow]:
    """Return a row for each group, in the order of their names."""
    groups: dict[str, list[ForecastScore]] = {}
    for each in scores:
        groups.setdefault(key(each), []).append(each)
    return [summary(name, groups[name]) for name in sorted(groups, key=lambda name: (_ORDERED.get(name, 0), name))]


def over_time(scores: Sequence[ForecastScore], period_s: float) -> list[TruthRow]:
    """Return a row for each hour of a short period, or for each day of a long one."""
    return rows_by(scores, by_hour if period_s <= BY_HOUR_S else by_day)


def summary(name: str, scores: Sequence[ForecastScore]) -> TruthRow:
    """Return the scores of a group as one row."""
    known = [each for each in scores if each.actual_s is not None]
    return TruthRow(
        group=name,
        forecasts=len(scores),
        scored=len(known),
        overdue=len(scores) - len(known),
        coverage=_share(each.is_covered for each in scores),
        coverage_uncalibrated=_share(each.was_covered_raw for each in scores),
        median_error=percentile([each.error for each in known], 0.5),
        p90_error=percentile([each.error for each in known], 0.9),
        lateness=percentile([each.lateness for each in known], 0.5),
        width=percentile([each.width for each in scores], 0.5),
    )


def _share(held: Iterable[bool]) -> float | None:
    found = list(held)
    return sum(found) / len(found) if found else None


def percentile(values: Iterable[float | None], share: float) -> float | None:
    """Return a percentile as `sorted[int(share * n)]`; None of nothing."""
    found = sorted(value for value in values if value is not None)
    return found[min(int(share * len(found)), len(found) - 1)] if found else None
