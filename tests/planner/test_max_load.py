from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from planner.planning import machines, operator, problem_of, published, random_problem
from rota.core.errors import RotaError
from rota.planner.description.devices import DeviceGraph, GraphDevice
from rota.planner.description.operators import ACCELERATOR, CPU
from rota.planner.description.problem import PlanningProblem
from rota.planner.description.read import read_problem
from rota.planner.ideals import instance, lattice
from rota.planner.methods import max_load
from rota.planner.methods.baechi import plan_baechi
from rota.planner.methods.max_load import plan_linear, plan_max_load
from rota.planner.options import PlannerOptions
from rota.planner.plan import PlanObjective
from rota.planner.registry import run_default
from rota.planner.simulate.loads import max_load_ms, placed_stage, refuse_misplaced

OPTIMA = {
    "layer-bert24_inference": 17.790,
    "layer-bert24_training": 41.746,
    "layer-gnmt_inference": 32.911,
    "layer-gnmt_training": 107.004,
    "layer-inceptionv3_inference": 51.552,
    "layer-inceptionv3_training": 122.762,
    "layer-resnet50_inference": 33.775,
    "layer-resnet50_training": 78.632,
    "operator-bert_l-3_inference": 27.919,
    "operator-bert_l-3_training": 65.303,
    "operator-bert_l-6_inference": 29.580,
    "operator-bert_l-6_training": 72.865,
    "operator-bert_l-12_inference": 147.478,
    "operator-bert_L-12_training": 437.998,
    "operator-resnet50_inference": 124.349,
    "operator-resnet50_training": 255.194,
}
QUICK = [name for name in OPTIMA if "gnmt" not in name and "inception" not in name]


def least_by_trying(problem: PlanningProblem) -> float:
    """The least maximal load over all splits along chains of ideals, by trying every assignment of classes."""
    graph = problem.graph
    classes: dict[object, list[int]] = {}
    for number, each in enumerate(graph.operators):
        classes.setdefault(each.colocation or number, []).append(number)
    groups = list(classes.values())
    names = [device.name for device in problem.devices.devices]
    best = float("inf")
    for placed in itertools.product(range(len(names)), repeat=len(groups)):
        device_of = {number: device for group, device in zip(groups, placed, strict=True) for number in group}
        types = {number: problem.devices.devices[device].type for number, device in device_of.items()}
        if any(types[number] not in each.time_ms for number, each in enumerate(graph.operators)):
            continue
        arcs = {
            (device_of[a], device_of[b])
            for a, b in graph.edges
            if not graph.operators[a].is_backward and not graph.operators[b].is_backward
        }
        if not any(
            all(order.index(a) <= order.index(b) for a, b in arcs)
            for order in map(list, itertools.permutations(range(len(names))))
        ):
            continue
        stages = [
            placed_stage(problem, name, [n for n, device in device_of.items() if device == at])
            for at, name in enumerate(names)
        ]
        caps = {device.name: device.memory_bytes for device in problem.devices.devices}
        if any((cap := caps[stage.devices[0]]) is not None and stage.memory_bytes > cap for stage in stages):
            continue
        best = min(best, max_load_ms(stages))
    return best


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("memory_bytes", [None, 9])
def test_no_assignment_is_better(seed: int, memory_bytes: int | None) -> None:
    problem = random_problem(seed, 6, memory_bytes=memory_bytes)

    plan = plan_max_load(problem)

    refuse_misplaced(problem, plan.stages)
    assert plan.proved_optimal
    assert plan.value_ms == pytest.approx(least_by_trying(problem))


def with_memory(problem: PlanningProblem, *sizes: int | None) -> PlanningProblem:
    """The problem with accelerators of these sizes instead of its own."""
    accelerators = tuple(
        GraphDevice(name=f"a{number}", type=ACCELERATOR, memory_bytes=size) for number, size in enumerate(sizes)
    )
    others = tuple(device for device in problem.devices.devices if device.type == CPU)
    return PlanningProblem(graph=problem.graph, devices=DeviceGraph(devices=accelerators + others))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("sizes", [(5, 12), (12, 5), (7, None)])
def test_no_assignment_is_better_on_unequal_memory(seed: int, sizes: tuple[int | None, ...]) -> None:
    problem = with_memory(random_problem(seed, 6), *sizes)

    plan = plan_max_load(problem)

    refuse_misplaced(problem, plan.stages)
    assert plan.proved_optimal
    assert plan.value_ms == pytest.approx(least_by_trying(problem))


def test_what_fits_the_larger_accelerator_only_is_placed_there() -> None:
    operators = [operator("a", weight_bytes=9), operator("b", weight_bytes=2)]
    problem = problem_of(operators, [(0, 1)], with_memory(random_problem(0), 3, 10).devices)

    for plan in (plan_max_load(problem), plan_linear(problem), plan_baechi(problem)):
        refuse_misplaced(problem, plan.stages)
    assert plan_max_load(problem).device_of() == {0: "a1", 1: "a0"}


