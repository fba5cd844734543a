"""What a planner answers: stages of operators on devices, with the value of what it optimised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from rota.core.errors import RotaError
from rota.planner.simulate.schedules import PipelineSchedule
from rota.planner.simulate.tasks import StepTimeline

ReportProgress = Callable[[float], None]
"""Told the fraction of the work that is done."""


class TooManyIdeals(RotaError):
    """The graph has more ideals than an exact search looks at."""


class PlanObjective(Enum):
    """What a plan is to make small."""

    THROUGHPUT = "throughput"
    """The largest load of a device: the time between two samples of a full pipeline."""
    LATENCY = "latency"
    """The time from the start of one sample (or step) to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStage:
    """Operators that share devices; several devices hold a copy each and split the micro-batches."""

    devices: tuple[str, ...]
    operators: tuple[int, ...]
    compute_ms: float = 0.0
    transfer_ms: float = 0.0
    memory_bytes: float = 0

    @property
    def load_ms(self) -> float:
        """Compute and transfers of one sample."""
        return self.compute_ms + self.transfer_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPlan:
    """Stages in the order in which the first of their operators runs."""

    planner: str
    objective: PlanObjective
    value_ms: float
    stages: tuple[PlanStage, ...]
    seconds: float
    """CPU seconds that planning took."""
    proved_optimal: bool = False
    notes: tuple[str, ...] = ()
    formula_ms: float | None = None
    """The value by the method's own formula, for planners whose paper has one beside what they simulate."""
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    """The order of passes that the plan was made for."""
    of_step: bool = False
    """Whether the value is the length of a step with all of its micro-batches."""
    order: tuple[int, ...] = ()
    """Operators in the order in which devices should take them; empty: as they become ready."""
    timeline: StepTimeline | None = None
    """The simulated step, where more than stages and operators determines it: swaps, operators that run at once."""

    def device_of(self) -> dict[int, str]:
        """The (first) device of each operator."""
        return {number: stage.devices[0] for stage in self.stages for number in stage.operators}
