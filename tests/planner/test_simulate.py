from __future__ import annotations

import pytest

from planner.planning import machines, operator, problem_of
from rota.core.errors import RotaError
from rota.planner.description.devices import DeviceGraph, DeviceLink, GraphDevice
from rota.planner.description.operators import ACCELERATOR
from rota.planner.description.problem import PlanningProblem
from rota.planner.plan import PlacementPlan, PlanObjective
from rota.planner.simulate.calls import call_latency_ms, contiguous_pieces
from rota.planner.simulate.latency import stages_of
from rota.planner.simulate.loads import placed_stage, refuse_misplaced
from rota.planner.simulate.operators import simulate_placement
from rota.planner.simulate.report import StepSettings, plan_report
from rota.planner.simulate.tasks import SimTask, simulate_tasks


def linked(count: int, *, medium: str | None = None, memory_bytes: int | None = None) -> DeviceGraph:
    devices = tuple(
        GraphDevice(name=f"a{number}", type=ACCELERATOR, memory_bytes=memory_bytes) for number in range(count)
    )
    links = tuple(
        DeviceLink(source=f"a{first}", target=f"a{second}", bytes_per_ms=1.0, latency_ms=0.5, medium=medium)
        for first in range(count)
        for second in range(first + 1, count)
    )
    return DeviceGraph(devices=devices, links=links)


def test_parallel_branches_run_at_once_on_two_devices() -> None:
    names = [operator(name, 2.0) for name in "abcd"]
    problem = problem_of(names, [(0, 1), (0, 2), (1, 3), (2, 3)], machines(2))

    assert simulate_placement(problem, dict.fromkeys(range(4), "a0")).step_ms == 8.0
    assert simulate_placement(problem, {0: "a0", 1: "a0", 2: "a1", 3: "a0"}).step_ms == 6.0


def test_data_goes_out_once_and_into_each_reader() -> None:
    names = [operator("a", 1.0, transfer_ms=2.0), operator("b"), operator("c")]
    problem = problem_of(names, [(0, 1), (0, 2)], machines(3, 1))

    assert simulate_placement(problem, {0: "a0", 1: "a1", 2: "a2"}).step_ms == 1 + 2 + 2 + 1
    assert simulate_placement(problem, {0: "a0", 1: "a1", 2: "a1"}).step_ms == 1 + 2 + 2 + 1 + 1
    assert simulate_placement(problem, {0: "a0", 1: "c0", 2: "a0"}).step_ms == 1 + 2 + 10


def test_transfers_over_one_medium_take_turns() -> None:
    names = [operator(name, 1.0, transfer_ms=None, output_bytes=4) for name in "abcd"]
    edges = [(0, 2), (1, 3)]
    apart = {0: "a0", 1: "a1", 2: "a2", 3: "a3"}

    own = simulate_placement(problem_of(names, edges, linked(4)), apart)
    shared = simulate_placement(problem_of(names, edges, linked(4, medium="bus")), apart)

    assert (own.step_ms, shared.step_ms) == (1 + 4.5 + 1, 1 + 9 + 1)


def test_memory_holds_weights_and_outputs_until_they_are_read() -> None:
    names = [operator(name, 1.0, output_bytes=10, weight_bytes=100) for name in "abc"]
    problem = problem_of(names, [(0, 1), (1, 2)], machines(1))

    step = simulate_placement(problem, dict.fromkeys(range(3), "a0"))

    assert step.peak_bytes == {"a0": 300 + 20}
    assert step.memory["a0"][-1][1] == 310


def test_order_decides_which_ready_operator_is_first() -> None:
    names = [operator("a", 1.0), operator("b", 1.0), operator("c", 5.0)]
    problem = problem_of(names, [(1, 2)], machines(2))
    where = {0: "a0", 1: "a0", 2: "a1"}

    assert simulate_placement(problem, where).step_ms == 6.0
    assert simulate_placement(problem, where, order=(0, 1, 2)).step_ms == 7.0


def test_call_waits_for_all_inputs_and_pays_them_in_turn() -> None:
    names = [operator(name, 1.0, transfer_ms=2.0) for name in "abc"]
    problem = problem_of(names, [(0, 2), (1, 2)], machines(3))
    stages = [placed_stage(problem, f"a{number}", [number]) for number in range(3)]

    assert call_latency_ms(problem, stages) == (1 + 2) + (2 + 2 + 1)


def test_device_that_a_path_leaves_and_enters_again_is_called_twice() -> None:
    problem = problem_of([operator(name) for name in "abc"], [(0, 1), (1, 2)], machines(2))

    assert contiguous_pieces(problem, [0, 2]) == [[0], [2]]
    assert contiguous_pieces(problem, [0, 1]) == [[0, 1]]


def test_order_that_contradicts_itself_is_told() -> None:
    tasks = [
        SimTask(name="a", resource="x", duration_ms=1.0, after=[1]),
        SimTask(name="b", resource="x", duration_ms=1.0, after=[0]),
    ]

    with pytest.raises(RotaError, match="'a' never becomes ready"):
        simulate_tasks(tasks)


def test_broken_plans_are_told() -> None:
    names = [operator("a", weight_bytes=5, colocation="k"), operator("b", colocation="k")]
    problem = problem_of(names, [(0, 1)], machines(2, memory_bytes=6))

    with pytest.raises(RotaError, match="'b' is placed nowhere"):
        refuse_misplaced(problem, [placed_stage(problem, "a0", [0])])
    with pytest.raises(RotaError, match="class k is split"):
        refuse_misplaced(problem, [placed_stage(problem, f"a{number}", [number]) for number in range(2)])
    with pytest.raises(RotaError, match="placed twice"):
        refuse_misplaced(problem, [placed_stage(problem, "a0", [0, 1]), placed_stage(problem, "a1", [1])])


def placed(problem: PlanningProblem, device_of: dict[int, str], objective: PlanObjective) -> PlacementPlan:
    return PlacementPlan(
        planner="by hand", objective=objective, value_ms=0.0, stages=stages_of(problem, device_of), seconds=0.0
    )


def test_step_of_a_plan_does_not_depend_on_its_objective() -> None:
    problem = problem_of([operator("a", 2.0), operator("b", 3.0)], [(0, 1)], machines(2))
    plans = [placed(problem, {0: "a0", 1: "a1"}, objective) for objective in PlanObjective]

    reports = [plan_report(problem, plan, StepSettings(micro_batches=4)) for plan in plans]

    assert [report.step_ms for report in reports] == [2.0 + 4 * 3.0] * 2
    assert [report.latency_ms for report in reports] == [5.0] * 2


def test_samples_of_stages_that_are_no_pipeline_run_one_after_the_other() -> None:
    problem = problem_of([operator("a", 2.0), operator("b", 3.0), operator("c")], [(0, 1), (1, 2)], machines(2))
    plan = placed(problem, {0: "a0", 1: "a1", 2: "a0"}, PlanObjective.LATENCY)

    assert plan_report(problem, plan, StepSettings(micro_batches=4)).step_ms == pytest.approx(4 * 6.0)
