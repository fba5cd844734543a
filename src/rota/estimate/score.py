"""Scores of estimates on held-out runs, in the terms of Fu et al. (NSDI 2021).

`rmsre` is the root mean squared relative error. `o_err` is that of an oracle that knows all runs but gives one number
for equal inputs: no estimate from these attributes can do better. `bom_err` is the best of six common models. There are
two splits: configurations at random, with repeats kept together; and whole kinds (families) held out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rota.estimate.analytic_model import LAWS, explains
from rota.estimate.cross_validation import FEWEST, FOLDS, enough
from rota.estimate.forest import TREES, EstimateMethod, LabelFit, folds_by, import_forest, parts, reach
from rota.estimate.observations import LABELS, Encoder, Floats, Observation, with_label

RANDOM = "random"
KINDS = "kinds left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelScore:
    """One label under one split. Errors are relative; `forest` and `white_box` are median errors of each alone."""

    split: str
    label: str
    runs: int
    median_error: float
    p90_error: float
    rmsre: float
    o_err: float | None
    bom_err: float
    bom_model: str
    coverage: float
    interval_ratio: float
    """Ratio of the upper to the lower end of an interval."""
    forest_error: float
    white_box_error: float | None


def labels_in(runs: Sequence[Observation]) -> list[str]:
    """Return the labels measured in enough different runs."""
    return [label for label in LABELS if len({run.key for run in with_label(runs, label)}) >= FEWEST]


def scores(
    runs: Sequence[Observation], labels: Sequence[str], seed: int = 0, tell: Callable[[str], None] = lambda _: None
) -> Iterator[LabelScore]:
    """Return the score of each label under both splits."""
    for label in labels:
        mine = enough(label, runs)
        for split, folds in _splits(mine, seed):
            tell(f"{label}, {split}")
            yield _score(mine, label, split, folds, seed)


def _splits(runs: Sequence[Observation], seed: int) -> Iterator[tuple[str, Floats]]:
    yield RANDOM, folds_by([run.key for run in runs], FOLDS, seed)
    kinds = [run.kind for run in runs]
    if len(set(kinds)) > 1:
        yield KINDS, folds_by(kinds, len(set(kinds)), seed)


def _score(runs: Sequence[Observation], label: str, split: str, folds: Floats, seed: int) -> LabelScore:
    truth = np.array([run.labels[label] for run in runs])
    estimated = _held_out_estimates(runs, label, folds, seed)
    best = estimated[EstimateMethod.BEST]
    errors = np.abs(best - truth) / truth
    low, high = _intervals(best, truth, folds)
    usual = {name: rmsre(truth, each) for name, each in _usual_models(runs, truth, folds, seed)}
    model = min(usual, key=lambda name: usual[name])
    white = estimated.get(EstimateMethod.WHITE_BOX)
    return LabelScore(
        split=split,
        label=label,
        runs=len(runs),
        median_error=float(np.median(errors)),
        p90_error=float(np.quantile(errors, 0.9)),
        rmsre=rmsre(truth, best),
        o_err=oracle_error([run.key for run in runs], truth),
        bom_err=usual[model],
        bom_model=model,
        coverage=float(np.mean((low <= truth) & (truth <= high))),
        interval_ratio=float(np.median(high / low)),
        forest_error=float(np.median(np.abs(estimated[EstimateMethod.FOREST] - truth) / truth)),
        white_box_error=None if white is None else float(np.median(np.abs(white - truth) / truth)),
    )


def _held_out_estimates(
    runs: Sequence[Observation], label: str, folds: Floats, seed: int
) -> dict[EstimateMethod, Floats]:
    """Return held-out estimates of each method; without a white box, the best method is the forest."""
    has_law = label in LAWS and all(map(explains, runs))
    estimated = {way: np.zeros(len(runs)) for way in EstimateMethod if has_law or way is not EstimateMethod.WHITE_BOX}
    for here, elsewhere in parts(folds):
        asked, seen = [runs[index] for index in here], [runs[index] for index in elsewhere]
        best = LabelFit(label, seen, seed=seed)
        estimated[EstimateMethod.BEST][here] = estimated[EstimateMethod.FOREST][here] = best.predict(asked)
        if has_law:
            estimated[EstimateMethod.FOREST][here] = LabelFit(label, seen, EstimateMethod.FOREST, seed).predict(asked)
            estimated[EstimateMethod.WHITE_BOX][here] = np.exp(best.explained(asked))
    return estimated


def rmsre(truth: Floats, estimated: Floats) -> float:
    """Return the root mean squared relative error."""
    return float(np.sqrt(np.mean(((truth - estimated) / truth) ** 2)))


def oracle_error(keys: Sequence[object], truth: Floats) -> float | None:
    """Return the lowest rmsre of one number for equal inputs, over repeated inputs."""
    groups: dict[object, list[float]] = {}
    for key, value in zip(keys, truth, strict=True):
        groups.setdefault(key, []).append(float(value))
    repeated = [np.array(values) for values in groups.values() if len(values) > 1]
    if not repeated:
        return None
    best = [np.full(len(values), np.sum(1 / values) / np.sum(1 / values**2)) for values in repeated]
    return rmsre(np.concatenate(repeated), np.concatenate(best))


def _intervals(estimated: Floats, truth: Floats, folds: Floats) -> tuple[Floats, Floats]:
    """Return, for each run, the interval by the deviations of the other folds."""
    deviations = np.log(truth / estimated)
    width = np.zeros(len(truth))
    for fold in np.unique(folds):
        width[folds == fold] = reach(deviations[folds != fold])
    return estimated * np.exp(-width), estimated * np.exp(width)


def _usual_models(runs: Sequence[Observation], truth: Floats, folds: Floats, seed: int) -> Iterator[tuple[str, Floats]]:
    """Return the errors of six common models on the logarithm of the label."""
    forest = import_forest()
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LinearRegression
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVR

    models: dict[str, Callable[[], Any]] = {
        "nearest neighbours": lambda: KNeighborsRegressor(3, weights="distance"),
        "random forest": lambda: forest(TREES // 2, random_state=seed),
        "linear regression": LinearRegression,
        "linear support vectors": lambda: SVR(kernel="linear"),
        "kernel support vectors": lambda: SVR(C=10.0),
        "neural network": lambda: MLPRegressor(
            hidden_layer_sizes=(32,), max_iter=500, solver="lbfgs", alpha=1.0, random_state=seed
        ),
    }
    logs = np.log(truth)
    spread = (float(logs.min()), float(logs.max()))
    for name, make in models.items():
        estimated = np.zeros(len(runs))
        for here, seen in parts(folds):
            encoder = Encoder([runs[index] for index in seen])
            model = make_pipeline(StandardScaler(), make())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(encoder.encode([runs[index] for index in seen]), logs[seen])
            estimated[here] = model.predict(encoder.encode([runs[index] for index in here]))
        yield name, np.exp(np.clip(estimated, *spread))
