from __future__ import annotations

import time

import pytest

from machine_load import slowness
from planner.planning import layered_problem, problem_of
from rota.planner.description.devices import fully_connected
from rota.planner.description.operators import GraphOperator
from rota.planner.options import PlannerOptions
from rota.planner.simulate.loads import refuse_misplaced

pytest.importorskip("torch", reason="PyTorch is not installed")

from rota.planner.learned.spotlight import plan_spotlight


@pytest.mark.slow
def test_learning_finds_that_branches_run_side_by_side() -> None:
    times = {"a": 1.0, "b0": 4.0, "b1": 4.0, "b2": 4.0, "b3": 4.0, "z": 1.0}
    names = [GraphOperator(name=name, time_ms={"gpu": ms}, output_bytes=1) for name, ms in times.items()]
    edges = [(0, n) for n in range(1, 5)] + [(n, 5) for n in range(1, 5)]
    problem = problem_of(names, edges, fully_connected("gpu", 2))

    plan = plan_spotlight(problem, PlannerOptions(coarsen_to=6))

    refuse_misplaced(problem, plan.stages)
    assert plan.value_ms == pytest.approx(10.0, abs=0.1)
    assert plan.value_ms == plan_spotlight(problem, PlannerOptions(coarsen_to=6)).value_ms


@pytest.mark.slow
def test_ten_thousand_operators_are_learned_in_seconds() -> None:
    problem = layered_problem(10_000)
    began_s = time.process_time()

    plan = plan_spotlight(problem, PlannerOptions())

    assert time.process_time() - began_s < 10.0 * min(slowness(), 2.0)
    refuse_misplaced(problem, plan.stages)
