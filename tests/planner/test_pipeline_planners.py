from __future__ import annotations

import itertools
import random

import pytest

from planner.planning import problem_of, published
from rota.planner.description.devices import DeviceGraph, fully_connected
from rota.planner.description.operators import GraphOperator
from rota.planner.description.problem import PlanningProblem
from rota.planner.description.read import read_problem
from rota.planner.options import PlannerOptions
from rota.planner.pipelines.chain import layer_chain
from rota.planner.pipelines.dapple import device_groups, plan_dapple
from rota.planner.pipelines.fabric import Fabric
from rota.planner.pipelines.pipedream import best_pipedream, pipeline_problem, plan_pipedream, slowest_stage_ms
from rota.planner.pipelines.stages import LayerStage, analytic_step_ms, simulated_step


def chain_problem(times_ms: list[float], devices: DeviceGraph, *, output: int = 0, weights: int = 0) -> PlanningProblem:
    operators = [
        GraphOperator(name=f"l{number}", time_ms={"gpu": ms}, output_bytes=output, weight_bytes=weights)
        for number, ms in enumerate(times_ms)
    ]
    return problem_of(operators, [(number, number + 1) for number in range(len(times_ms) - 1)], devices)


def replicas(plan_notes: tuple[str, ...]) -> str:
    return plan_notes[0].split(",")[0].removeprefix("replicas ")


@pytest.mark.slow
def test_vgg_is_split_fifteen_to_one() -> None:
    problem = read_problem(published("dapple", "vgg-19-pbs-32.txt"), fully_connected("gpu", 16, per_node=1))

    plan = plan_dapple(problem, PlannerOptions(micro_batches=64))

    assert replicas(plan.notes) == "15:1"
    assert [round(stage.memory_bytes / 1e6) for stage in plan.stages] == [76, 472]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "batches"), [("gnmt-16-pbs-64", 16), ("bert-48-pbs-2", 32), ("xlnet-36-pbs-1", 128)])
def test_even_models_are_cut_in_the_middle_over_two_nodes(name: str, batches: int) -> None:
    problem = read_problem(published("dapple", f"{name}.txt"), fully_connected("gpu", 16, per_node=8))

    plan = plan_dapple(problem, PlannerOptions(micro_batches=batches))

    assert replicas(plan.notes) == "8:8"
    first, second = plan.stages
    assert first.compute_ms / (first.compute_ms + second.compute_ms) == pytest.approx(0.5, abs=0.03)


@pytest.mark.slow
def test_amoebanet_is_cut_once_with_more_before_the_cut() -> None:
    problem = read_problem(published("dapple", "amoeba-36-pbs-1.txt"), fully_connected("gpu", 16, per_node=8))

    plan = plan_dapple(problem, PlannerOptions(micro_batches=128))

    assert replicas(plan.notes) == "8:8"
    assert [round(stage.compute_ms, 1) for stage in plan.stages] == [90.1, 78.0]


def test_data_parallelism_wins_where_weights_are_small() -> None:
    problem = chain_problem([4.0, 4.0, 4.0], fully_connected("gpu", 4), output=10**9, weights=10)

    plan = plan_dapple(problem, PlannerOptions(micro_batches=4))

    assert replicas(plan.notes) == "4"


def test_pipedream_is_best_among_all_consecutive_stages() -> None:
    rng = random.Random(3)
    for _ in range(5):
        devices = fully_connected("gpu", 4, per_node=2, bytes_per_ms=1e6, between_bytes_per_ms=2e5)
        times = [rng.uniform(1.0, 9.0) for _ in range(5)]
        problem = chain_problem(times, devices, output=rng.randrange(10**6), weights=rng.randrange(3 * 10**6))
        chain, fabric, numbers = pipeline_problem(problem, "pipedream")

        found = best_pipedream(chain, fabric, numbers)

        assert found is not None
        assert slowest_stage_ms(chain, fabric, found) == pytest.approx(_best_by_trying(problem))


def _best_by_trying(problem: PlanningProblem) -> float:
    chain, fabric, devices = pipeline_problem(problem, "pipedream")
    best = float("inf")
    layers = len(chain)
    for stages in range(1, min(layers, len(devices)) + 1):
        for cuts in itertools.combinations(range(1, layers), stages - 1):
            for sizes in itertools.product(range(1, len(devices) + 1), repeat=stages):
                if sum(sizes) > len(devices):
                    continue
                ends = [*cuts, layers]
                used = [sum(sizes[:place]) for place in range(stages + 1)]
                plan = tuple(
                    LayerStage(start=start, end=end, devices=tuple(devices[used[place] : used[place + 1]]))
                    for place, (start, end) in enumerate(zip([0, *cuts], ends, strict=True))
                )
                best = min(best, slowest_stage_ms(chain, fabric, plan))
    return best


def test_slow_links_are_not_cut_by_pipedream() -> None:
    devices = fully_connected("gpu", 2, bytes_per_ms=1.0)

    plan = plan_pipedream(chain_problem([4.0, 4.0], devices, output=100, weights=10**6))

    assert len(plan.stages) == 1
    assert len(plan.stages[0].devices) == 1


def test_groups_follow_the_three_policies() -> None:
    devices = fully_connected("gpu", 6, per_node=3)

    groups = device_groups(Fabric(devices=devices), list(range(6)), (0,), 2)

    assert groups == [(3, 4), (1, 2), (1, 3)]


def test_formula_is_near_the_simulator_for_even_stages() -> None:
    problem = chain_problem([3.0, 3.0, 3.0, 3.0], fully_connected("gpu", 4))
    chain, fabric = layer_chain(problem), Fabric(devices=problem.devices)
    plan = tuple(LayerStage(start=place, end=place + 1, devices=(place,)) for place in range(4))

    assert analytic_step_ms(chain, fabric, plan, 8) == pytest.approx(33.0)
    assert simulated_step(chain, fabric, plan, 8).step_ms == pytest.approx(33.0)


def test_rings_within_a_node_are_faster_than_between() -> None:
    fabric = Fabric(devices=fully_connected("gpu", 4, per_node=2))

    assert fabric.all_reduce_ms((0, 1), 1e9) < fabric.all_reduce_ms((0, 2), 1e9)
    assert fabric.transfer_ms((0,), (1,), 1e6) < fabric.transfer_ms((0,), (2,), 1e6)


def test_ring_sends_twice_its_share_over_the_network() -> None:
    fabric = Fabric(devices=fully_connected("gpu", 4, per_node=1, between_bytes_per_ms=1e6))

    assert fabric.all_reduce_ms((0, 1, 2, 3), 6e6) == pytest.approx(2 * 3 / 4 * 6e6 / (3 * 1e6))
    assert fabric.all_reduce_ms((0,), 6e6) == 0.0
