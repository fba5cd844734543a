from __future__ import annotations

import itertools

import pytest

from planner.planning import machines, operator, problem_of
from rota.core.errors import RotaError
from rota.planner.description.devices import DeviceGraph, DeviceLink, GraphDevice
from rota.planner.description.operators import GraphOperator, OperatorGraph
from rota.planner.description.problem import PlanningProblem
from rota.planner.description.rota_graph import rota_problem
from rota.planner.edge.pico import plan_pico
from rota.planner.options import PlannerOptions
from rota.planner.pipelines.chain import layer_chain
from rota.planner.registry import run_planner
from rota.planner.server.overlap import OverlapPredictor, graph_queries, plan_overlap
from rota.planner.server.swap import all_swap_plans, plan_swap
from rota.planner.server.threads import climbed, co_run, plan_threads, thread_times
from rota.planner.simulate.report import StepSettings, plan_report


def layers(count: int, *, weight_bytes: int = 100, activation_bytes: int = 10) -> OperatorGraph:
    return OperatorGraph(
        operators=tuple(
            GraphOperator(
                name=f"l{number}",
                time_ms={"gpu": 3.0},
                output_bytes=activation_bytes,
                resident_bytes=activation_bytes,
                weight_bytes=weight_bytes,
            )
            for number in range(count)
        ),
        edges=tuple((number, number + 1) for number in range(count - 1)),
    )


def gpu(memory_bytes: int | None) -> DeviceGraph:
    return DeviceGraph(devices=(GraphDevice(name="g0", type="gpu", memory_bytes=memory_bytes),))


def swapped(memory_bytes: int, batches: int = 4) -> dict[tuple[int, bool], float]:
    chain = layer_chain(PlanningProblem(graph=layers(6), devices=gpu(None)))
    return {
        (plan.group, plan.early_update): plan.in_bytes + plan.out_bytes
        for plan in all_swap_plans(chain, memory_bytes, batches, 10.0)
    }


def test_nothing_is_moved_back_and_forth_where_all_fits() -> None:
    weights_and_state = 6 * 100 * 3

    assert set(swapped(10**6).values()) == {float(weights_and_state)}


def test_grouping_micro_batches_moves_weights_less_often() -> None:
    moved = swapped(450)

    assert moved[4, True] < moved[2, True] < moved[1, True]
    assert moved[4, True] < 0.6 * moved[1, False]


def test_early_updates_move_less_than_late_ones() -> None:
    moved = swapped(450)

    assert all(moved[group, True] < moved[group, False] for group in (1, 2, 4))


def test_swap_plan_takes_the_shortest_step() -> None:
    problem = problem_of(layers(6).operators, layers(6).edges, gpu(700))
    plan = plan_swap(problem, PlannerOptions(micro_batches=4))

    assert plan.value_ms >= 6 * 3.0 * 4
    assert "groups of" in plan.notes[0]


def test_evaluator_judges_swapping_by_its_own_step() -> None:
    problem = PlanningProblem(graph=layers(6), devices=gpu(450))
    plan = plan_swap(problem, PlannerOptions(micro_batches=4))

    report = plan_report(problem, plan, StepSettings(micro_batches=4))

    assert report.evaluated_ms == report.step_ms == plan.value_ms
    assert plan.stages[0].load_ms == pytest.approx(plan.value_ms / 4)
    assert 0 < report.peak_bytes <= 450
    assert report.timeline.memory[problem.devices.devices[0].name][-1][1] >= 0
    with pytest.raises(RotaError, match="order of its own; --schedule"):
        plan_report(problem, plan, StepSettings(micro_batches=4, recompute=True))


def test_swap_takes_a_model_that_no_device_holds() -> None:
    problem = PlanningProblem(graph=layers(6), devices=gpu(450))

    plan = run_planner("swap", problem, PlannerOptions(micro_batches=4))

    assert plan.value_ms >= 6 * 3.0 * 4
    with pytest.raises(RotaError, match="never fits"):
        run_planner("baechi", problem, PlannerOptions())


def test_swap_tells_what_it_lacks() -> None:
    with pytest.raises(RotaError, match="add `memory_bytes`"):
        plan_swap(PlanningProblem(graph=layers(2), devices=gpu(None)))
    with pytest.raises(RotaError, match="alone needs more"):
        plan_swap(PlanningProblem(graph=layers(2), devices=gpu(250)))


def threaded(times: list[dict[int, float]], edges: list[tuple[int, int]]) -> PlanningProblem:
    entries = [
        {
            "name": f"o{number}",
            "time_ms": {f"cpu@{count}": ms for count, ms in table.items()},
            "inputs": [f"o{first}" for first, second in edges if second == number],
        }
        for number, table in enumerate(times)
    ]
    return rota_problem({"operators": entries, "devices": [{"type": "cpu"}]}, "file")


