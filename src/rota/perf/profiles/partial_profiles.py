"""Partially known profiles: what policies see when only some speeds were measured and the rest is estimated."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rota.core.errors import RotaError
from rota.core.model.job import DeviceType
from rota.perf.profiles.matrix_completion import CompletionMethod, Fill, Filled, Floats, HeldOut, fill_as, fill_gaps
from rota.perf.profiles.speed_table import PairKey, Profiles, SpeedKey


@dataclass(frozen=True, slots=True)
class Table:
    """Logarithms of figures by row and column, NaN where there is none."""

    rows: Mapping[Any, int]
    columns: Mapping[Any, int]
    values: Floats

    def at(self, row: Any, column: Any) -> tuple[int, int]:
        """Return the position of a figure."""
        return self.rows[row], self.columns[column]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """How much of a table was known, how the rest was estimated, and the error."""

    known: int
    filled: int
    choice: CompletionMethod
    error: HeldOut | None

    def sentence(self, what: str) -> str:
        """Return a sentence: what was known, how the rest was estimated, and the held-out error."""
        start = f"{self.known:,} of {self.known + self.filled:,} {what} known, the rest estimated ({self.choice})"
        if self.error is None:
            return f"{start}; too few to measure the error"
        return f"{start}; held-out error {self.error.median:.0%} (median), {self.error.p90:.0%} (nine in ten)"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSpeeds:
    """A table with hidden figures: those left, and the keys that are missing although the type can run the model."""

    profiles: Profiles
    speeds: frozenset[SpeedKey]
    pairs: frozenset[PairKey] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedEstimate:
    """Complete speeds for a policy, and how they were estimated."""

    profiles: Profiles
    known: KnownSpeeds
    seed: int
    speeds: Gaps
    pairs: Gaps | None

    def sentence(self) -> str:
        """Return a sentence: what was known and how the rest was estimated."""
        parts = [self.speeds.sentence("speeds")]
        if self.pairs is not None:
            parts.append(self.pairs.sentence("pairs"))
        return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateSpec:
    """How much of the profiles policies know, how the rest is estimated, and whether observations correct it."""

    known: float = 1.0
    fill: Fill = Fill.COMPLETION
    observes: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.known <= 1:
            raise RotaError(f"the fraction of the profiles that is known is {self.known:g}; it must be from 0 to 1")

    def encode(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"known": self.known, "fill": self.fill.value, "observes": self.observes, "seed": self.seed}

    @classmethod
    def decode(cls, value: Mapping[str, Any]) -> EstimateSpec:
        """Restore from the values of `encode`."""
        return cls(known=value["known"], fill=Fill(value["fill"]), observes=value["observes"], seed=value["seed"])

    def estimate(self, truth: Profiles) -> SpeedEstimate:
        """Return what policies see, given the true profiles."""
        return estimate(hide(truth, self.known, self.seed), self.fill, self.seed)


def hide(truth: Profiles, fraction: float, seed: int) -> KnownSpeeds:
    """Keep a random fraction of the figures. That a model cannot run somewhere is always known."""
    rng = random.Random(seed)
    speeds = sorted(key for key, rate in truth.steps_per_s.items() if rate > 0)
    hidden = frozenset(rng.sample(speeds, len(speeds) - round(fraction * len(speeds))))
    together = sorted(key for key, rates in truth.pairs.items() if min(rates) > 0 and key[1] <= key[2])
    apart = rng.sample(together, len(together) - round(fraction * len(together)))
    lost = frozenset(apart) | frozenset((kind, other, one, devices) for kind, one, other, devices in apart)
    left = replace(
        truth,
        steps_per_s={key: rate for key, rate in truth.steps_per_s.items() if key not in hidden},
        scattered={key: rate for key, rate in truth.scattered.items() if key not in hidden},
        pairs={key: rates for key, rates in truth.pairs.items() if key not in lost},
    )
    return KnownSpeeds(profiles=left, speeds=hidden, pairs=lost)


def gaps_of(profiles: Profiles, wanted: Collection[tuple[str, int]], types: Collection[DeviceType]) -> KnownSpeeds:
    """Return what profiles lack of models and sizes on some types; pairs only if they have any."""
    speeds = frozenset(
        (kind, model, devices)
        for kind in types
        for model, devices in wanted
        if (kind, model, devices) not in profiles.steps_per_s
    )
    pairs: frozenset[PairKey] = frozenset()
    if profiles.pairs:
        possible = {key for key, rate in profiles.steps_per_s.items() if rate > 0} | speeds
        pairs = frozenset(
            (kind, one, other, devices)
            for kind in types
            for one, devices in wanted
            for other, size in wanted
            if size == devices
            and (kind, one, other, devices) not in profiles.pairs
            and (kind, one, devices) in possible
            and (kind, other, devices) in possible
        )
    return KnownSpeeds(profiles=profiles, speeds=speeds, pairs=pairs)


def estimate(known: KnownSpeeds, fill: Fill, seed: int) -> SpeedEstimate:
    """Estimate missing figures: speeds first, then pairs relative to the speed alone."""
    table = speed_table(known.profiles.steps_per_s, known.speeds)
    filled = fill_gaps(table.values, fill, seed)
    speeds = dict(known.profiles.steps_per_s) | {key: _speed(table, filled.values, key) for key in sorted(known.speeds)}
    pairs, pair_gaps = dict(known.profiles.pairs), None
    if known.pairs:
        together = pair_table(known.profiles.pairs, known.pairs, speeds)
        ratios = fill_gaps(together.values, fill, seed)
        pairs |= {key: _pair(together, ratios.values, key, speeds) for key in sorted(known.pairs)}
        measured = sum(min(rates) > 0 and key[1] <= key[2] for key, rates in known.profiles.pairs.items())
        pair_gaps = _gaps(measured, sum(key[1] <= key[2] for key in known.pairs), ratios)
    return SpeedEstimate(
        profiles=replace(known.profiles, steps_per_s=speeds, pairs=pairs),
        known=known,
        seed=seed,
        speeds=_gaps(sum(rate > 0 for rate in known.profiles.steps_per_s.values()), len(known.speeds), filled),
        pairs=pair_gaps,
    )


def refit(base: SpeedEstimate, speeds: Mapping[SpeedKey, float], pairs: Mapping[PairKey, float]) -> Profiles:
    """Estimate again by the same method, with newly observed figures."""
    profiles = base.known.profiles
    missing = base.known.speeds - speeds.keys()
    alone = dict(profiles.steps_per_s) | dict(speeds)
    table = speed_table(alone, missing)
    values = fill_as(table.values, base.speeds.choice, base.seed)
    alone |= {key: _speed(table, values, key) for key in sorted(missing)}
    beside = dict(profiles.pairs)
    if base.pairs is not None:
        together = pair_table(profiles.pairs, base.known.pairs, alone, pairs)
        ratios = fill_as(together.values, base.pairs.choice, base.seed)
        beside |= {key: _pair(together, ratios, key, alone) for key in sorted(base.known.pairs)}
    return replace(profiles, steps_per_s=alone, pairs=beside)


def speed_table(speeds: Mapping[SpeedKey, float], missing: Collection[SpeedKey]) -> Table:
    """Return speeds as a table of models by type and number of devices."""
    keys = sorted([*(key for key, rate in speeds.items() if rate > 0), *missing])
    table = _empty({model for _, model, _ in keys}, {(kind, devices) for kind, _, devices in keys})
    for kind, model, devices in keys:
        if (kind, model, devices) not in missing:
            table.values[table.at(model, (kind, devices))] = math.log(speeds[(kind, model, devices)])
    return table


def pair_table(
    pairs: Mapping[PairKey, tuple[float, float]],
    missing: Collection[PairKey],
    alone: Mapping[SpeedKey, float],
    seen: Mapping[PairKey, float] | None = None,
) -> Table:
    """Return speeds relative to those alone as a table of models and sizes by type and packed model."""
    keys = sorted([*(key for key, rates in pairs.items() if min(rates) > 0), *missing])
    table = _empty({(model, devices) for _, model, _, devices in keys}, {(kind, other) for kind, _, other, _ in keys})
    for key in keys:
        kind, model, other, devices = key
        rate = (seen or {}).get(key) if key in missing else pairs[key][0]
        own = alone.get((kind, model, devices), 0.0)
        if rate and own > 0:
            table.values[table.at((model, devices), (kind, other))] = math.log(rate / own)
    return table


def _empty(rows: Collection[Any], columns: Collection[Any]) -> Table:
    by_row = {name: at for at, name in enumerate(sorted(rows))}
    by_column = {name: at for at, name in enumerate(sorted(columns))}
    return Table(by_row, by_column, np.full((len(by_row), len(by_column)), np.nan))


def _speed(table: Table, values: Floats, key: SpeedKey) -> float:
    kind, model, devices = key
    return math.exp(values[table.at(model, (kind, devices))])


def _pair(table: Table, values: Floats, key: PairKey, alone: Mapping[SpeedKey, float]) -> tuple[float, float]:
    kind, model, other, devices = key
    mine = math.exp(values[table.at((model, devices), (kind, other))]) * alone[(kind, model, devices)]
    others = math.exp(values[table.at((other, devices), (kind, model))]) * alone[(kind, other, devices)]
    return mine, others


def _gaps(known: int, missing: int, filled: Filled) -> Gaps:
    return Gaps(known=known, filled=missing, choice=filled.choice, error=filled.error)
