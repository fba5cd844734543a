"""One iteration's time and memory: what must hold whatever the constants, and what was measured."""

from __future__ import annotations

import csv
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.planner.parallel.accuracy import mean_absolute, ranked_cases, relative_errors
from rota.planner.parallel.catalogue import MODELS
from rota.planner.parallel.fitting import MeasuredIteration, fitted
from rota.planner.parallel.hardware import GIB, Accelerator, accelerator
from rota.planner.parallel.iteration import iteration_cost
from rota.planner.parallel.measured import read_bus_rate, read_iterations
from rota.planner.parallel.memory import RESERVED_BYTES, memory_use
from rota.planner.parallel.plans import ParallelPlan, Recompute, Sharding, TrainingSetup
from rota.planner.parallel.search import PlanConstraints, by_search

A100 = accelerator("a100")
SMALL = TrainingSetup(shape=MODELS["gpt-3.6b"].shape, batch=512, gpus=64, per_node=8)
PIPELINED = ParallelPlan(tensor=4, pipeline=4, data=4, micro_batch=2)
needs_data = pytest.mark.skipif("ROTA_DATA" not in os.environ, reason="ROTA_DATA is not set")


def vtrain() -> Path:
    return Path(os.environ["ROTA_DATA"]) / "planner" / "vtrain"


# Narayanan et al., SC 2021, table 1: tensor, pipeline, GPUs and the seconds that its TFLOP/s per GPU come to.
PTD_P = {
    "gpt-1.7b": (1, 1, 32, 3.53),
    "gpt-3.6b": (2, 1, 64, 3.70),
    "gpt-7.5b": (4, 1, 128, 3.70),
    "gpt-18b": (8, 1, 256, 9.40),
    "gpt-39b": (8, 2, 512, 14.45),
    "gpt-76b": (8, 4, 1024, 16.06),
    "gpt-145b": (8, 8, 1536, 24.82),
    "gpt-310b": (8, 16, 1920, 37.61),
    "gpt-530b": (8, 35, 2520, 54.09),
    "gpt-1t": (8, 64, 3072, 102.6),
}


