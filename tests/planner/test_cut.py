from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest

from planner.planning import problem_of
from rota.core.errors import RotaError
from rota.planner.description.devices import DeviceGraph, DeviceLink, GraphDevice
from rota.planner.description.operators import GraphOperator
from rota.planner.description.problem import PlanningProblem
from rota.planner.edge.cut import all_cuts, best_mix, least_energy, plan_cut
from rota.planner.edge.johnson import best_makespan_ms, johnson_order, makespan_ms
from rota.planner.options import PlannerOptions

ONE = PlannerOptions(micro_batches=1)


def tiers(*names: str, bytes_per_ms: float = 1.0) -> DeviceGraph:
    levels = ((1.0, 4.0), (0.5, 1.0))
    devices = [GraphDevice(name=names[0], type=names[0], levels=levels, sending_watts=2.0)]
    devices += [GraphDevice(name=name, type=name) for name in names[1:]]
    links = [
        DeviceLink(source=first, target=second, bytes_per_ms=bytes_per_ms)
        for first, second in itertools.combinations(names, 2)
    ]
    return DeviceGraph(devices=tuple(devices), links=tuple(links))


def chain(devices: DeviceGraph, layers: list[tuple[float, int]]) -> PlanningProblem:
    """Layers by time on the phone and bytes out; every later tier is ten times as fast as the one before."""
    operators = [
        GraphOperator(
            name=f"l{number}",
            time_ms={device.type: ms / 10**tier for tier, device in enumerate(devices.devices)},
            output_bytes=size,
        )
        for number, (ms, size) in enumerate(layers)
    ]
    return problem_of(operators, [(number, number + 1) for number in range(len(layers) - 1)], devices)


LAYERS = [(10.0, 40), (10.0, 5), (10.0, 20), (10.0, 1)]


@pytest.mark.slow
def test_johnson_is_optimal_against_brute_force_on_a_thousand_sets() -> None:
    rng = random.Random(1)
    for _ in range(1000):
        jobs = [(rng.uniform(0, 9), rng.uniform(0, 9)) for _ in range(rng.randrange(1, 7))]
        tried = min(makespan_ms(jobs, order) for order in itertools.permutations(range(len(jobs))))

        assert best_makespan_ms(jobs) == pytest.approx(tried)


def test_johnson_keeps_ties_in_the_order_given() -> None:
    assert johnson_order([(2.0, 2.0), (2.0, 2.0), (1.0, 3.0)]) == [2, 0, 1]


def test_chain_is_cut_where_little_is_sent() -> None:
    plan = plan_cut(chain(tiers("phone", "cloud"), LAYERS), ONE)

    assert [(stage.devices[0], len(stage.operators)) for stage in plan.stages] == [("phone", 2), ("cloud", 2)]
    assert plan.value_ms == pytest.approx(20 + 5 + 2)
    assert plan.proved_optimal


def test_fast_link_sends_everything_and_slow_link_nothing() -> None:
    fast = plan_cut(chain(tiers("phone", "cloud", bytes_per_ms=1e6), LAYERS), ONE)
    slow = plan_cut(chain(tiers("phone", "cloud", bytes_per_ms=0.01), LAYERS), ONE)

    assert [stage.devices[0] for stage in fast.stages] == ["cloud"]
    assert [stage.devices[0] for stage in slow.stages] == ["phone"]


def test_three_tiers_are_at_least_as_good_as_two() -> None:
    two = plan_cut(chain(tiers("phone", "edge"), LAYERS), ONE)
    three = plan_cut(chain(tiers("phone", "edge", "cloud"), LAYERS), ONE)

    assert three.value_ms <= two.value_ms


def test_energy_falls_as_the_deadline_grows() -> None:
    cuts = all_cuts(chain(tiers("phone", "cloud"), LAYERS))

    energies = [least_energy(cuts, deadline_ms).energy_mj for deadline_ms in (27.0, 47.0, 500.0)]

    assert energies == sorted(energies, reverse=True)
    assert energies[0] > energies[-1]
    assert all(cut.energy_mj >= energies[-1] for cut in cuts)