def test_many_sizes_of_memory_are_rounded_and_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "MOST_STATES", 6)
    operators = [operator("a", weight_bytes=9), operator("b", weight_bytes=2)]
    problem = with_memory(problem_of(operators, [(0, 1)], machines(1)), 9, 10, 40, 50)

    plan = plan_max_load(problem)

    refuse_misplaced(problem, plan.stages)
    assert not plan.proved_optimal
    assert "similar memory" in plan.notes[0]


@pytest.mark.parametrize("factor", [1e-12, 1e-6, 1e9])
@pytest.mark.parametrize("seed", range(4))
def test_optimum_follows_the_unit_of_time(seed: int, factor: float) -> None:
    problem = random_problem(seed, 6)
    operators = [
        replace(
            each,
            time_ms={name: factor * ms for name, ms in each.time_ms.items()},
            transfer_ms=factor * (each.transfer_ms or 0.0),
        )
        for each in problem.graph.operators
    ]
    scaled = problem_of(operators, problem.graph.edges, problem.devices)

    assert plan_max_load(scaled).value_ms == pytest.approx(factor * least_by_trying(problem), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_known_optimum_of_published_graph(name: str) -> None:
    problem = read_problem(published("graphs", f"{name}.json"))

    plan = plan_max_load(problem)

    refuse_misplaced(problem, plan.stages)
    assert plan.value_ms == pytest.approx(OPTIMA[name], abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OPTIMA if name not in QUICK])
def test_known_optimum_of_large_published_graph(name: str) -> None:
    problem = read_problem(published("graphs", f"{name}.json"))

    plan = plan_max_load(problem)

    refuse_misplaced(problem, plan.stages)
    assert plan.value_ms == pytest.approx(OPTIMA[name], abs=1e-3)
    assert plan.seconds < 60


def test_an_output_read_twice_is_paid_once() -> None:
    readers = [operator("a", 1.0, transfer_ms=3.0), operator("b"), operator("c")]
    problem = problem_of(readers, [(0, 1), (0, 2)], machines(2))

    stage = placed_stage(problem, "a0", [0])

    assert (stage.compute_ms, stage.transfer_ms) == (1.0, 3.0)


def test_cpu_pays_no_transfers() -> None:
    problem = problem_of([operator("a", 1.0, transfer_ms=3.0), operator("b")], [(0, 1)], machines(1, 1))

    assert placed_stage(problem, "c0", [0]).transfer_ms == 0.0
    assert placed_stage(problem, "a0", [1]).transfer_ms == 3.0


def test_operator_that_only_a_cpu_runs_goes_there() -> None:
    only_cpu = problem_of([operator("a"), operator("b"), operator("c")], [(0, 1), (1, 2)], machines(2, 1))
    operators = list(only_cpu.graph.operators)
    operators[1] = type(operators[1])(name="b", time_ms={CPU: 2.0}, transfer_ms=0.0)
    problem = problem_of(operators, [(0, 1), (1, 2)], machines(2, 1))

    plan = plan_max_load(problem)

    assert plan.device_of()[1] == "c0"
    assert ACCELERATOR not in operators[1].time_ms


def test_split_along_one_order_is_never_better() -> None:
    for seed in range(8):
        problem = random_problem(seed, 9, accelerators=3)
        assert plan_linear(problem).value_ms >= plan_max_load(problem).value_ms - 1e-9


def test_memory_that_no_split_fits_is_told() -> None:
    operators = [operator(str(number), weight_bytes=2) for number in range(3)]
    problem = problem_of(operators, [(0, 1), (1, 2)], machines(2, memory_bytes=3))

    with pytest.raises(RotaError, match="no contiguous split fits"):
        plan_max_load(problem)


def test_too_many_ideals_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lattice, "MOST_IDEALS", 100)
    problem = problem_of([operator(str(number)) for number in range(10)], [], machines(2))

    with pytest.raises(RotaError, match="more than 100 ideals"):
        plan_max_load(problem)


def test_graph_that_is_too_wide_is_cut_along_one_order_unless_a_planner_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lattice, "MOST_IDEALS", 100)
    problem = problem_of([operator(str(number)) for number in range(10)], [], machines(2))

    plan = run_default(problem, PlannerOptions(objective=PlanObjective.THROUGHPUT))

    assert (plan.planner, plan.proved_optimal, plan.value_ms) == ("linear", False, 5.0)
    assert "more than 100 ideals" in plan.notes[-1]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("memory_bytes", [None, 9])
def test_rising_bounds_find_the_same_load(seed: int, memory_bytes: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(seed, 6, memory_bytes=memory_bytes)
    once = plan_max_load(problem).value_ms

    monkeypatch.setattr(max_load, "_SMALL", 0)

    assert plan_max_load(problem).value_ms == pytest.approx(once)
