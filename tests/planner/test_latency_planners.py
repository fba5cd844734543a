from __future__ import annotations

import itertools
import time

import pytest

from machine_load import slowness
from planner.planning import layered_problem, machines, operator, problem_of, published, random_problem
from rota.core.errors import RotaError
from rota.planner.description.devices import DeviceGraph, DeviceLink, GraphDevice, fully_connected
from rota.planner.description.operators import ACCELERATOR
from rota.planner.description.problem import PlanningProblem
from rota.planner.description.read import read_problem
from rota.planner.methods.baechi import favourite_children, plan_baechi
from rota.planner.methods.coarsen import coarsened
from rota.planner.methods.list_schedule import MemoryListScheduler
from rota.planner.methods.pesto import plan_pesto
from rota.planner.options import PlannerOptions
from rota.planner.registry import PLANNERS, planner_named, run_planner
from rota.planner.simulate.latency import placement_latency_ms, stages_of
from rota.planner.simulate.loads import refuse_misplaced

GREEDY = {
    "layer-bert24": 100.219,
    "layer-gnmt": 268.5,
    "layer-inceptionv3": 2485.24,
    "layer-resnet50": 4197.06,
    "operator-bert_l-3": 416.204,
    "operator-bert_l-6": 494.135,
    "operator-bert_l-12": 867.839,
    "operator-resnet50": 839.536,
}
SHORT = PlannerOptions(time_limit_s=3.0)


def two_linked(count: int = 2, gb: float = 1.0) -> DeviceGraph:
    names = [f"g{number}" for number in range(count)]
    return DeviceGraph(
        devices=tuple(GraphDevice(name=name, type=ACCELERATOR) for name in names),
        links=tuple(DeviceLink(source=a, target=b, bytes_per_ms=gb * 1e6) for a, b in itertools.combinations(names, 2)),
    )


def branches(widths_ms: list[float], *, output_bytes: int = 10**6) -> PlanningProblem:
    """A source, branches of one operator each, and a sink, on two linked devices."""
    middle = [operator(f"b{n}", ms, transfer_ms=None, output_bytes=output_bytes) for n, ms in enumerate(widths_ms)]
    ends = [operator(name, 1.0, transfer_ms=None, output_bytes=output_bytes) for name in ("source", "sink")]
    edges = [(0, 2 + n) for n in range(len(middle))] + [(2 + n, 1) for n in range(len(middle))]
    return problem_of([*ends, *middle], edges, two_linked())


@pytest.mark.parametrize("name", sorted(GREEDY))
def test_baechi_is_not_worse_than_greedy(name: str) -> None:
    problem = read_problem(published("latency", f"{name}_inference.json"))

    plan = plan_baechi(problem)

    refuse_misplaced(problem, plan.stages)
    assert plan.value_ms <= GREEDY[name] + 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(GREEDY))
def test_pesto_is_not_worse_than_greedy(name: str) -> None:
    problem = read_problem(published("latency", f"{name}_inference.json"))

    plan = plan_pesto(problem)

    refuse_misplaced(problem, plan.stages)
    assert plan.value_ms <= GREEDY[name] + 1e-3


def test_pesto_finds_the_best_placement_of_branches() -> None:
    problem = branches([5.0, 4.0, 3.0, 2.0])
    names = [device.name for device in problem.devices.devices]
    best = min(
        placement_latency_ms(problem, stages_of(problem, dict(enumerate(where))))
        for where in itertools.product(names, repeat=len(problem.graph))
    )

    plan = plan_pesto(problem, SHORT)

    assert plan.value_ms == pytest.approx(best)


def test_pesto_proves_only_where_its_program_is_a_bound() -> None:
    even = plan_pesto(branches([5.0, 4.0]), PlannerOptions(time_limit_s=3.0, coarsen_to=10))
    problem = branches([5.0, 4.0])
    slower = DeviceLink(source="g0", target="g2", bytes_per_ms=1.0)
    third = GraphDevice(name="g2", type=ACCELERATOR)
    uneven = DeviceGraph(
        devices=(*problem.devices.devices, third),
        links=(*two_linked(3).links[:1], slower, DeviceLink(source="g1", target="g2", bytes_per_ms=1e6)),
    )

    plan = plan_pesto(PlanningProblem(graph=problem.graph, devices=uneven), SHORT)

    assert not plan.proved_optimal
    assert even.proved_optimal


def test_pesto_keeps_branches_together_where_links_are_slow() -> None:
    plan = plan_pesto(branches([1.0, 1.0], output_bytes=10**9), SHORT)

    assert len(plan.stages) == 1


