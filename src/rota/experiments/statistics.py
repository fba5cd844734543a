"""Means with intervals, paired differences on common workloads, bootstrap for tails, and ranks across workloads.

A 95% interval of a mean is Student's, over seeds. Policies are compared by their differences on the same workload, as
the variation between workloads is much larger than that between policies. A quantile's interval is a bootstrap in two
stages: seeds are drawn with replacement, then jobs within each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rota.report.series import Floats

CONFIDENCE = 0.95
RESAMPLES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value with the bounds of its 95% interval; bounds are None where there are too few values to have any."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def half_width(self) -> float | None:
        """Half of the width; None without bounds."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    def within(self, least: float, most: float) -> Interval:
        """The same without what no value can be, as Student's bounds are not limited; the value itself stays inside."""
        if self.low is None or self.high is None:
            return self
        low, high = max(self.low, least), min(self.high, most)
        return Interval(value=self.value, low=min(low, self.value), high=max(high, self.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """A policy against the baseline on the same workloads."""

    pairs: int
    difference: Interval
    """Mean of value - baseline's value."""
    ratio: Interval | None
    """Geometric mean of value / baseline's value; None where a value is not above 0."""
    lower: int
    """Pairs in which the value is below the baseline's."""
    p_value: float | None
    """Of Wilcoxon's signed-rank test, two-sided; None with fewer than five pairs that differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankComparison:
    """Mean ranks of policies over workloads (1 is best), by Friedman's test and Nemenyi's critical difference."""

    ranks: Mapping[str, float]
    blocks: int
    p_value: float | None
    critical_difference: float | None
    """Policies whose mean ranks differ by less are not told apart, at 5%."""

    def indistinct(self) -> tuple[tuple[str, ...], ...]:
        """Maximal groups of policies, best first, whose ranks differ by less than the critical difference."""
        if self.critical_difference is None:
            return ()
        order = sorted(self.ranks, key=lambda policy: (self.ranks[policy], policy))
        groups: list[tuple[str, ...]] = []
        for first, policy in enumerate(order):
            near = [
                other for other in order[first:] if self.ranks[other] - self.ranks[policy] < self.critical_difference
            ]
            if len(near) > 1 and not any(set(near) <= set(group) for group in groups):
                groups.append(tuple(near))
        return tuple(groups)


def mean_interval(values: Sequence[float]) -> Interval:
    """The mean and its 95% interval by Student's t."""
    known = np.asarray(values, dtype=np.float64)
    mean = float(known.mean())
    if known.size < 2:
        return Interval(value=mean)
    from scipy import stats

    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, known.size - 1)) * float(known.std(ddof=1)) / math.sqrt(known.size)
    return Interval(value=mean, low=mean - half, high=mean + half)


def tail_interval(samples: Sequence[Floats], q: float, *, seed: int = 0) -> Interval:
    """The mean over seeds of a quantile of jobs, and its 95% bootstrap interval."""
    known = [values[~np.isnan(values)] for values in samples]
    known = [np.sort(values) for values in known if values.size]
    if not known:
        return Interval(value=math.nan)
    value = float(np.mean([np.quantile(values, q) for values in known]))
    if sum(values.size for values in known) < 2:
        return Interval(value=value)
    rng = np.random.default_rng(seed)
    drawn = np.empty(RESAMPLES)
    for index in range(RESAMPLES):
        seeds = rng.integers(0, len(known), len(known))
        drawn[index] = np.mean([_resampled_quantile(known[which], q, rng) for which in seeds])
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(value=value, low=float(low), high=float(high))


def _resampled_quantile(ordered: Floats, q: float, rng: np.random.Generator) -> float:
    """The quantile of a sample with replacement, drawn by its order statistics rather than job by job.

    The k-th smallest of n uniform draws is beta distributed, so that two such draws give the values on both sides.
    """
    n = ordered.size
    at = q * (n - 1)
    below = int(at)
    lower = rng.beta(below + 1, n - below)
    upper = lower + (1 - lower) * rng.beta(1, n - below - 1) if below < n - 1 else lower
    first, second = ordered[min(int(lower * n), n - 1)], ordered[min(int(upper * n), n - 1)]
    return float(first + (at - below) * (second - first))


def paired(values: Sequence[float], baseline: Sequence[float]) -> PairedDifference:
    """Compare values with the baseline's of the same workloads, pair by pair."""
    ours, theirs = np.asarray(values, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    gaps = ours - theirs
    ratio = None
    if (ours > 0).all() and (theirs > 0).all():
        logs = mean_interval(np.log(ours / theirs).tolist())
        low = None if logs.low is None else math.exp(logs.low)
        high = None if logs.high is None else math.exp(logs.high)
        ratio = Interval(value=math.exp(logs.value), low=low, high=high)
    return PairedDifference(
        pairs=gaps.size,
        difference=mean_interval(gaps.tolist()),
        ratio=ratio,
        lower=int((gaps < 0).sum()),
        p_value=_signed_rank(gaps),
    )


def _signed_rank(gaps: Floats) -> float | None:
    differing = gaps[gaps != 0]
    if differing.size < 5:
        return None
    from scipy import stats

    return float(stats.wilcoxon(differing).pvalue)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """P-values corrected for the number of comparisons (Holm, 1979)."""
    known = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    most = 0.0
    for place, (p, index) in enumerate(known):
        most = max(most, min(1.0, p * (len(known) - place)))
        corrected[index] = most
    return corrected


def compare_ranks(values: Mapping[str, Sequence[float]], *, low_is_best: bool) -> RankComparison:
    """Rank policies on each workload; every policy has a value for every workload, in the same order."""
    from scipy import stats

    names = list(values)
    table = np.array([values[name] for name in names], dtype=np.float64)
    blocks = table.shape[1]
    ranks = np.apply_along_axis(stats.rankdata, 0, table if low_is_best else -table)
    means = {name: float(mean) for name, mean in zip(names, ranks.mean(axis=1), strict=True)}
    if len(names) < 3 or blocks < 2:
        return RankComparison(ranks=means, blocks=blocks, p_value=None, critical_difference=None)
    p_value = 1.0 if (ranks == ranks[0]).all() else float(stats.friedmanchisquare(*table).pvalue)
    spread = float(stats.studentized_range.ppf(CONFIDENCE, len(names), np.inf)) / math.sqrt(2)
    critical = spread * math.sqrt(len(names) * (len(names) + 1) / (6 * blocks))
    return RankComparison(ranks=means, blocks=blocks, p_value=p_value, critical_difference=critical)
