"""Fit of one label to runs.

A random forest learns the logarithm of the label from all attributes; where the white-box model explains the label, the
forest learns only the residual.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any

import numpy as np

from rota.core.errors import RotaError
from rota.estimate.analytic_model import LAWS, FittedLaw, explains
from rota.estimate.observations import Encoder, Floats, Observation

TREES = 100
COVERAGE = 0.9


class EstimateMethod(Enum):
    """How a label is estimated: by a forest on the white-box residual, or by either alone."""

    BEST = "best"
    FOREST = "forest"
    WHITE_BOX = "white box"


def import_forest() -> Any:
    """Import scikit-learn's forest, only when something is learned."""
    try:
        from sklearn.ensemble import RandomForestRegressor
    except ImportError:
        raise RotaError("estimates need scikit-learn; install it with: pip install 'rota[estimate]'") from None
    return RandomForestRegressor


def one_thread() -> AbstractContextManager[object]:
    """Limit BLAS to one thread: small matrices gain nothing from more, and lose much on a busy machine."""
    import_forest()
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1)
    return limits


class LabelFit:
    """One label, learned from runs."""

    def __init__(
        self, label: str, runs: Sequence[Observation], way: EstimateMethod = EstimateMethod.BEST, seed: int = 0
    ) -> None:
        law = LAWS.get(label) if way is not EstimateMethod.FOREST and all(map(explains, runs)) else None
        self._law = None if law is None else FittedLaw(law, runs)
        self._encoder = Encoder(runs)
        logs = np.log([run.labels[label] for run in runs]) - self.explained(runs)
        forest = import_forest()(TREES, min_samples_leaf=1 if law is None else 2, max_features=0.5, random_state=seed)
        self._forest = forest.fit(self._encoder.encode(runs), logs)

    def predict(self, runs: Sequence[Observation]) -> Floats:
        """Return the estimate for each run."""
        left = self._forest.predict(self._encoder.encode(runs))
        return np.asarray(np.exp(self.explained(runs) + left))

    def explained(self, runs: Sequence[Observation]) -> Floats:
        """Return the white-box prediction of each run as a logarithm; 0 where there is none."""
        return np.zeros(len(runs)) if self._law is None else np.log(self._law.predict(runs))


def folds_by(keys: Sequence[object], folds: int, seed: int = 0) -> Floats:
    """Assign a random fold to each run; equal keys share one. With fewer keys than folds, each key is one."""
    distinct = list(dict.fromkeys(keys))
    order = np.random.default_rng(seed).permutation(len(distinct))
    fold_of = {key: int(place) % folds for key, place in zip(distinct, order, strict=True)}
    return np.array([fold_of[key] for key in keys])


def held_out(
    runs: Sequence[Observation],
    folds: Floats,
    fit: Callable[[list[Observation]], Callable[[list[Observation]], Floats]],
) -> Floats:
    """Return the estimate of each run by a fit that has not seen its fold."""
    estimated = np.zeros(len(runs))
    for here, elsewhere in parts(folds):
        estimated[here] = fit([runs[index] for index in elsewhere])([runs[index] for index in here])
    return estimated


def parts(folds: Floats) -> Iterator[tuple[list[int], list[int]]]:
    """Iterate over the folds as indexes of the runs inside and outside."""
    for fold in np.unique(folds):
        yield np.flatnonzero(folds == fold).tolist(), np.flatnonzero(folds != fold).tolist()


def reach(deviations: Floats) -> float:
    """Return the deviation of the logarithm in nine cases of ten, by the held-out runs (conformal)."""
    rank = math.ceil((len(deviations) + 1) * COVERAGE) - 1
    return float(np.sort(np.abs(deviations))[min(rank, len(deviations) - 1)])
