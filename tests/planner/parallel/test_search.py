"""The planner `ptd-p`: what it chooses, and how it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rota.core.errors import RotaError
from rota.planner.parallel.catalogue import MODELS, named_model
from rota.planner.parallel.deployment import planned_speed, script_arguments
from rota.planner.parallel.hardware import accelerator
from rota.planner.parallel.plans import ParallelPlan, Recompute, Sharding, TrainingSetup, checked, objection
from rota.planner.parallel.search import PlanConstraints, by_rule, by_search, divisors, usual_recompute
from rota.planner.parallel.transformer import TransformerShape

A100 = accelerator("a100")


def setup_of(name: str, gpus: int, per_node: int = 8) -> TrainingSetup:
    model = named_model(name)
    return TrainingSetup(shape=model.shape, batch=model.batch, gpus=gpus, per_node=per_node)


def test_parameters_are_those_of_the_published_table() -> None:
    sizes = {name: round(model.shape.parameters / 1e9, 1) for name, model in MODELS.items() if name != "gpt-175b"}

    assert list(sizes.values()) == [1.7, 3.6, 7.5, 18.4, 39.1, 76.1, 145.6, 310.1, 529.6, 1008.0]


def test_search_is_no_slower_than_any_given_plan_that_fits() -> None:
    setup = setup_of("gpt-18b", 256)
    best = by_search(A100, setup, PlanConstraints())[0]

    given = by_search(A100, setup, PlanConstraints(tensor=8, pipeline=1, micro_batch=4))[0]
    assert best.cost.iteration_s <= given.cost.iteration_s
    assert best.cost.fits


def test_constraints_are_kept() -> None:
    found = by_search(A100, setup_of("gpt-39b", 512), PlanConstraints(tensor=4, micro_batch=2))

    assert {(one.plan.tensor, one.plan.micro_batch, one.plan.interleave) for one in found} == {(4, 2, 1)}
    assert all(one.plan.gpus == 512 for one in found)
    assert [one.cost.iteration_s for one in found] == sorted(one.cost.iteration_s for one in found)


def test_rule_splits_layers_within_a_node_before_it_adds_stages() -> None:
    small = by_rule(A100, setup_of("gpt-1.7b", 64), PlanConstraints())[0].plan
    large = by_rule(A100, setup_of("gpt-145b", 1536), PlanConstraints())[0].plan

    assert (small.tensor, small.pipeline) == (1, 1)
    assert large.tensor == 8
    assert large.pipeline > 1


def test_model_that_never_fits_is_refused_with_the_way_out() -> None:
    with pytest.raises(
        RotaError, match=r"^no plan fits the 76 usable GiB of one a100 on --gpus 8: .* give more --gpus"
    ):
        by_search(A100, setup_of("gpt-1t", 8), PlanConstraints())


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        pytest.param({"tensor": 3}, "--tensor 3 does not divide --heads 32", id="heads"),
        pytest.param({"data": 4}, "is 32, not --gpus 64", id="product"),
        pytest.param({"micro_batch": 3}, "--data 8 x --micro-batch 3 does not divide --batch 512", id="batch"),
        pytest.param({"pipeline": -4}, "--pipeline -4 is below 1", id="negative"),
        pytest.param({"pipeline": 64, "data": 1, "tensor": 1}, "--pipeline 64 is above --layers 30", id="layers"),
        pytest.param({"interleave": 7}, "--interleave 7 x --pipeline 2 does not divide --layers 30", id="chunks"),
        pytest.param({"pipeline": 1, "data": 16, "interleave": 2}, "--interleave 2 needs a pipeline", id="no stages"),
    ],
)
def test_impossible_plans_are_named(plan: dict[str, int], said: str) -> None:
    wanted = replace(ParallelPlan(tensor=4, pipeline=2, data=8, micro_batch=1), **plan)  # type: ignore[arg-type]  # degrees

    with pytest.raises(RotaError) as raised:
        checked(setup_of("gpt-3.6b", 64), wanted)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_interleaving_needs_rounds_of_micro_batches() -> None:
    plan = ParallelPlan(tensor=8, pipeline=2, data=4, micro_batch=128, interleave=3)

    assert "in multiples of --pipeline 2" in str(objection(setup_of("gpt-3.6b", 64), plan))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param(PlanConstraints(data=5), "--data 5 does not divide --gpus 64", id="gpus"),
        pytest.param(PlanConstraints(tensor=8, pipeline=16), "x --pipeline 16 does not divide --gpus 64", id="two"),
        pytest.param(PlanConstraints(tensor=2, pipeline=2, data=2), "is 8, not --gpus 64", id="product"),
        pytest.param(PlanConstraints(interleave=4), "--interleave 4 suits no plan", id="chunks"),
        pytest.param(PlanConstraints(tensor=3), "--tensor 3 does not divide --heads 32", id="heads first"),
        pytest.param(
            PlanConstraints(data=64, micro_batch=3), "--micro-batch 3 does not divide --batch 512", id="batch"
        ),
        pytest.param(PlanConstraints(tensor=64), "--tensor 64 does not divide --heads 32", id="heads"),
        pytest.param(PlanConstraints(micro_batch=-1), "--micro-batch -1 is below 1", id="negative"),
        pytest.param(PlanConstraints(pipeline=32), "--pipeline 32 is above --layers 30", id="layers"),
    ],
)
def test_impossible_constraints_are_named(given: PlanConstraints, said: str) -> None:
    with pytest.raises(RotaError, match=said):
        by_search(A100, setup_of("gpt-3.6b", 64), given)


def test_shape_is_checked() -> None:
    with pytest.raises(RotaError, match="--layers 0 is below 1"):
        TransformerShape(hidden=64, layers=0, heads=4, seq=8, vocab=8)
    with pytest.raises(RotaError, match="--heads 5 does not divide --hidden 64"):
        TransformerShape(hidden=64, layers=1, heads=5, seq=8, vocab=8)


def test_activations_of_small_models_are_kept() -> None:
    small = TransformerShape(hidden=2048, layers=24, heads=16, seq=1024, vocab=51200)

    assert usual_recompute(A100, small) is Recompute.NONE
    assert usual_recompute(A100, named_model("gpt-1.7b").shape) is Recompute.FULL


def test_divisors_ascend() -> None:
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]


def test_cluster_sees_speed_grow_with_devices_and_fall_with_spread() -> None:
    packed = planned_speed("gpt-7.5b", "a100", 16, 2)
    spread = planned_speed("gpt-7.5b", "a100", 16, 16)
    larger = planned_speed("gpt-7.5b", "a100", 32, 4)

    assert spread.steps_per_s < packed.steps_per_s < larger.steps_per_s
    assert packed.feasible


def test_cluster_is_told_why_a_model_cannot_run() -> None:
    none = planned_speed("gpt-39b", "a100", 1)
    uneven = planned_speed("gpt-39b", "a100", 9, 2)

    assert (none.feasible, none.steps_per_s) == (False, 0.0)
    assert none.reason is not None
    assert "no plan fits" in none.reason
    assert uneven.reason == "9 GPUs do not spread evenly over 2 nodes"


def test_cluster_shards_the_optimizer_where_that_helps() -> None:
    found = planned_speed("gpt-7.5b", "a100", 64, 8)

    assert found.plan is not None
    assert found.plan.sharding is Sharding.OPTIMIZER
    assert "--use-distributed-optimizer" in found.arguments


def test_scripts_are_told_of_chunks_and_recomputation() -> None:
    plan = ParallelPlan(tensor=8, pipeline=2, data=32, micro_batch=2, interleave=4)

    words = script_arguments(setup_of("gpt-39b", 512), plan)

    assert "--num-layers-per-virtual-pipeline-stage=6" in words
    assert "--recompute-granularity=full" in words
    assert "--use-distributed-optimizer" not in words


@pytest.mark.slow
def test_job_is_told_its_plan() -> None:
    found = planned_speed("gpt-39b", "a100", 64, 8)

    assert found.plan is not None
    assert found.torchrun == ("--nnodes=8", "--nproc-per-node=8")
    assert f"--tensor-model-parallel-size={found.plan.tensor}" in found.arguments
    ((name, text),) = found.variables
    assert name == "ROTA_PLAN"
    assert f'"pipeline": {found.plan.pipeline}' in text
