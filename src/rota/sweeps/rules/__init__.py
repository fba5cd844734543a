"""Rules of early stopping by name; each decides from the reported values which trials go on, pause or end."""

from __future__ import annotations

from rota.core.errors import RotaError
from rota.sweeps.file import StoppingPart, SweepFile
from rota.sweeps.rules.halving import AsynchronousHalving
from rota.sweeps.rules.hyperband import Hyperband
from rota.sweeps.rules.learning_curve import LearningCurve
from rota.sweeps.rules.median import MOST_MARKS, Median
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
            every=_every(part),
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


def _every(part: StoppingPart) -> int:
    """Steps between decisions about learning curves."""
    return part.every or max(1, (part.max_steps or 1) // 20)


def refuse_many_marks(file: SweepFile) -> None:
    """Raise a `RotaError` if trials would be judged so often that the manager did nothing else."""
    part = file.stopping
    if part.rule == "learning-curve" and part.max_steps is not None:
        every = _every(part)
        if (part.max_steps - part.min_steps) // every > MOST_MARKS:
            raise RotaError(
                f"early_stop.every is {every} of {part.max_steps} steps; a trial is judged at most {MOST_MARKS} times, "
                f"so that it must be at least {-(-part.max_steps // MOST_MARKS)}"
            )
