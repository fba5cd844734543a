"""Estimates of a label with an interval, and the error that was measured for runs of the same kind.

A random forest learns the logarithm of the label from all attributes; where the white box explains the label, the
forest learns only what that leaves unexplained. Intervals and errors come from runs that were held out: each is
judged by a fit that has not seen it, nor any other run of the same configuration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from rota.core.errors import RotaError
from rota.estimate.law import LAWS, FittedLaw, explains
from rota.estimate.observations import COUNTED, Encoder, Floats, Observation, Value, with_label

TREES = 100
FOLDS = 10
FEWEST = 8
"""Below so many runs nothing is learned."""
FEWEST_OF_KIND = 3
"""Below so many held-out runs of a kind nothing is known of its error."""
COVERAGE = 0.9


class Way(Enum):
    """How a label is estimated."""

    BEST = "best"
    FOREST = "forest"
    WHITE_BOX = "white box"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a run will probably take; nine runs in ten lie between `low` and `high`.

    `error` is the median relative error that was measured on held-out runs of its kind; None where there were too few.
    """

    label: str
    value: float
    low: float
    high: float
    error: float | None

    def is_trusted(self, bound: float) -> bool:
        """Whether the measured error is below a bound."""
        return self.error is not None and self.error <= bound


def import_forest() -> Any:
    """scikit-learn's forest; it is loaded only when something is learned."""
    try:
        from sklearn.ensemble import RandomForestRegressor
    except ImportError:
        raise RotaError("estimates need scikit-learn; install it with: pip install 'rota[estimate]'") from None
    return RandomForestRegressor


def one_thread() -> AbstractContextManager[object]:
    """Small matrices gain nothing from more threads, and lose much where the machine is busy."""
    import_forest()
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1)
    return limits


class Fit:
    """One label, learned from some runs."""

    def __init__(self, label: str, runs: Sequence[Observation], way: Way = Way.BEST, seed: int = 0) -> None:
        law = LAWS.get(label) if way is not Way.FOREST and all(map(explains, runs)) else None
        if way is Way.WHITE_BOX and law is None:
            raise RotaError(f"there is no white box for {label} in these runs")
        self._law = None if law is None else FittedLaw(law, runs)
        self._forest = None
        self._encoder = Encoder(runs)
        if way is Way.WHITE_BOX:
            return
        logs = np.log([run.labels[label] for run in runs]) - self._explained(runs)
        forest = import_forest()(TREES, min_samples_leaf=1 if law is None else 2, max_features=0.5, random_state=seed)
        self._forest = forest.fit(self._encoder.encode(runs), logs)

    def predict(self, runs: Sequence[Observation]) -> Floats:
        """What each run will probably take."""
        left = 0.0 if self._forest is None else self._forest.predict(self._encoder.encode(runs))
        return np.asarray(np.exp(self._explained(runs) + left))

    def _explained(self, runs: Sequence[Observation]) -> Floats:
        return np.zeros(len(runs)) if self._law is None else np.log(self._law.predict(runs))


def folds_by(keys: Sequence[object], folds: int, seed: int = 0) -> Floats:
    """A fold for each run, at random; equal keys share one. With fewer keys than folds, each key is one."""
    distinct = list(dict.fromkeys(keys))
    order = np.random.default_rng(seed).permutation(len(distinct))
    fold_of = {key: int(place) % folds for key, place in zip(distinct, order, strict=True)}
    return np.array([fold_of[key] for key in keys])


def held_out(
    runs: Sequence[Observation],
    folds: Floats,
    fit: Callable[[list[Observation]], Callable[[list[Observation]], Floats]],
) -> Floats:
    """What a fit says of each run that has not seen the run's fold."""
    said = np.zeros(len(runs))
    for fold in np.unique(folds):
        here = np.flatnonzero(folds == fold).tolist()
        seen = [runs[index] for index in np.flatnonzero(folds != fold).tolist()]
        said[here] = fit(seen)([runs[index] for index in here])
    return said


