"""How much each parameter matters for the result of a trial.

For numbers it is Spearman's rank correlation with the best loss of each trial; for choices, which have no order, the
correlation ratio of the ranks. Both are from 0 to 1. Trials that were stopped early count with what they reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rota.sweeps.file import SweepFile
from rota.sweeps.space import ParameterPart
from rota.sweeps.trial import SweepTrial, TrialState

LEAST_TRIALS = 5
Json = dict[str, Any]


def importance(file: SweepFile, trials: Sequence[SweepTrial]) -> Json:
    """Return the method and a number for each parameter; none while there are too few results."""
    told = [trial for trial in trials if trial.curve and np.isfinite(trial.loss) and _counts(trial)]
    if len(told) < LEAST_TRIALS:
        return {"method": None, "by_parameter": {}}
    losses = _ranks(np.array([trial.loss for trial in told]))
    found = {
        name: _association(part, [trial.params[name] for trial in told], losses)
        for name, part in file.parameters.items()
    }
    return {"method": "rank correlation", "by_parameter": found}


def _counts(trial: SweepTrial) -> bool:
    return trial.state is not TrialState.FAILED


def _ranks(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Ranks from 0 on; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    return np.asarray(starts[inverse] + (counts[inverse] - 1) / 2.0)


def _association(part: ParameterPart, values: Sequence[Any], losses: np.ndarray[Any, Any]) -> float:
    if part.choice is None:
        ranks = _ranks(np.array(values, dtype=float))
        if ranks.std() == 0 or losses.std() == 0:
            return 0.0
        return float(abs(np.corrcoef(ranks, losses)[0, 1]))
    spread = float(((losses - losses.mean()) ** 2).sum())
    if spread == 0:
        return 0.0
    groups: dict[str, list[float]] = {}
    for value, loss in zip(values, losses, strict=True):
        groups.setdefault(repr(value), []).append(float(loss))
    between = sum(len(group) * (float(np.mean(group)) - float(losses.mean())) ** 2 for group in groups.values())
    return float(np.sqrt(between / spread))
