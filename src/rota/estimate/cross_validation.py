"""Cross-validation of estimates: each run is judged by a fit that has not seen it.

There are two splits. For known kinds: configurations at random, with repeats kept together. For unknown kinds: whole
kinds are held out, since errors among known kinds say nothing about those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rota.core.errors import RotaError
from rota.estimate.analytic_model import explains
from rota.estimate.extrapolation import FEWEST_OF_KIND
from rota.estimate.forest import EstimateMethod, LabelFit, folds_by, held_out, reach
from rota.estimate.observations import COUNTED, Floats, Observation, with_label

FOLDS = 10
FEWEST = 8
"""Smallest number of runs to learn from."""
FEWEST_KINDS = 5
"""Smallest number of kinds to measure the error for an unknown one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Errors of estimates: nine in ten logarithms are off by at most `reach`, half by at most `error`.

    `error` is None where there were too few runs.
    """

    reach: float
    error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Errors of the estimates of a label: for known kinds, and for unknown ones if several could be held out."""

    runs: int
    reach: float
    errors: Mapping[str, float]
    """Median relative error of each kind with enough runs."""
    unseen: Spread | None = None
    """For kinds without any run."""
    uncounted: Spread | None = None
    """The same where the runs have counts (parameters, activations) and the one in question has none."""


def measure(label: str, runs: Sequence[Observation], seed: int = 0) -> Trust:
    """Judge each run by fits that have not seen its configuration, and by fits that have not seen its kind."""
    mine = enough(label, runs)
    truth = np.array([run.labels[label] for run in mine])
    folds = folds_by([run.key for run in mine], FOLDS, seed)
    estimated = held_out(mine, folds, lambda seen: LabelFit(label, seen, seed=seed).predict)
    by_kind: dict[str, list[float]] = {}
    for run, error in zip(mine, np.abs(estimated - truth) / truth, strict=True):
        by_kind.setdefault(run.kind, []).append(float(error))
    errors = {kind: float(np.median(found)) for kind, found in by_kind.items() if len(found) >= FEWEST_OF_KIND}
    unseen = uncounted = None
    if len(by_kind) > 1:
        folds = folds_by([run.kind for run in mine], min(len(by_kind), FOLDS), seed)
        unseen = _spread(
            truth, held_out(mine, folds, lambda seen: LabelFit(label, seen, seed=seed).predict), len(by_kind)
        )
        if all(map(explains, mine)):
            blind = [without_counts(run) for run in mine]
            said_blindly = held_out(
                blind, folds, lambda seen: LabelFit(label, seen, EstimateMethod.FOREST, seed=seed).predict
            )
            uncounted = _spread(truth, said_blindly, len(by_kind))
    return Trust(
        runs=len(mine), reach=reach(np.log(truth / estimated)), errors=errors, unseen=unseen, uncounted=uncounted
    )


def enough(label: str, runs: Sequence[Observation]) -> list[Observation]:
    """Return the runs in which a label was measured; refuse too few."""
    mine = with_label(runs, label)
    different = len({run.key for run in mine})
    if different < FEWEST:
        raise RotaError(
            f"{label}: {different} different runs with a value above 0 are too few; at least {FEWEST} are needed"
        )
    return mine


def without_counts(run: Observation) -> Observation:
    """Return the run with only what its command declares."""
    attributes = {name: value for name, value in run.attributes.items() if name not in COUNTED}
    return Observation(attributes=attributes, labels=run.labels)


def _spread(truth: Floats, estimated: Floats, kinds: int) -> Spread:
    error = float(np.median(np.abs(estimated - truth) / truth)) if kinds >= FEWEST_KINDS else None
    return Spread(reach=reach(np.log(truth / estimated)), error=error)
