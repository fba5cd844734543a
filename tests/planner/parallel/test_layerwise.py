"""The planner `galvatron-like`: the published optima, the dynamic program against all choices, and its refusals."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from rota.core.errors import RotaError
from rota.planner.parallel.catalogue import named_model
from rota.planner.parallel.collectives import Ring, all_reduce_s
from rota.planner.parallel.hardware import accelerator
from rota.planner.parallel.layerwise.cost import (
    ChunkedBatch,
    LayerStrategy,
    StrategyTime,
    layer_memory_mib,
    layer_time,
    pipeline_s,
)
from rota.planner.parallel.layerwise.planner import Splits, StrategyTable, buffer_mib, plan_layerwise, reshard_s
from rota.planner.parallel.layerwise.profile import line_through, modelled_links, modelled_profile
from rota.planner.parallel.layerwise.published import OPTIMA, published_links, published_profile, published_task

SPLIT = LayerStrategy(tensor=4, sequence=1, data=2, shards_weights=False, recompute=False)


@pytest.mark.slow
def test_published_optimum_layer_by_layer() -> None:
    name = "32 micro-batches, layer by layer"

    plan = plan_layerwise(published_task(name))

    assert plan.sequences_per_s == pytest.approx(OPTIMA[name], abs=1e-6)
    assert (plan.pipeline, plan.embedding.tensor) == (1, 8)
    assert Counter(plan.strategies) == {
        replace(SPLIT, shards_weights=True, recompute=True): 14,
        replace(SPLIT, shards_weights=True): 12,
        SPLIT: 2,
    }


def test_published_optimum_with_layers_alike() -> None:
    name = "8 micro-batches, all alike"

    plan = plan_layerwise(published_task(name))

    assert plan.sequences_per_s == pytest.approx(OPTIMA[name], abs=1e-6)
    assert set(plan.strategies) == {LayerStrategy(tensor=1, sequence=1, data=8, shards_weights=True, recompute=True)}


def test_coarse_memory_steps_lose_little() -> None:
    name = "32 micro-batches, layer by layer"

    plan = plan_layerwise(published_task(name, unit_mib=64))

    assert 0.99 * OPTIMA[name] < plan.sequences_per_s <= OPTIMA[name]


@pytest.mark.parametrize("seed", range(5))
def test_table_finds_the_least_time_of_all_choices(seed: int) -> None:
    drawn = random.Random(seed)
    strategies, layers, room = 4, 4, 20
    times = np.array([drawn.uniform(1, 10) for _ in range(strategies)])
    units = np.array([drawn.randint(1, 8) for _ in range(strategies)])
    change = np.array(
        [[0.0 if one == other else drawn.uniform(0, 2) for other in range(strategies)] for one in range(strategies)]
    )
    table = StrategyTable(times, units, change, layers, room)

    def seconds(choice: tuple[int, ...]) -> float:
        return float(sum(times[strategy] for strategy in choice) + sum(change[a, b] for a, b in pairwise(choice)))

    for limit in range(-1, room + 1):
        fitting = [
            one
            for one in product(range(strategies), repeat=layers)
            if sum(units[strategy] for strategy in one) <= limit
        ]
        picked = table.pick(limit)
        if not fitting:
            assert picked is None
        else:
            assert picked is not None
            assert sum(units[strategy] for strategy in picked) <= limit
            assert seconds(tuple(picked)) == pytest.approx(min(map(seconds, fitting)))


def test_less_memory_is_never_faster() -> None:
    task = published_task("8 micro-batches, all alike")
    roomy = plan_layerwise(replace(task, memory_mib=80 * 1024))

    assert roomy.step_s < plan_layerwise(task).step_s
    with pytest.raises(RotaError, match=r"no plan of 28 layers fits 4 GiB on 8 GPUs"):
        plan_layerwise(replace(task, memory_mib=4096))


def test_chunks_must_divide_the_batch() -> None:
    with pytest.raises(RotaError, match="--chunks 3 does not divide --batch 64"):
        plan_layerwise(replace(published_task("8 micro-batches, all alike"), chunks=3))


def test_recomputation_and_sharding_take_time_and_save_memory() -> None:
    batch = ChunkedBatch(batch=64, chunks=32, pipeline=1)
    profile, links = published_profile(), published_links()
    strategies = [SPLIT, replace(SPLIT, shards_weights=True), replace(SPLIT, shards_weights=True, recompute=True)]

    times = [layer_time(profile, links, batch, strategy).synced_s for strategy in strategies]
    sizes = [layer_memory_mib(profile, batch, strategy, 0) for strategy in strategies]

    assert times == sorted(times)
    assert sizes == sorted(sizes, reverse=True)


def test_pipeline_of_equal_stages_takes_a_slot_per_chunk_and_further_stage() -> None:
    stage = [StrategyTime(synced_s=1.0, plain_s=1.0)]
    none = StrategyTime(synced_s=0.0, plain_s=0.0)

    assert pipeline_s([stage] * 4, [none] * 4, 8) == pytest.approx(8 + 3)


def test_line_through_measured_sizes_is_for_other_sizes() -> None:
    times = line_through({1.0: 2.0, 2.0: 3.0, 4.0: 5.5})

    assert times.of(4.0) == 5.5
    assert times.of(8.0) == pytest.approx(times.slope_ms_per_mib * 8 + times.start_ms)


def test_modelled_profile_has_the_models_parameters() -> None:
    shape = named_model("gpt-3.6b").shape
    profile = modelled_profile(accelerator("a100"), shape, 8)
    links = modelled_links(accelerator("a100"), 16, 8)

    assert profile.parameter_mib * 2**20 / 4 == pytest.approx(shape.layer_parameters)
    assert links.far_reduce_ms_per_mib[2] > links.near_reduce_ms_per_mib[2]
    message_mib = 64.0
    ring = Ring(ranks=8, per_node=8, groups_per_node=1)
    reduced_ms = 1e3 * all_reduce_s(accelerator("a100").interconnect, ring, message_mib * 2**20)
    assert links.near_reduce_ms_per_mib[8] * 2 * 7 / 8 * message_mib == pytest.approx(reduced_ms)


def test_split_changes_between_layers_take_time() -> None:
    task = published_task("8 micro-batches, all alike")
    wide = replace(SPLIT, tensor=8, data=1)

    # 7/8 of the 8 sequences of a chunk, 64 MiB each, at Galvatron's scale of milliseconds per 1e7 bytes.
    assert reshard_s(task, 1, SPLIT, wide) == pytest.approx(7 / 8 * 8 * 64 / 160.445 * 2**20 * 1e-7)
    assert reshard_s(task, 1, SPLIT, replace(SPLIT, recompute=True)) == 0


def test_buffer_holds_a_chunk_of_the_widest_tensor_split() -> None:
    task = published_task("32 micro-batches, layer by layer")

    sizes = {(splits, widest): buffer_mib(task, 1, splits, widest) for splits in Splits for widest in (4, 8)}

    assert sizes[Splits.TENSOR, 4] == sizes[Splits.BOTH, 4] == 64
    assert sizes[Splits.TENSOR, 8] == 128
    assert sizes[Splits.SEQUENCE, 8] == 0
