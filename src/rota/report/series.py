"""Values over time, and how to thin them without changing what they show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A step function of time: `values[i]` from `times_s[i]` on."""

    times_s: Floats
    values: Floats

    def at(self, time_s: float) -> float:
        """The value at a moment; 0 before the first."""
        index = int(np.searchsorted(self.times_s, time_s, side="right")) - 1
        return float(self.values[index]) if index >= 0 else 0.0

    def mean(self) -> float:
        """The mean over time from the first moment to the last."""
        span_s = float(self.times_s[-1] - self.times_s[0]) if self.times_s.size else 0.0
        if span_s <= 0:
            return 0.0
        return float((self.values[:-1] * np.diff(self.times_s)).sum()) / span_s


def from_changes(times_s: Floats, changes: Floats) -> Series:
    """The running sum of changes, with one point per moment, after all changes of that moment."""
    if not times_s.size:
        return Series(times_s=times_s, values=changes)
    order = np.argsort(times_s, kind="stable")
    times_s = times_s[order]
    values = np.cumsum(changes[order])
    last = np.append(times_s[1:] != times_s[:-1], True)
    return Series(times_s=times_s[last], values=values[last])


def from_intervals(start_s: Floats, end_s: Floats, weights: Floats | None = None) -> Series:
    """The number of open intervals over time, or the sum of their weights."""
    if weights is None:
        weights = np.ones_like(start_s)
    return from_changes(np.concatenate([start_s, end_s]), np.concatenate([weights, -weights]))


def thin(series: Series, limit: int) -> Series:
    """At most `limit` points: the series itself, or its means over as many equal intervals."""
    if series.times_s.size <= limit:
        return series
    edges = np.linspace(series.times_s[0], series.times_s[-1], limit)
    return Series(times_s=edges, values=np.append(means(series, edges), series.values[-1]))


def means(series: Series, edges_s: Floats) -> Floats:
    """The means over the intervals between edges; 0 before the series begins and after its last change."""
    times_s = series.times_s
    area = np.concatenate([[0.0], np.cumsum(series.values[:-1] * np.diff(times_s))])
    mean: Floats = np.diff(np.interp(edges_s, times_s, area)) / np.diff(edges_s)
    return mean


def cdf(values: Floats, limit: int) -> tuple[Floats, Floats]:
    """Sorted values and their cumulative share; at most `limit` points, both ends among them."""
    ordered = np.sort(values)
    picks = np.unique(np.linspace(0, ordered.size - 1, min(limit, ordered.size)).round().astype(np.intp))
    return ordered[picks], (picks + 1) / max(ordered.size, 1)
