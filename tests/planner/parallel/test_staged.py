"""The planner `alpa-like`: the dynamic program against all stages, published plans, and its refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest

from rota.core.errors import RotaError
from rota.planner.parallel.hardware import accelerator
from rota.planner.parallel.plans import Recompute, TrainingSetup
from rota.planner.parallel.staged import (
    PipelineStage,
    StagedTask,
    costed_stages,
    group_bounds,
    plan_staged,
    submesh_sizes,
)
from rota.planner.parallel.transformer import TransformerShape

V100 = accelerator("v100")


def task(hidden: int, layers: int, heads: int, gpus: int, micro_batches: int, groups: int) -> StagedTask:
    shape = TransformerShape(hidden=hidden, layers=layers, heads=heads, seq=1024, vocab=51200)
    setup = TrainingSetup(shape=shape, batch=1024, gpus=gpus, per_node=8)
    return StagedTask(device=V100, setup=setup, micro_batches=micro_batches, groups=groups)


def shapes(stages: tuple[PipelineStage, ...]) -> list[tuple[int, int, int]]:
    return [(stage.layers, stage.gpus, stage.tensor) for stage in stages]


# alpa-projects/alpa, benchmark/alpa/suite_auto_gpt.py: plans found for p3.16xlarge.
@pytest.mark.slow
def test_published_plan_of_15b_on_32() -> None:
    assert shapes(plan_staged(task(5120, 48, 40, 32, 128, 16)).stages) == [(12, 8, 4)] * 4


def test_published_plan_of_39b_on_64() -> None:
    assert shapes(plan_staged(task(8192, 48, 64, 64, 1024, 16)).stages) == [(3, 4, 4)] * 16


@pytest.mark.parametrize(("hidden", "heads", "gpus"), [(1536, 16, 2), (2048, 32, 4)], ids=["760M on 2", "1.3B on 4"])
def test_published_halves_are_even_with_the_output_layer(hidden: int, heads: int, gpus: int) -> None:
    """Three of six groups on each half of the devices, which holds only where the output layer counts as work."""
    asked = task(hidden, 24, heads, gpus, 128, 6)

    assert shapes(plan_staged(asked).stages) == [(13, gpus // 2, 1), (11, gpus // 2, 1)]
    assert group_bounds(asked)[3] == 13


def test_groups_have_about_equal_work() -> None:
    """Half of all layers of work is in the output layer of a shallow model with many words."""
    shallow = task(512, 8, 8, 8, 4, 4)

    layers = [after - before for before, after in pairwise(group_bounds(shallow))]

    assert sum(layers) == 8
    assert layers[-1] == 1
    assert max(layers) - min(layers[:-1]) <= 1


def test_published_stages_of_6_7b_on_16() -> None:
    found = plan_staged(task(4096, 32, 32, 16, 64, 8))

    assert [(stage.layers, stage.gpus) for stage in found.stages] == [(16, 8), (16, 8)]


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(1, total - parts + 2):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)


@pytest.mark.parametrize("micro_batches", [4, 16, 64])
@pytest.mark.parametrize(("hidden", "gpus"), [(2048, 4), (2560, 8), (3072, 8)])
def test_no_stages_at_all_are_faster(hidden: int, gpus: int, micro_batches: int) -> None:
    """Every composition of layers and devices, each stage with each split: none is faster by more than the spacing."""
    small = task(hidden, 16, 32, gpus, micro_batches, 4)
    small = replace(small, setup=replace(small.setup, batch=4 * micro_batches))
    best = plan_staged(small)
    bounds = group_bounds(small)

    def sizes(parts: tuple[int, ...], devices: tuple[int, ...]) -> list[tuple[int, int]]:
        ends = pairwise(accumulate(parts, initial=0))
        return [(bounds[end] - bounds[start], one) for (start, end), one in zip(ends, devices, strict=True)]

    fastest = min(
        plan.iteration_s
        for count in range(1, 5)
        for layers in _compositions(4, count)
        for devices in _compositions(gpus, count)
        if all(one in submesh_sizes(gpus, 8) for one in devices)
        for plan in costed_stages(small, sizes(layers, devices))
    )

    assert best.iteration_s <= fastest * 1.005


def test_pipeline_time_is_once_all_and_then_the_slowest() -> None:
    found = plan_staged(task(8192, 48, 64, 64, 1024, 16))

    once = sum(stage.micro_batch_s for stage in found.stages)
    slowest = max(stage.micro_batch_s for stage in found.stages)
    rest = max(stage.step_s for stage in found.stages)
    assert found.iteration_s == pytest.approx(once + 1023 * slowest + rest)


@pytest.mark.slow
def test_stages_fit_their_memory() -> None:
    found = plan_staged(task(5120, 48, 40, 32, 128, 16))

    assert found.memory_bytes <= V100.memory_bytes
    assert sum(stage.gpus for stage in found.stages) == 32
    assert sum(stage.layers for stage in found.stages) == 48


def test_early_stages_keep_more_activations() -> None:
    deep = replace(task(8192, 48, 64, 64, 1024, 16), recompute=Recompute.FULL)
    memory = [stage.memory_bytes for stage in plan_staged(deep).stages]

    assert memory[:-1] == sorted(memory[:-1], reverse=True)
    assert memory[0] > memory[-2]


def test_model_that_never_fits_is_refused() -> None:
    with pytest.raises(RotaError, match=r"no stages of 48 layers fit the 15 usable GiB of one v100 on --gpus 8"):
        plan_staged(task(8192, 48, 64, 8, 1024, 16))


def test_uneven_input_is_named() -> None:
    with pytest.raises(RotaError, match="--micro-batches 7 does not divide --batch 1024"):
        task(2048, 16, 32, 4, 7, 4)
    with pytest.raises(RotaError, match="17 groups of --layers 16; give 1 to as many"):
        task(2048, 16, 32, 4, 8, 17)


def test_submeshes_are_parts_of_a_node_or_whole_nodes() -> None:
    assert submesh_sizes(32, 8) == [1, 2, 4, 8, 16, 32]
    assert submesh_sizes(4, 8) == [1, 2, 4]


def test_batch_that_is_too_small_for_the_devices_is_the_reason() -> None:
    small = task(1024, 2, 2, 64, 1024, 2)

    with pytest.raises(RotaError, match=r"--gpus 64 cannot all be used by 2 layers with 1 sequences .* larger --batch"):
        plan_staged(small)