@pytest.mark.parametrize("name", PTD_P)
def test_published_iteration_is_met_within_a_tenth(name: str) -> None:
    tensor, pipeline, gpus, iteration_s = PTD_P[name]
    model = MODELS[name]
    setup = TrainingSetup(shape=model.shape, batch=model.batch, gpus=gpus, per_node=8)
    given = PlanConstraints(tensor=tensor, pipeline=pipeline, data=gpus // tensor // pipeline)

    best = by_search(A100, setup, given)[0]

    assert best.cost.iteration_s == pytest.approx(iteration_s, rel=0.10)


def test_parts_add_up_to_the_iteration() -> None:
    cost = iteration_cost(A100, SMALL, PIPELINED)

    parts = (cost.compute_s, cost.tensor_s, cost.messages_s, cost.bubble_s, cost.gradients_s, cost.optimizer_s)
    assert sum(parts) == pytest.approx(cost.iteration_s)
    assert min(parts) > 0


def test_bubble_is_one_micro_batch_per_further_stage() -> None:
    """With equal stages the bubble is p - 1 slots of m + p - 1; the output layer makes the last stage slower."""
    shape = replace(SMALL.shape, vocab=1)
    setup = replace(SMALL, shape=shape)
    plan = ParallelPlan(tensor=4, pipeline=2, data=8, micro_batch=2)

    cost = iteration_cost(A100, setup, plan)

    slots = plan.micro_batches(setup.batch)
    steady_s = cost.compute_s + cost.tensor_s + cost.messages_s
    assert cost.bubble_s == pytest.approx(steady_s / slots, rel=1e-3)


def test_interleaving_shortens_the_bubble_and_lengthens_the_messages() -> None:
    plain = iteration_cost(A100, SMALL, ParallelPlan(tensor=4, pipeline=2, data=8, micro_batch=2))
    chunked = iteration_cost(A100, SMALL, ParallelPlan(tensor=4, pipeline=2, data=8, micro_batch=2, interleave=3))

    assert chunked.bubble_s == pytest.approx(plain.bubble_s / 3, rel=0.05)
    assert chunked.messages_s == pytest.approx(3 * plain.messages_s)


def test_recomputation_trades_time_for_memory() -> None:
    full = iteration_cost(A100, SMALL, PIPELINED)
    kept = iteration_cost(A100, SMALL, replace(PIPELINED, recompute=Recompute.NONE))

    assert kept.iteration_s < full.iteration_s
    assert kept.memory.activation_bytes > 5 * full.memory.activation_bytes
    assert kept.memory.state_bytes == full.memory.state_bytes


def test_sharding_divides_the_state_among_replicas() -> None:
    plan = ParallelPlan(tensor=1, pipeline=1, data=64, micro_batch=1)
    parameters = SMALL.shape.layers * SMALL.shape.layer_parameters + SMALL.shape.embedding_parameters

    held = {way: memory_use(SMALL, replace(plan, sharding=way)).state_bytes / parameters for way in Sharding}

    assert held[Sharding.NONE] == pytest.approx(16)
    assert held[Sharding.OPTIMIZER] == pytest.approx(4 + 12 / 64)
    assert held[Sharding.GRADIENTS] == pytest.approx(2 + 14 / 64)
    assert held[Sharding.WEIGHTS] == pytest.approx(16 / 64)


def test_sharded_gradients_and_weights_travel_with_every_micro_batch() -> None:
    plan = ParallelPlan(tensor=1, pipeline=1, data=64, micro_batch=2)
    slots = plan.micro_batches(SMALL.batch)

    costs = {way: iteration_cost(A100, SMALL, replace(plan, sharding=way)) for way in Sharding}

    once_s = costs[Sharding.NONE].gradients_s / 2
    assert costs[Sharding.OPTIMIZER].gradients_s == pytest.approx(2 * once_s)
    assert costs[Sharding.GRADIENTS].gradients_s == pytest.approx((slots + 1) * once_s)
    assert costs[Sharding.WEIGHTS].gradients_s == pytest.approx(3 * slots * once_s)
    assert costs[Sharding.NONE].optimizer_s == pytest.approx(64 * costs[Sharding.OPTIMIZER].optimizer_s)


def test_ends_of_a_pipeline_share_the_embedding() -> None:
    """Without replicas, its gradients are all that is reduced."""
    setup = replace(SMALL, gpus=16)

    split = iteration_cost(A100, setup, ParallelPlan(tensor=8, pipeline=2, data=1, micro_batch=2))

    bytes_each = 2 * SMALL.shape.embedding_parameters / 8
    assert split.gradients_s == pytest.approx(bytes_each * 8 / A100.interconnect.node_bytes_per_s, rel=0.05)


def test_interleaving_keeps_more_activations() -> None:
    plain = memory_use(SMALL, ParallelPlan(tensor=4, pipeline=2, data=8, micro_batch=2, recompute=Recompute.NONE))
    chunked = memory_use(
        SMALL, ParallelPlan(tensor=4, pipeline=2, data=8, micro_batch=2, interleave=3, recompute=Recompute.NONE)
    )

    assert chunked.activation_bytes == pytest.approx(plain.activation_bytes * (1 + 1 / 6))


def test_small_micro_batch_is_bound_by_launches() -> None:
    """Halving the micro-batch doubles the time once the host cannot launch kernels any faster."""
    shape = replace(SMALL.shape, hidden=1024, heads=16, seq=512)
    setup = TrainingSetup(shape=shape, batch=64, gpus=8, per_node=8)
    two, one = (
        iteration_cost(A100, setup, ParallelPlan(tensor=8, pipeline=1, data=1, micro_batch=size)).iteration_s
        for size in (2, 1)
    )

    assert one == pytest.approx(2 * two, rel=0.05)


def test_every_published_row_fits_its_memory() -> None:
    tight = ParallelPlan(tensor=1, pipeline=1, data=64, micro_batch=8)

    assert iteration_cost(A100, SMALL, tight).fits
    assert 64 * GIB < memory_use(SMALL, tight).total_bytes < 80 * GIB
    assert not iteration_cost(accelerator("v100"), SMALL, tight).fits


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_half_of_the_rows_predicts_the_other_half(seed: int) -> None:
    drawn = random.Random(seed)
    seen: list[MeasuredIteration] = []
    unseen = {}
    for name, recompute in (("single", Recompute.NONE), ("multi", Recompute.FULL)):
        rows = read_iterations(vtrain() / f"measured_{name}_node.csv", recompute)
        drawn.shuffle(rows)
        half = len(rows) // 2
        seen += rows[: min(half, 150)]
        unseen[name] = rows[half:]

    device = fitted(A100, seen)

    assert mean_absolute(relative_errors(device, unseen["single"])) < 0.10
    assert mean_absolute(relative_errors(device, unseen["multi"])) < 0.15
    assert 0.5 < device.kernels.matmul_share < 1


@needs_data
def test_best_measured_plan_is_among_the_first_three() -> None:
    rows = read_iterations(vtrain() / "measured_single_node.csv", Recompute.NONE)
    rows += read_iterations(vtrain() / "measured_multi_node.csv", Recompute.FULL)

    cases = [case for case in ranked_cases(A100, rows) if case.plans > 3]

    assert sum(case.place <= 3 for case in cases) >= 0.9 * len(cases)
    assert len(cases) > 100
    across = ranked_cases(A100, rows, across_batches=True)
    assert len(across) == 28
    assert sum(case.place <= 3 for case in across) >= 0.9 * len(across)


@needs_data
@pytest.mark.parametrize("gpu", ["a100", "v100"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_rates_inside_a_node_are_those_of_the_tables(gpu: str, ranks: int) -> None:
    rate, error = read_bus_rate(vtrain() / f"allreduce_{gpu}_{ranks}gpus.txt", ranks)

    kept = accelerator(gpu).interconnect.bus(ranks)
    assert kept.bytes_per_s == pytest.approx(rate.bytes_per_s, rel=0.03)
    assert kept.latency_s == pytest.approx(rate.latency_s, rel=0.10)
    assert error < 0.08


ONE_H200 = Path(__file__).parents[3] / "bench" / "parallel_h200.csv"


def test_iterations_of_plain_pytorch_on_one_h200_are_met() -> None:
    rows = read_iterations(ONE_H200, Recompute.NONE)

    assert len(rows) == 98
    assert mean_absolute(relative_errors(accelerator("h200"), rows)) < 0.12


def test_memory_of_plain_pytorch_on_one_h200_is_met() -> None:
    rows = read_iterations(ONE_H200, Recompute.NONE)
    with ONE_H200.open(newline="") as text:
        peaks = [int(row["peak memory (bytes)"]) for row in csv.DictReader(text)]

    sizes = [memory_use(row.setup, row.plan).total_bytes - RESERVED_BYTES for row in rows]
    errors = [size / peak - 1 for size, peak in zip(sizes, peaks, strict=True)]
    assert mean_absolute(errors) < 0.06
    assert max(errors, key=abs) == pytest.approx(0, abs=0.15)


def test_tables_with_mistakes_are_named(tmp_path: Path) -> None:
    lines = ONE_H200.read_text(encoding="utf-8").splitlines()[:2]
    file = tmp_path / "rows.csv"
    for old, new, said in (
        (",27.299,", ",-1,", "line 2: iteration time .ms. is -1; a time must be above 0"),
        (",none,", ",some,", "line 2: recompute is 'some'; it must be none or full"),
        (",16,12,", ",x,12,", "line 2: .* every field must be a number"),
        ("1,1,1,1024", "1,1,2,1024", "line 2: --data 1 x --micro-batch 2 does not divide --batch 1"),
    ):
        file.write_text(f"{lines[0]}\n{lines[1].replace(old, new)}\n", encoding="utf-8")
        with pytest.raises(RotaError, match=said):
            read_iterations(file, Recompute.NONE)
    file.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(RotaError, match="there is no column '# GPUs'"):
        read_iterations(file, Recompute.NONE)
    with pytest.raises(RotaError, match="no measured iterations"):
        fitted(A100, [])


def _made_up(device: Accelerator) -> list[MeasuredIteration]:
    """Rows that a device with some constants would have measured."""
    rows = []
    for setup, tensor, data in ((SMALL, 1, 64), (SMALL, 8, 8), (replace(SMALL, gpus=8), 8, 1), (SMALL, 2, 32)):
        for micro_batch in (1, 2, 4, 8):
            plan = ParallelPlan(tensor=tensor, pipeline=1, data=data, micro_batch=micro_batch)
            seconds = iteration_cost(device, setup, plan).iteration_s
            rows.append(MeasuredIteration(setup=setup, plan=plan, iteration_s=seconds))
    return rows


def test_fit_finds_the_constants_that_made_the_rows() -> None:
    slow = replace(A100, kernels=replace(A100.kernels, matmul_share=0.5))

    found = fitted(A100, _made_up(slow))

    assert found.kernels.matmul_share == pytest.approx(0.5, rel=0.15)
    assert mean_absolute(relative_errors(found, _made_up(slow))) < 0.02


def test_fit_to_rows_on_one_node_leaves_the_network_as_it_is() -> None:
    rows = [row for row in _made_up(A100) if row.setup.gpus == 8]

    assert fitted(A100, rows).interconnect == A100.interconnect


def test_rows_may_say_their_vocabulary_and_nodes(tmp_path: Path) -> None:
    lines = ONE_H200.read_text(encoding="utf-8").splitlines()[:2]
    file = tmp_path / "rows.csv"
    file.write_text(f"{lines[0]},vocab,per node\n{lines[1]},32000,4\n", encoding="utf-8")

    (row,) = read_iterations(file, Recompute.NONE)

    assert (row.setup.shape.vocab, row.setup.per_node) == (32000, 4)


def test_place_of_the_best_plan_is_counted_from_one() -> None:
    rows = sorted(_made_up(A100)[:3], key=lambda row: row.iteration_s)
    second = replace(rows[1], iteration_s=rows[0].iteration_s / 2)

    (told,) = ranked_cases(A100, [rows[2], second, rows[0]])

    assert (told.plans, told.place) == (3, 2)
    assert told.loss == pytest.approx(1.0)