def test_memory_spreads_operators_over_devices() -> None:
    operators = [operator(str(number), weight_bytes=4) for number in range(4)]
    problem = problem_of(operators, [(0, 1), (1, 2), (2, 3)], machines(2, memory_bytes=8))

    for planner in ("pesto", "baechi"):
        plan = run_planner(planner, problem, SHORT)
        refuse_misplaced(problem, plan.stages)
        assert len(plan.stages) == 2


@pytest.mark.slow
@pytest.mark.parametrize("planner", ["pesto", "baechi"])
@pytest.mark.parametrize("seed", range(6))
def test_plans_are_whole_and_worth_what_they_say(planner: str, seed: int) -> None:
    problem = random_problem(seed, 9, accelerators=3, memory_bytes=15)

    plan = run_planner(planner, problem, SHORT)

    refuse_misplaced(problem, plan.stages)
    assert plan.value_ms == pytest.approx(placement_latency_ms(problem, plan.stages, plan.order))


def test_list_schedule_that_runs_out_of_memory_is_told() -> None:
    operators = [operator(str(number), weight_bytes=5) for number in range(3)]
    problem = problem_of(operators, [(0, 1)], machines(2, memory_bytes=8))

    with pytest.raises(RotaError, match="fits"):
        plan_baechi(problem)
    with pytest.raises(RotaError, match="no placement fits"):
        plan_pesto(problem, SHORT)


def test_favourite_child_is_the_reader_that_waits_longest() -> None:
    names = [operator("a", 1.0, transfer_ms=1.0), operator("short", 1.0), operator("long", 9.0), operator("end")]
    problem = problem_of(names, [(0, 1), (0, 2), (1, 3), (2, 3)], machines(2))

    assert favourite_children(problem)[0] == 2


@pytest.mark.parametrize("most", [3, 8, 20])
def test_coarsened_graph_has_no_cycle_and_all_operators(most: int) -> None:
    problem = layered_problem(120)

    groups = coarsened(problem, most)

    assert len(groups) <= most + 1
    assert sorted(number for members in groups.members for number in members) == list(range(120))
    assert all(first < second for first, second in groups.edges)


@pytest.mark.slow
@pytest.mark.parametrize("planner", ["linear", "pipedream", "dapple", "baechi", "pesto", "pico", "abacus"])
def test_ten_thousand_operators_are_planned_in_seconds(planner: str) -> None:
    problem = layered_problem(10_000)

    began_s = time.process_time()
    run_planner(planner, problem, PlannerOptions())

    assert time.process_time() - began_s < 10.0 * min(slowness(), 2.0)


def test_names_of_planners_are_known() -> None:
    assert len({entry.name for entry in PLANNERS}) == len(PLANNERS)
    with pytest.raises(RotaError, match="did you mean 'pesto'"):
        planner_named("pseto")


@pytest.mark.slow
def test_wide_graph_is_placed_in_linear_time() -> None:
    width = 4000
    operators = [operator(str(number), 1.0 + number % 7, transfer_ms=0.1) for number in range(width + 2)]
    edges = [(0, number) for number in range(1, width + 1)] + [(number, width + 1) for number in range(1, width + 1)]
    began_s = time.process_time()

    placed = MemoryListScheduler(problem_of(operators, edges, machines(6))).run()

    assert len(placed) == width + 2
    assert time.process_time() - began_s < 3


def test_coarsening_a_hub_takes_time_in_proportion_to_its_edges() -> None:
    count = 4000
    edges = [(0, number) for number in range(1, count - 1)] + [(number, count - 1) for number in range(1, count - 1)]
    operators = [operator(f"o{number}", weight_bytes=1) for number in range(count)]
    problem = problem_of(operators, edges, machines(2))

    began_s = time.process_time()
    groups = coarsened(problem, 24)

    assert len(groups) <= 24
    assert sorted(number for members in groups.members for number in members) == list(range(count))
    assert all(first < second for first, second in groups.edges)
    assert time.process_time() - began_s < 3


@pytest.mark.parametrize("seed", range(6))
def test_pesto_is_never_worse_than_baechi(seed: int) -> None:
    problem = random_problem(seed, 9, memory_bytes=12)

    assert plan_pesto(problem, PlannerOptions(time_limit_s=1.0)).value_ms <= plan_baechi(problem).value_ms + 1e-9


def test_parallel_chains_keep_to_their_devices_under_pesto() -> None:
    edges = [(number - 4, number) for number in range(4, 200)]
    operators = [operator(f"o{number}", 1.0, transfer_ms=None, output_bytes=10**8) for number in range(200)]
    problem = problem_of(operators, edges, fully_connected(ACCELERATOR, 4))

    assert plan_pesto(problem, PlannerOptions(time_limit_s=2.0)).value_ms <= plan_baechi(problem).value_ms + 1e-9
