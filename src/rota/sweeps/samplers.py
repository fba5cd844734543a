"""Samplers: the parameters of the next trial, from the file, the trials so far and the trial's number.

None of them keeps a state: after a restart of the manager the same trials give the same next one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rota.core.errors import RotaError
from rota.sweeps.file import SweepFile
from rota.sweeps.space import ParameterPart, drawn, plain
from rota.sweeps.trial import Params, SweepTrial, TrialState

STARTUP_TRIALS = 10
"""Trials at random before the model of TPE is used."""


def sample(file: SweepFile, number: int, trials: Sequence[SweepTrial]) -> Params:
    """Return the parameters of the trial of a number, given those before it."""
    match file.sampler:
        case "grid":
            return grid_point(file.parameters, number)
        case "tpe":
            return _by_tpe(file, number, trials)
        case _:
            return drawn(file.parameters, file.seed, number)


def grid_point(parameters: dict[str, ParameterPart], number: int) -> Params:
    """Return a point of the grid; the last parameter changes fastest."""
    found: Params = {}
    for name, part in reversed(parameters.items()):
        values = part.grid()
        number, index = divmod(number, len(values))
        found[name] = values[index]
    return {name: found[name] for name in parameters}


def refuse_unavailable(file: SweepFile) -> None:
    """Raise a `RotaError` if the sampler needs a library that is not installed."""
    if file.sampler == "tpe":
        _optuna()


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise RotaError(
            "sampler: 'tpe' needs Optuna beside the manager; install rota[sweeps], or use random or grid"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _by_tpe(file: SweepFile, number: int, trials: Sequence[SweepTrial]) -> Params:
    """Ask Optuna's TPE, told of all trials so far; those that run count as bad, so that others are tried."""
    optuna = _optuna()
    distributions = {name: _distribution(optuna, part) for name, part in file.parameters.items()}
    sampler = optuna.samplers.TPESampler(
        seed=(file.seed * 1_000_003 + number) % 2**32, constant_liar=True, n_startup_trials=STARTUP_TRIALS
    )
    study = optuna.create_study(sampler=sampler)
    study.add_trials([_told(optuna, trial, distributions) for trial in trials])
    asked = study.ask(distributions).params
    return {name: _taken(part, asked[name]) for name, part in file.parameters.items()}


def _distribution(optuna: Any, part: ParameterPart) -> Any:
    kinds = optuna.distributions
    if part.choice is not None:
        return kinds.CategoricalDistribution([plain(value) for value in part.choice])
    low, high = part.bounds
    if part.is_whole:
        return kinds.IntDistribution(int(low), int(high), log=part.is_log)
    return kinds.FloatDistribution(low, high, log=part.is_log)


def _told(optuna: Any, trial: SweepTrial, distributions: dict[str, Any]) -> Any:
    """A trial as Optuna knows it: completed with its value, stopped or paused with what it reported, or running."""
    states = optuna.trial.TrialState
    curve = {step: value for step, value in trial.curve if math.isfinite(value)}
    value: float | None = None
    if trial.state is TrialState.COMPLETED and math.isfinite(trial.loss):
        state, value = states.COMPLETE, trial.loss
    elif trial.state is TrialState.ACTIVE:
        state = states.RUNNING
    elif trial.state in (TrialState.FAILED, TrialState.CANCELLED) or not curve:
        state = states.FAIL
    else:
        state = states.PRUNED
    return optuna.trial.create_trial(
        state=state, value=value, params=trial.params, distributions=distributions, intermediate_values=curve
    )


def _taken(part: ParameterPart, value: Any) -> Any:
    return int(value) if part.is_whole else value