def test_deadline_that_no_cut_meets_is_told() -> None:
    with pytest.raises(RotaError, match="no cut meets 1 ms; the fastest takes 27 ms"):
        plan_cut(chain(tiers("phone", "cloud"), LAYERS), PlannerOptions(micro_batches=1, deadline_ms=1.0))


def test_several_jobs_mix_two_cuts_as_well_as_any_assignment() -> None:
    rng = random.Random(5)
    for _ in range(30):
        sizes = sorted((rng.randrange(1, 60) for _ in range(4)), reverse=True)
        problem = chain(tiers("phone", "cloud"), [(rng.uniform(1, 9), size) for size in sizes])
        cuts = [cut for cut in all_cuts(problem) if cut.level == 0]

        _, value_ms = best_mix(cuts, 4)

        tried = min(
            best_makespan_ms([(cut.local_ms, cut.sent_ms) for cut in some])
            for some in itertools.combinations_with_replacement(cuts, 4)
        )
        assert tried <= value_ms <= tried * 1.03 + max(cut.remote_ms for cut in cuts)


def every_latency(problem: PlanningProblem) -> list[tuple[tuple[int, ...], float]]:
    """All cuts between all tiers one by one, and the latency of a job at full speed."""
    devices, operators = problem.devices.devices, problem.graph.operators
    found = []
    for ends in itertools.combinations_with_replacement(range(len(operators) + 1), len(devices) - 1):
        bounds = (0, *ends, len(operators))
        spent = sum(
            operator.time_ms.get(device.type, math.inf)
            for device, (start, end) in zip(devices, itertools.pairwise(bounds), strict=True)
            for operator in operators[start:end]
        )
        # The input is as large as the first layer's output; after the last layer nothing is sent.
        crossing = [operators[max(end - 1, 0)].output_bytes if end < len(operators) else 0 for end in ends]
        found.append((ends, spent + sum(crossing)))
    return found


def test_cuts_over_several_tiers_are_the_best_of_all() -> None:
    rng = random.Random(3)
    for _ in range(200):
        devices = tiers(*("phone", "edge", "hub", "cloud")[: rng.randrange(2, 5)])
        problem = chain(devices, [(rng.uniform(1, 30), rng.randrange(1, 20)) for _ in range(rng.randrange(1, 7))])
        barred = rng.choice(devices.devices[:-1]).type
        operators = [
            replace(
                each, time_ms={kind: ms for kind, ms in each.time_ms.items() if kind != barred or rng.random() < 0.7}
            )
            for each in problem.graph.operators
        ]
        problem = problem_of(operators, problem.graph.edges, devices)
        tried = every_latency(problem)
        by_first = {end: min(ms for ends, ms in tried if ends[0] == end) for end in {ends[0] for ends, _ in tried}}

        found = {cut.ends[0]: cut.latency_ms for cut in all_cuts(problem) if cut.level == 0}

        assert found == pytest.approx({end: ms for end, ms in by_first.items() if ms < math.inf})
        assert plan_cut(problem, ONE).value_ms == pytest.approx(min(ms for _, ms in tried))


@pytest.mark.parametrize("jobs", [1, 8])
def test_ten_thousand_layers_over_six_tiers_are_cut(jobs: int) -> None:
    rng = random.Random(1)
    devices = tiers("phone", "a", "b", "c", "d", "cloud", bytes_per_ms=1e5)
    problem = chain(devices, [(rng.uniform(1, 9), rng.randrange(1, 10**6)) for _ in range(10_000)])

    plan = plan_cut(problem, PlannerOptions(micro_batches=jobs))

    assert plan.seconds < 10
    assert sum(len(stage.operators) for stage in plan.stages) == 10_000


def test_one_device_can_not_be_cut() -> None:
    alone = DeviceGraph(devices=(GraphDevice(name="phone", type="phone"),))

    with pytest.raises(RotaError, match="two or more devices"):
        plan_cut(chain(alone, LAYERS), ONE)


def test_cut_of_a_graph_with_branches_is_not_called_proved() -> None:
    devices = tiers("phone", "cloud")
    straight = chain(devices, LAYERS)
    branched = problem_of(straight.graph.operators, [(0, 1), (0, 2), (1, 3), (2, 3)], devices)

    assert plan_cut(straight, ONE).proved_optimal
    assert not plan_cut(branched, ONE).proved_optimal
