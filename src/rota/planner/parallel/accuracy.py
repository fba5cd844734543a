"""How far predictions are off what was measured, and whether they rank plans alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.planner.parallel.fitting import MeasuredIteration
from rota.planner.parallel.hardware import Accelerator
from rota.planner.parallel.iteration import iteration_cost
from rota.planner.parallel.plans import TrainingSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedCase:
    """The plans that were measured for one setup: how many, and the place of the best one among those predicted.

    `loss` is by how much the plan that is predicted best was slower, as measured, than the best one.
    """

    setup: TrainingSetup
    plans: int
    place: int
    loss: float


def relative_errors(device: Accelerator, rows: Sequence[MeasuredIteration]) -> list[float]:
    """Predicted over measured time, minus 1, row by row."""
    return [iteration_cost(device, row.setup, row.plan).iteration_s / row.iteration_s - 1 for row in rows]


def mean_absolute(errors: Sequence[float]) -> float:
    """The mean of the errors without their signs."""
    return sum(abs(error) for error in errors) / len(errors)


def ranked_cases(device: Accelerator, rows: Sequence[MeasuredIteration]) -> list[RankedCase]:
    """One case per model, batch and number of devices, in the order of first occurrence."""
    by_setup: dict[TrainingSetup, list[MeasuredIteration]] = {}
    for row in rows:
        by_setup.setdefault(row.setup, []).append(row)
    cases = []
    for setup, plans in by_setup.items():
        predicted = sorted(plans, key=lambda row: iteration_cost(device, row.setup, row.plan).iteration_s)
        best = min(plans, key=lambda row: row.iteration_s)
        loss = predicted[0].iteration_s / best.iteration_s - 1
        cases.append(RankedCase(setup=setup, plans=len(plans), place=predicted.index(best) + 1, loss=loss))
    return cases