def test_threads_are_climbed_to_a_local_best() -> None:
    assert climbed({1: 8.0, 2: 5.0, 4: 4.0, 8: 6.0}) == 4
    assert climbed({1: 1.0, 2: 2.0, 4: 3.0}) == 1
    assert climbed({4: 2.0}) == 4


def test_operators_run_beside_each_other_where_cores_are_free() -> None:
    table = {1: 6.0, 2: 4.0, 4: 3.5}
    problem = threaded([table, table, {1: 1.0, 2: 1.0, 4: 1.0}], [(0, 2), (1, 2)])

    plan = plan_threads(problem)

    assert plan.value_ms == pytest.approx(4.0 + 1.0)
    found = co_run(problem.graph, thread_times(problem.graph), 4, cap=2)
    assert found.threads[:2] == (2, 2)


def test_cores_are_never_more_than_there_are() -> None:
    tables = [{1: 4.0 + n, 2: 2.5 + n, 4: 1.5 + n} for n in range(6)]
    problem = threaded(tables, [(0, 3), (1, 3), (2, 4)])
    found = co_run(problem.graph, thread_times(problem.graph), 4)

    assert sorted(found.order) == list(range(6))
    assert found.step_ms <= sum(table[4] for table in tables) + 1e-9
    assert all(count in (1, 2, 4) for count in found.threads)


def test_operator_without_times_by_threads_is_told() -> None:
    with pytest.raises(RotaError, match="no times by threads"):
        plan_threads(problem_of([operator("a")], [], machines(1, 1)))


def queries(occupancy: float) -> PlanningProblem:
    names = [
        GraphOperator(name=f"{query}{number}", time_ms={"gpu": 2.0}, occupancy=occupancy)
        for query in "ab"
        for number in range(3)
    ]
    return problem_of(names, [(0, 1), (1, 2), (3, 4), (4, 5)], gpu(None))


def test_light_operators_overlap_and_heavy_ones_do_not() -> None:
    assert plan_overlap(queries(0.5)).value_ms == 6.0
    assert plan_overlap(queries(1.0)).value_ms == 12.0
    assert OverlapPredictor(slowdown=1.5).group_ms([(2.0, 0.5), (2.0, 0.5)]) == 3.0


def test_bound_keeps_a_query_from_being_slowed_by_others() -> None:
    free = plan_overlap(queries(0.75), PlannerOptions(deadline_ms=9.0))
    tight = plan_overlap(queries(0.75), PlannerOptions(deadline_ms=6.0))

    assert free.value_ms == 9.0
    assert "1 late" in tight.notes[0]
    assert [len(query.operators) for query in graph_queries(queries(0.5), None)] == [3, 3]


def boards(*speeds: float) -> DeviceGraph:
    names = [f"board{number}" for number in range(len(speeds))]
    return DeviceGraph(
        devices=tuple(GraphDevice(name=name, type=f"x{speed:g}") for name, speed in zip(names, speeds, strict=True)),
        links=tuple(DeviceLink(source=a, target=b, bytes_per_ms=1e3) for a, b in itertools.combinations(names, 2)),
    )


def convolutions(devices: DeviceGraph, times: list[float]) -> PlanningProblem:
    operators = [
        GraphOperator(
            name=f"c{number}",
            time_ms={device.type: ms / float(device.type[1:]) for device in devices.devices},
            output_bytes=100,
        )
        for number, ms in enumerate(times)
    ]
    return problem_of(operators, [(number, number + 1) for number in range(len(times) - 1)], devices)


def test_equal_boards_share_a_chain_nearly_evenly() -> None:
    plan = plan_pico(convolutions(boards(1, 1, 1, 1), [5.0] * 8))

    assert sum(len(stage.devices) for stage in plan.stages) == 4
    assert plan.value_ms == pytest.approx(10.0, rel=0.1)


def test_fast_boards_go_to_the_stages_with_more_work() -> None:
    plan = plan_pico(convolutions(boards(1, 3), [2.0, 2.0, 2.0, 30.0]))

    slow_work = sum(
        2.0 if number < 3 else 30.0
        for stage in plan.stages
        for number in stage.operators
        if stage.devices == ("board0",)
    )
    assert slow_work <= 6.0
    assert plan.value_ms < 36.0 / 3


def test_pico_needs_times_on_every_board() -> None:
    problem = problem_of(
        [operator("a")], [], DeviceGraph(devices=(*machines(1, 1).devices, GraphDevice(name="x", type="x")))
    )

    with pytest.raises(RotaError, match="all operators on x"):
        plan_pico(problem)
