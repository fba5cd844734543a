"""How far predictions are off what was measured, and whether they rank plans alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.planner.parallel.fitting import MeasuredIteration
from rota.planner.parallel.hardware import Accelerator
from rota.planner.parallel.iteration import iteration_cost
from rota.planner.parallel.plans import TrainingSetup
from rota.planner.parallel.transformer import TransformerShape


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedCase:
    """Plans that were measured for one model: how many, and the place of the best one among those predicted.

    `setup` is that of the best plan; `loss` is by how much the plan that is predicted best was slower, as measured,
    than the best one.
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


def ranked_cases(
    device: Accelerator, rows: Sequence[MeasuredIteration], *, across_batches: bool = False
) -> list[RankedCase]:
    """One case per model, batch and number of devices, in the order of first occurrence.

    Across batches there is one case per model and number of devices, and plans are compared by the time of a sequence.
    """
    by_case: dict[tuple[TransformerShape, int, int], list[MeasuredIteration]] = {}
    for row in rows:
        batch = 0 if across_batches else row.setup.batch
        by_case.setdefault((row.setup.shape, row.setup.gpus, batch), []).append(row)
    return [_ranked(device, plans) for plans in by_case.values()]


def _ranked(device: Accelerator, plans: list[MeasuredIteration]) -> RankedCase:
    def measured_s(row: MeasuredIteration) -> float:
        return row.iteration_s / row.setup.batch

    predicted = sorted(plans, key=lambda row: iteration_cost(device, row.setup, row.plan).iteration_s / row.setup.batch)
    best = min(plans, key=measured_s)
    return RankedCase(
        setup=best.setup,
        plans=len(plans),
        place=predicted.index(best) + 1,
        loss=measured_s(predicted[0]) / measured_s(best) - 1,
    )
