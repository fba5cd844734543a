"""Any graph: `max-load` against brute force, and from the others a whole plan or one line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.planning import machines, operator, problem_of
from planner.test_max_load import least_by_trying
from rota.core.errors import RotaError
from rota.planner.description.devices import fully_connected
from rota.planner.description.operators import GraphOperator
from rota.planner.description.problem import PlanningProblem
from rota.planner.description.published_graph import published_problem
from rota.planner.methods.max_load import plan_max_load
from rota.planner.options import PlannerOptions
from rota.planner.plan import PlacementPlan
from rota.planner.registry import run_planner
from rota.planner.simulate.loads import refuse_misplaced
from rota.planner.simulate.report import plan_report

TIMES = st.floats(0, 9, allow_nan=False)
SOME = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
FEW = settings(SOME, max_examples=12)
PLANNERS = ("linear", "pipedream", "dapple", "baechi", "pesto")
"""Those that place any graph on equal accelerators, without proof."""


@st.composite
def called(draw: st.DrawFn) -> PlanningProblem:
    """A few operators with transfers to and from the host, on two accelerators, maybe small, and maybe a CPU."""
    count = draw(st.integers(1, 6))
    operators = [
        operator(
            f"o{at}", draw(TIMES), cpu_ms=draw(TIMES), transfer_ms=draw(TIMES), weight_bytes=draw(st.integers(0, 4))
        )
        for at in range(count)
    ]
    edges = [(a, b) for b in range(count) for a in range(b) if draw(st.booleans())]
    memory = draw(st.sampled_from([None, 6, 12]))
    return problem_of(operators, edges, machines(2, draw(st.integers(0, 1)), memory))


@st.composite
def linked(draw: st.DrawFn) -> PlanningProblem:
    """A few operators, some without time or bytes, on one to four devices with links."""
    count = draw(st.integers(1, 12))
    operators = [
        GraphOperator(
            name=f"o{at}",
            time_ms={"gpu": draw(TIMES)},
            output_bytes=draw(st.integers(0, 10**8)),
            weight_bytes=draw(st.integers(0, 10**6)),
        )
        for at in range(count)
    ]
    edges = [(a, b) for b in range(count) for a in range(b) if draw(st.integers(0, 3)) == 0]
    memory = draw(st.sampled_from([None, 10**6, 4 * 10**6]))
    return problem_of(operators, edges, fully_connected("gpu", draw(st.integers(1, 4)), memory_bytes=memory))


@st.composite
def published_json(draw: st.DrawFn) -> dict[str, Any]:
    """A graph in the JSON of dnn-partitioning: shared classes, backward nodes, what a CPU alone runs, tight memory."""
    count = draw(st.integers(1, 5))
    color = st.integers(0, count)
    nodes: list[dict[str, Any]] = []
    for number in range(count + draw(st.integers(0, 3)) * (count > 2)):
        is_backward = number >= count
        nodes.append(
            {
                "id": 100 + number,
                "supportedOnFpga": draw(st.sampled_from([1, 1, 1, 0])),
                "cpuLatency": draw(TIMES),
                "fpgaLatency": draw(TIMES),
                "isBackwardNode": int(is_backward),
                "colorClass": nodes[draw(st.integers(0, count - 1))]["colorClass"] if is_backward else draw(color),
                "size": draw(st.integers(0, 16)) / 4,
            }
        )
    costs = [draw(TIMES) for _ in nodes]
    edges = [
        {"sourceId": 100 + a, "destId": 100 + b, "cost": costs[a]}
        for b in range(len(nodes))
        for a in range(b)
        if draw(st.booleans())
    ]
    devices = {"maxFPGAs": draw(st.integers(0, 3)), "maxCPUs": draw(st.integers(1, 2))}
    return {"maxSizePerFPGA": draw(st.sampled_from([0.75, 3.5, 6, 1000])), **devices, "nodes": nodes, "edges": edges}


def planned(planner: str, problem: PlanningProblem) -> PlacementPlan | str:
    """The plan, or the line that says why there is none."""
    try:
        return run_planner(planner, problem, PlannerOptions(micro_batches=2, time_limit_s=1.0))
    except RotaError as error:
        return str(error)


@pytest.mark.slow
@SOME
@given(called())
def test_max_load_is_the_least_of_all_assignments(problem: PlanningProblem) -> None:
    least = least_by_trying(problem)
    if least == float("inf"):
        with pytest.raises(RotaError, match="memory"):
            plan_max_load(problem)
        return
    found = plan_max_load(problem)
    assert found.proved_optimal
    assert found.value_ms == pytest.approx(least, rel=1e-6, abs=1e-9)


@pytest.mark.slow
@SOME
@given(published_json())
def test_max_load_of_published_json_is_the_least_of_all_assignments(value: dict[str, Any]) -> None:
    problem = published_problem(value, "graph.json")
    least = least_by_trying(problem)
    if least == float("inf"):
        with pytest.raises(RotaError):
            plan_max_load(problem)
        return
    found = plan_max_load(problem)
    refuse_misplaced(problem, found.stages)
    assert found.proved_optimal
    assert found.value_ms == pytest.approx(least, rel=1e-6, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("planner", PLANNERS)
def test_plan_is_whole_or_its_absence_is_one_line(planner: str) -> None:
    @FEW
    @given(linked())
    def tried(problem: PlanningProblem) -> None:
        plan = planned(planner, problem)
        if isinstance(plan, str):
            assert "\n" not in plan
            return
        if all(len(stage.devices) == 1 for stage in plan.stages):
            refuse_misplaced(problem, plan.stages)
        assert plan_report(problem, plan).step_ms >= 0

    tried()
