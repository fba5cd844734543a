"""How much each parameter matters for the result of a trial.

Trials are ranked by how far their rule let them go, then by their loss there: one that was stopped early is worse than
one that was promoted, and its loss is not compared with that of a later step. The measure is the multiple correlation
of these ranks with a parabola of the parameter's rank, adjusted for its two degrees of freedom: the best learning rate
lies within its range, so that a measure of monotone relations would miss it. For choices, which have no order, it is
the correlation ratio, adjusted likewise. All are from 0 (no more than chance) to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rota.sweeps.file import SweepFile
from rota.sweeps.rules import rule_of
from rota.sweeps.space import ParameterPart
from rota.sweeps.trial import SweepTrial, TrialState

LEAST_TRIALS = 5
Json = dict[str, Any]
Ranks = np.ndarray[Any, Any]


def importance(file: SweepFile, trials: Sequence[SweepTrial]) -> Json:
    """Return the method and a number for each parameter; none while there are too few results."""
    told = [trial for trial in trials if trial.curve and np.isfinite(trial.loss) and _counts(trial)]
    if len(told) < LEAST_TRIALS:
        return {"method": None, "by_parameter": {}}
    ranks = _ranks_of_results(file, told)
    found = {
        name: _association(part, [trial.params[name] for trial in told], ranks)
        for name, part in file.parameters.items()
    }
    return {"method": "adjusted rank correlation", "by_parameter": found}


def _counts(trial: SweepTrial) -> bool:
    return trial.state is not TrialState.FAILED


def _ranks_of_results(file: SweepFile, trials: Sequence[SweepTrial]) -> Ranks:
    """Ranks of trials from 0 to 1, the best first: those that passed more marks, then by the loss at the last of them.

    Trials of a bracket are ranked among themselves: another one has other marks.
    """
    rule = rule_of(file)
    brackets: dict[int, list[int]] = {}
    for place, trial in enumerate(trials):
        brackets.setdefault(rule.bracket(trial.number), []).append(place)
    found = np.empty(len(trials))
    for places in brackets.values():
        results = [_result(trials[place]) for place in places]
        order = {result: rank for rank, result in enumerate(sorted(set(results)))}
        ranks = _ranks(np.array([order[result] for result in results], dtype=float))
        found[places] = (ranks + 0.5) / len(places)
    return found


def _result(trial: SweepTrial) -> tuple[int, float]:
    if trial.state is TrialState.COMPLETED:  # its rule let it go on to the end
        return -len(trial.values) - 1, trial.loss
    return -len(trial.values), next(reversed(trial.values.values()), trial.loss)


def _ranks(values: Ranks) -> Ranks:
    """Ranks from 0 on; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    return np.asarray(starts[inverse] + (counts[inverse] - 1) / 2.0)


def _association(part: ParameterPart, values: Sequence[Any], ranks: Ranks) -> float:
    whole = float(((ranks - ranks.mean()) ** 2).sum())
    if whole == 0:
        return 0.0
    if part.choice is None:
        at = _ranks(np.array(values, dtype=float))
        at = (at - at.mean()) / max(len(at), 1)
        terms = np.column_stack([np.ones(len(at)), at, at * at])
        fitted = terms @ np.linalg.lstsq(terms, ranks, rcond=None)[0]
        freedom = int(np.linalg.matrix_rank(terms)) - 1
    else:
        groups: dict[str, list[int]] = {}
        for place, value in enumerate(values):
            groups.setdefault(repr(value), []).append(place)
        fitted = np.empty(len(ranks))
        for group in groups.values():
            fitted[group] = ranks[group].mean()
        freedom = len(groups) - 1
    left = float(((ranks - fitted) ** 2).sum())
    return _adjusted(1.0 - left / whole, len(ranks), freedom)


def _adjusted(explained: float, count: int, freedom: int) -> float:
    """The square root of the part that is explained, less what chance explains with so many degrees of freedom."""
    if freedom == 0 or count - freedom - 1 <= 0:
        return 0.0
    found = 1.0 - (1.0 - explained) * (count - 1) / (count - freedom - 1)
    return float(np.sqrt(min(max(found, 0.0), 1.0)))
