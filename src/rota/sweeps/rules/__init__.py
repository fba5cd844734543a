"""Rules of early stopping by name; each decides from the reported values which trials go on, pause or end."""

from __future__ import annotations

from rota.core.errors import RotaError
from rota.sweeps.file import SweepFile
from rota.sweeps.rules.halving import AsynchronousHalving
from rota.sweeps.rules.hyperband import Hyperband
from rota.sweeps.rules.learning_curve import LearningCurve
from rota.sweeps.rules.median import Median
from rota.sweeps.rules.rule import Never, Rule


def rule_of(file: SweepFile) -> Rule:
    """Make the rule that a sweep file names; raise a `RotaError` where it lacks what the rule needs."""
    part = file.stopping
    if part.rule == "none":
        return Never()
    if part.rule == "median":
        return Median(every=part.every or part.min_steps, first=part.min_steps, least_trials=part.least_trials)
    if part.max_steps is None:
        raise RotaError(f"early_stop.max_steps is missing; rule {part.rule!r} needs the steps of a whole trial")
    if part.rule == "learning-curve":
        return LearningCurve(
            every=part.every or max(1, part.max_steps // 20),
            first=part.min_steps,
            max_steps=part.max_steps,
            parallel=file.parallel,
            least_chance=part.least_chance,
            target=file.loss_of(file.objective.target),
            pauses=file.pauses,
        )
    if part.rule == "hyperband":
        if not file.pauses:
            raise RotaError("job.checkpoint is missing; hyperband pauses trials, and they resume from a checkpoint")
        return Hyperband(least=part.min_steps, most=part.max_steps, factor=part.factor, trials=file.trials)
    return AsynchronousHalving(least=part.min_steps, most=part.max_steps, factor=part.factor, pauses=file.pauses)