def reach(deviations: Floats) -> float:
    """How far the logarithm may be off in nine cases of ten, as the deviations of held-out runs say (conformal)."""
    rank = math.ceil((len(deviations) + 1) * COVERAGE) - 1
    return float(np.sort(np.abs(deviations))[min(rank, len(deviations) - 1)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """How far estimates of a label were off on held-out runs: nine in ten of their logarithms, and by kind of run."""

    runs: int
    reach: float
    errors: Mapping[str, float]
    """The median relative error of each kind of which there were enough."""


def measure(label: str, runs: Sequence[Observation], seed: int = 0) -> Trust:
    """Judge each run by a fit that has not seen its configuration."""
    mine = with_label(runs, label)
    if len({run.key for run in mine}) < FEWEST:
        raise RotaError(f"{label}: {len(mine)} runs are too few to learn from; it takes {FEWEST} different ones")
    folds = folds_by([run.key for run in mine], FOLDS, seed)
    said = held_out(mine, folds, lambda seen: Fit(label, seen, seed=seed).predict)
    truth = np.array([run.labels[label] for run in mine])
    by_kind: dict[str, list[float]] = {}
    for run, error in zip(mine, np.abs(said - truth) / truth, strict=True):
        by_kind.setdefault(run.kind, []).append(float(error))
    errors = {kind: float(np.median(found)) for kind, found in by_kind.items() if len(found) >= FEWEST_OF_KIND}
    return Trust(runs=len(mine), reach=reach(np.log(truth / said)), errors=errors)


class Estimator:
    """What some runs teach. The forests are grown when first asked for: a file of it holds runs, and no program."""

    def __init__(self, runs: Sequence[Observation], trust: Mapping[str, Trust]) -> None:
        self.runs = tuple(runs)
        self.trust = trust
        self._fits: dict[tuple[str, Way], Fit] = {}

    @classmethod
    def learn(cls, runs: Sequence[Observation], labels: Sequence[str], seed: int = 0) -> Estimator:
        """Learn labels from runs, and how far to trust that."""
        return cls(runs, {label: measure(label, runs, seed) for label in labels})

    def predict(self, label: str, attributes: Mapping[str, Value]) -> Estimate:
        """What a run will probably take; the usual where nothing is learned of the label yet."""
        known = self.trust.get(label)
        if known is None:
            return unlearned(label)
        run = self._with_counts(Observation(attributes=attributes, labels={}))
        mine = with_label(self.runs, label)
        lacks_counts = label in LAWS and all(map(explains, mine)) and not explains(run)
        way = Way.FOREST if lacks_counts else Way.BEST
        if (label, way) not in self._fits:
            self._fits[label, way] = Fit(label, mine, way)
        value = float(self._fits[label, way].predict([run])[0])
        width = math.exp(known.reach)
        error = None if lacks_counts else known.errors.get(run.kind)
        return Estimate(label=label, value=value, low=value / width, high=value * width, error=error)

    def _with_counts(self, run: Observation) -> Observation:
        """The run with what was counted for one that differs only in how it trains."""
        if explains(run):
            return run
        for known in reversed(self.runs):
            if explains(known) and same_model(known.attributes, run.attributes):
                counts = {name: known.attributes[name] for name in COUNTED}
                return Observation(attributes={**run.attributes, **counts}, labels={})
        return run


def same_model(known: Mapping[str, Value], asked: Mapping[str, Value]) -> bool:
    """Whether two runs train the same model on samples of the same size."""
    names = [name for name in ("model", "size") if name in known]
    return bool(names) and all(known[name] == asked.get(name) for name in names)


DEFAULTS: Mapping[str, float] = {"gpus": 1.0, "cpu_cores": 4.0, "host_memory_mb": 4096.0, "gpu_memory_mb": 8192.0}
"""What a job is taken to need of which nothing is known, as Liquid does."""


def unlearned(label: str) -> Estimate:
    """The usual, where nothing is known."""
    value = DEFAULTS.get(label, math.nan)
    return Estimate(label=label, value=value, low=value, high=value, error=None)
