"""The time of a collective as a function of its size and its ranks, fitted to measured tables.

Between two knots the time is linear in the size: a latency and a bandwidth. Software switches its protocol as messages
grow, so that one latency and one bandwidth do not describe all sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rota.core.errors import RotaError
from rota.network.topology import Floats

KNOTS_PER_OCTAVE = 4
FEWEST_ON_A_PIECE = 1
"""Measured sizes that each piece of the curve must have."""

TimedSize = tuple[float, float]
"""Bytes and seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeCurve:
    """The time of one collective at one number of ranks, by size."""

    knots: tuple[TimedSize, ...]

    def time_s(self, size: float) -> float:
        """Return the time; below the first knot and above the last their pieces go on, within reason.

        A smaller message never takes longer, nor less than its part of the bytes.
        """
        sizes = [knot[0] for knot in self.knots]
        times = [knot[1] for knot in self.knots]
        if size <= sizes[0]:
            slope = (times[1] - times[0]) / (sizes[1] - sizes[0]) if len(sizes) > 1 else 0.0
            return max(times[0] - slope * (sizes[0] - size), times[0] * size / sizes[0])
        if size >= sizes[-1]:
            return times[-1] * size / sizes[-1]
        return float(np.interp(size, sizes, times))


def fit_curve(points: Sequence[TimedSize]) -> SizeCurve:
    """Return the curve nearest to some measurements by relative error; outliers count less than their square."""
    if len(points) < 2:
        raise RotaError(f"{len(points)} measured sizes; a curve needs at least 2")
    bad = [point for point in points if not (0 < point[0] < math.inf and 0 < point[1] < math.inf)]
    if bad:
        raise RotaError(f"measured {bad[0][0]:g} bytes in {bad[0][1]:g} s; both must be numbers above 0")
    ordered = sorted(points)
    sizes = np.array([size for size, _ in ordered])
    times = np.array([time for _, time in ordered])
    knots = _knots(sizes)
    if len(knots) < 2:
        return SizeCurve(knots=((float(sizes[0]), float(np.median(times))),))
    relative = _hats(sizes, knots) / times[:, None]
    weights = np.ones(len(sizes))
    for _ in range(8):
        fitted = np.linalg.lstsq(relative * weights[:, None], weights, rcond=None)[0]
        error = np.abs(1.0 - relative @ fitted)
        weights = 1.0 / np.sqrt(np.maximum(error, 0.01))
    values = np.maximum.accumulate(np.maximum(fitted, times.min() / 2))
    return SizeCurve(knots=tuple((float(s), float(t)) for s, t in zip(knots, values, strict=True)))


def _knots(sizes: Floats) -> Floats:
    """Return places of knots: a few per octave, fewer where few sizes were measured."""
    least, most = float(sizes[0]), float(sizes[-1])
    pieces = max(round(math.log2(most / least) * KNOTS_PER_OCTAVE), 1)
    chosen = [least]
    for place in np.geomspace(least, most, pieces + 1)[1:-1]:
        inside = sizes[(sizes > chosen[-1]) & (sizes <= place)]
        if len(set(inside.tolist())) >= FEWEST_ON_A_PIECE and sizes[-FEWEST_ON_A_PIECE] > place:
            chosen.append(float(inside[-1]))
    return np.array([*chosen, most]) if most > least else np.array([least])


def _hats(sizes: Floats, knots: Floats) -> Floats:
    """Return the weights of each knot at each size, for linear interpolation."""
    basis = np.zeros((len(sizes), len(knots)))
    right = np.clip(np.searchsorted(knots, sizes, side="left"), 1, len(knots) - 1)
    part = np.clip((sizes - knots[right - 1]) / (knots[right] - knots[right - 1]), 0.0, 1.0)
    rows = np.arange(len(sizes))
    basis[rows, right] = part
    basis[rows, right - 1] = 1.0 - part
    return basis


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTable:
    """Fitted curves of an all-reduce by number of ranks."""

    curves: Mapping[int, SizeCurve]

    def __post_init__(self) -> None:
        if not self.curves or min(self.curves) < 2:
            raise RotaError("a table of collectives needs at least one number of ranks of 2 or more")

    def time_s(self, ranks: int, size: float) -> float:
        """Return the time of an all-reduce; between measured numbers of ranks interpolated over their logarithm.

        Beyond the measured numbers latency grows with the steps of a ring, and bytes as 2(n-1)/n.
        """
        if ranks < 2 or size <= 0:
            return 0.0
        known = sorted(self.curves)
        if ranks in self.curves:
            return self.curves[ranks].time_s(size)
        above = [n for n in known if n > ranks]
        below = [n for n in known if n < ranks]
        if above and below:
            low, high = below[-1], above[0]
            part = math.log(ranks / low) / math.log(high / low)
            return math.exp(
                (1 - part) * math.log(self.curves[low].time_s(size)) + part * math.log(self.curves[high].time_s(size))
            )
        near = above[0] if above else below[-1]
        curve = self.curves[near]
        start_s = min(curve.knots[0][1], curve.time_s(size))
        moving_s = curve.time_s(size) - start_s
        steps = math.log2(ranks) / math.log2(near) if ranks < near else (ranks - 1) / (near - 1)
        return start_s * steps + moving_s * ((ranks - 1) / ranks) / ((near - 1) / near)


def fit_table(points_by_ranks: Mapping[int, Sequence[TimedSize]]) -> CollectiveTable:
    """Return the curves of all numbers of ranks that were measured."""
    return CollectiveTable(curves={ranks: fit_curve(points) for ranks, points in sorted(points_by_ranks.items())})


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBackError:
    """Relative errors of a fit on the measurements that it did not see."""

    points: int
    mean: float
    p99: float
    most: float


def held_back_error(points: Sequence[TimedSize], seed: int = 0) -> HeldBackError:
    """Fit one half of some measurements and return the errors on the other: of two neighbouring sizes one is hidden."""
    ordered = sorted(points)
    coins = np.random.default_rng(seed).integers(0, 2, len(ordered) // 2 + 1)
    chosen = [number % 2 == coins[number // 2] for number in range(len(ordered))]
    seen = [point for point, is_seen in zip(ordered, chosen, strict=True) if is_seen]
    hidden = [point for point, is_seen in zip(ordered, chosen, strict=True) if not is_seen]
    curve = fit_curve(seen)
    errors = np.array([abs(curve.time_s(size) / time - 1) for size, time in hidden])
    return HeldBackError(
        points=len(hidden),
        mean=float(errors.mean()),
        p99=float(np.quantile(errors, 0.99)),
        most=float(errors.max()),
    )
