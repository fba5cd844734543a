"""Speeds by plan for the cluster: names of models, feasibility by memory, sizes, spread and the fixed plan."""

from __future__ import annotations

import pytest

from rota.core.errors import RotaError
from rota.core.model.job import DeviceType
from rota.perf.profiles.speed_table import Profiles
from rota.planner.parallel.cluster_speeds import PlannedSpeeds, best_plan, why_not
from rota.planner.parallel.deployment import planned_speed
from rota.planner.parallel.hardware import GIB, accelerator, is_accelerator
from rota.planner.parallel.model_names import is_planned, pinned, planned_model

A100, V100, TPU = DeviceType("a100"), DeviceType("v100"), DeviceType("tpu")
SPEEDS = PlannedSpeeds(per_node={A100: 8, V100: 8, TPU: 4})


def test_speed_is_that_of_the_best_plan() -> None:
    assert SPEEDS.rate(A100, "gpt-7.5b", 4) == planned_speed("gpt-7.5b", "a100", 4).steps_per_s
    assert SPEEDS.rate(A100, "gpt-7.5b", 16) == planned_speed("gpt-7.5b", "a100", 16, 2).steps_per_s


def test_speed_is_zero_where_no_plan_fits_into_memory() -> None:
    assert SPEEDS.rate(A100, "gpt-7.5b", 1) == 0.0
    assert SPEEDS.rate(V100, "gpt-7.5b", 8) == 0.0
    assert (SPEEDS.rate(V100, "gpt-7.5b", 16) or 0.0) > 0.0
    assert SPEEDS.rate(TPU, "gpt-7.5b", 64) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gpt-1.7b", "gpt-7.5b", "gpt-18b:tensor=2,pipeline=2"])
def test_more_devices_are_never_slower_and_never_stop_fitting(model: str) -> None:
    rates = [best_plan(model, "a100", devices, 8).steps_per_s for devices in range(1, 25)]
    assert rates == sorted(rates)


def test_scattered_devices_are_slower() -> None:
    near, far = SPEEDS.rate(V100, "gpt-3.6b", 8), SPEEDS.rate(V100, "gpt-3.6b", 8, scattered=True)
    assert near is not None
    assert far is not None
    assert 0 < far < near


def test_fixed_plan_runs_in_multiples_of_its_replica() -> None:
    fixed = "gpt-7.5b:tensor=2,pipeline=2"
    assert SPEEDS.rate(A100, fixed, 3) == 0.0
    assert SPEEDS.rate(A100, fixed, 4) == SPEEDS.rate(A100, fixed, 7)
    assert (SPEEDS.rate(A100, fixed, 8) or 0.0) > (SPEEDS.rate(A100, fixed, 7) or 0.0) > 0


def test_pinned_name_gives_the_plan_it_was_made_of() -> None:
    answer = planned_speed("gpt-18b", "a100", 8)
    assert answer.plan is not None
    again = planned_speed(pinned("gpt-18b", answer.plan), "a100", 8)
    assert again.plan == answer.plan
    assert again.steps_per_s == answer.steps_per_s


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpt-8b", "gpt-18b"),
        ("gpt-18b:tenser=2", "tensor"),
        ("gpt-18b:tensor=0", "whole number"),
        ("gpt-18b:tensor=2,tensor=4", "once"),
        ("gpt-18b:recompute=some", "recompute"),
    ],
)
def test_bad_names_get_one_line(text: str, names: str) -> None:
    with pytest.raises(RotaError, match=names) as error:
        planned_model(text)
    assert "\n" not in str(error.value)


def test_other_models_are_those_of_the_other_speeds() -> None:
    others = Profiles(steps_per_s={(A100, "resnet50", 1): 3.0}, source="table", is_relative=True)
    speeds = PlannedSpeeds(per_node={A100: 8}, others=others)
    assert speeds.rate(A100, "resnet50", 1) == 3.0
    assert not speeds.has_sizes("resnet50")
    assert not speeds.knows("vgg16")
    table = speeds.table({"gpt-1.7b": [1, 2]}, others)
    assert table.rate(A100, "resnet50", 1) == 3.0
    assert table.rate(A100, "gpt-1.7b", 2) == speeds.rate(A100, "gpt-1.7b", 2)
    assert table.has_sizes("gpt-1.7b")
    assert table.is_relative


def test_product_names_are_device_types_with_their_memory() -> None:
    assert accelerator("NVIDIA-A100-SXM4-40GB").memory_bytes == 40 * GIB
    assert accelerator("Tesla V100").memory_bytes == accelerator("v100").memory_bytes
    assert not is_accelerator("a100-or-v100")
    assert not is_accelerator("a1000")


def test_refusal_states_devices_and_memory() -> None:
    assert why_not("gpt-39b", {V100: 8, A100: 8}, 4).startswith("4 x a100: no plan fits")
    assert "knows none" in why_not("gpt-39b", {TPU: 4}, 4)
    assert is_planned("GPT-39B:tensor=8")
    assert not is_planned("resnet50")
