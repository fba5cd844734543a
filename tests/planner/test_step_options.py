"""How the step of a plan is simulated: schedules, chunks, recomputation, swapping, and a method's own formula."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.planning import problem_of
from rota.core.errors import RotaError
from rota.planner.description.devices import fully_connected
from rota.planner.description.operators import GraphOperator
from rota.planner.description.problem import PlanningProblem
from rota.planner.options import PlannerOptions
from rota.planner.plan import PlacementPlan, PlanStage
from rota.planner.registry import run_planner
from rota.planner.simulate.report import PlanReport, StepSettings, plan_report
from rota.planner.simulate.schedules import PipelineSchedule

LAYERS, STAGES, BATCHES = 8, 4, 8
OPTIONS = PlannerOptions(micro_batches=BATCHES)


def training(*, backward: float = 2 / 3) -> PlanningProblem:
    """Equal layers of 3 ms, both passes in one operator, on four devices whose links cost nothing."""
    layers = [
        GraphOperator(name=f"l{at}", time_ms={"gpu": 3.0}, output_bytes=6, resident_bytes=60, backward_share=backward)
        for at in range(LAYERS)
    ]
    edges = [(at, at + 1) for at in range(LAYERS - 1)]
    return problem_of(layers, edges, fully_connected("gpu", STAGES, bytes_per_ms=1e12))


def plan(problem: PlanningProblem) -> PlacementPlan:
    return run_planner("max-load", problem, OPTIONS)


def step(**settings: object) -> PlanReport:
    problem = training()
    return plan_report(problem, plan(problem), StepSettings(micro_batches=BATCHES, **settings))  # type: ignore[arg-type]  # keywords as the case names them


@pytest.mark.parametrize("chunks", [1, 2])
def test_bubble_is_that_of_the_formula(chunks: int) -> None:
    """(p - 1) / (v m) of the ideal time, for p stages, m micro-batches and v chunks (Narayanan et al., SC 2021)."""
    share = (STAGES - 1) / (chunks * BATCHES)

    found = step(schedule=PipelineSchedule.INTERLEAVED, chunks=chunks)

    assert found.bubble == pytest.approx(share / (1 + share), rel=1e-6)
    assert found.step_ms == pytest.approx(BATCHES * 6.0 * (1 + share), rel=1e-6)


def test_gpipe_keeps_all_micro_batches_and_1f1b_as_many_as_stages() -> None:
    gpipe, usual = (step(schedule=each) for each in (PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B))

    assert gpipe.step_ms == pytest.approx(usual.step_ms)
    assert (gpipe.peak_bytes, usual.peak_bytes) == (BATCHES * 120, STAGES * 120)


def test_recomputation_costs_a_forward_pass_and_keeps_inputs_only() -> None:
    usual, again = step(), step(recompute=True)

    assert again.step_ms == pytest.approx(usual.step_ms * 4 / 3)
    # The first stage has no input to keep; the second keeps 6 bytes for each of three, and one in full.
    assert again.peak_bytes < usual.peak_bytes / 3


def test_swapping_takes_memory_off_the_device() -> None:
    fast, slow = step(swap_bytes_per_ms=1e9), step(swap_bytes_per_ms=1.0)

    assert fast.peak_bytes < step().peak_bytes
    assert fast.step_ms == pytest.approx(step().step_ms)
    assert slow.step_ms > 2 * fast.step_ms


def test_recomputation_needs_a_backward_pass() -> None:
    problem = training(backward=0.0)

    with pytest.raises(RotaError, match="has no backward pass; --recompute and --swap are for graphs of a training"):
        plan_report(problem, plan(problem), StepSettings(recompute=True))


def test_schedules_are_for_pipelines() -> None:
    """A device that gets the first and the last layer waits for the other one in between."""
    problem = training()
    stages = (
        PlanStage(devices=("gpu-0",), operators=(0, *range(2, LAYERS))),
        PlanStage(devices=("gpu-1",), operators=(1,)),
    )
    crossed = replace(plan(problem), planner="baechi", stages=stages)

    with pytest.raises(RotaError, match="the plan of baechi is no pipeline"):
        plan_report(problem, crossed, StepSettings(schedule=PipelineSchedule.GPIPE))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"chunks": 2}, "--chunks 2 is for --schedule interleaved"),
        ({"chunks": 0, "schedule": PipelineSchedule.INTERLEAVED}, "--chunks 0; at least 1"),
        ({"swap_bytes_per_ms": 0.0}, "--swap 0 GB/s; it must be more than 0"),
        ({"swap_bytes_per_ms": float("nan")}, "--swap nan GB/s"),
    ],
)
def test_wrong_settings_are_one_line(settings: dict[str, object], told: str) -> None:
    with pytest.raises(RotaError, match=told):
        StepSettings(**settings)  # type: ignore[arg-type]  # keywords as the case names them


def test_more_chunks_than_layers_are_refused() -> None:
    with pytest.raises(RotaError, match="3 chunks on each of 4 stages need 12 layers"):
        step(schedule=PipelineSchedule.INTERLEAVED, chunks=3)


@pytest.mark.parametrize("name", ["pipedream", "dapple"])
def test_method_tells_its_formula_beside_the_evaluator(name: str) -> None:
    problem = training()

    found = run_planner(name, problem, OPTIONS)
    report = plan_report(problem, found, StepSettings(micro_batches=BATCHES))

    assert found.formula_ms is not None
    assert report.evaluated_ms == pytest.approx(found.formula_ms, rel=0.01)
    assert found.of_step == (name == "dapple")
