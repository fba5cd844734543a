"""The built-in catalogue: every figure has a source, and what is estimated is sane and marked."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from rota.core.model.job import DeviceType
from rota.perf.profiles.catalogue import REFERENCE, catalogue, estimated
from rota.placement.skew import LARGEST_TENSOR_SHARE

BOOK = catalogue()
ALL = [(model, kind) for model in BOOK.models for kind in BOOK.types]


def test_every_figure_names_a_source_that_is_listed() -> None:
    named = {row.source for entry in BOOK.models.values() for row in entry.speeds.values()}
    named |= {entry.parameters_source for entry in BOOK.models.values() if entry.parameters_source is not None}
    named |= {entry.source for entry in BOOK.types.values()}

    assert named == BOOK.sources.keys()


def test_every_model_and_type_is_used() -> None:
    assert {kind for entry in BOOK.models.values() for kind in entry.speeds} == BOOK.types.keys()
    assert all(entry.speeds for entry in BOOK.models.values())
    assert {entry.kind for entry in BOOK.types.values()} == {"gpu", "cpu", "tpu"}


@pytest.mark.parametrize("model", BOOK.models)
def test_published_figures_are_numbers_that_grow_with_devices(model: str) -> None:
    for kind, row in BOOK.models[model].speeds.items():
        speeds = [row.by_devices[count] for count in sorted(row.by_devices)]

        assert all(0 < speed < math.inf for speed in speeds), kind
        assert all(after > 0.8 * before for before, after in pairwise(speeds)), kind


@pytest.mark.slow
@pytest.mark.parametrize(("model", "kind"), ALL)
def test_speed_is_positive_just_where_the_model_fits(model: str, kind: DeviceType) -> None:
    for devices in (1, 2, 3, 8, 64):
        speed = BOOK.speed(model, kind, devices).samples_per_s

        assert (speed > 0) == BOOK.fits(model, kind)
        assert speed < math.inf


def test_published_speed_carries_its_source_and_an_estimate_none() -> None:
    published = BOOK.speed("resnet50", DeviceType("p100"), 8)
    guessed = BOOK.speed("bert-base", DeviceType("p100"), 1)

    assert (published.samples_per_s, published.source) == (1734, "tensorflow-2017")
    assert guessed.source is None


def test_model_that_did_not_fit_into_11_gib_is_never_put_there() -> None:
    small = [kind for kind in BOOK.types if not BOOK.fits("transformer-xl-large", kind)]

    assert small == ["gtx1080ti", "rtx2080", "rtx2080ti", "rtx3080"]
    assert BOOK.profiles(small, [1]).rate(DeviceType("rtx2080ti"), "transformer-xl-large", 1) == 0.0


def test_between_and_beyond_measured_counts_the_gain_per_device_is_kept() -> None:
    v100 = [BOOK.speed("resnet50", REFERENCE, count).samples_per_s for count in (2, 3, 4, 8, 16)]

    assert v100[0] < v100[1] < v100[2]
    assert v100[4] == pytest.approx(2 * v100[3])


def test_type_measured_with_four_devices_only_has_a_speed_alone() -> None:
    tpu = DeviceType("tpu-v2")

    assert BOOK.speed("resnet50", tpu, 4).samples_per_s == 3186
    assert BOOK.speed("resnet50", tpu, 1).samples_per_s == pytest.approx(3186 / 4)


def test_estimates_report_an_error_that_is_worth_having() -> None:
    error = estimated().error

    assert error is not None
    assert error.median < 0.2


def test_steps_are_batches_on_every_device() -> None:
    profiles = BOOK.profiles([REFERENCE], [1, 8])

    assert profiles.rate(REFERENCE, "resnet50", 1) == pytest.approx(368 / 64)
    assert profiles.rate(REFERENCE, "resnet50", 8) == pytest.approx(2862 / 64 / 8)


def test_speeds_over_nodes_are_those_that_were_published() -> None:
    t4 = DeviceType("t4")
    profiles = BOOK.profiles([t4, REFERENCE], [1, 2])

    assert profiles.rate(t4, "bert-squad", 2, scattered=True) == pytest.approx(16.20 / 12 / 2)
    assert profiles.rate(t4, "bert-squad", 2) == pytest.approx(26.11 / 12 / 2)
    assert (REFERENCE, "bert-squad", 2) not in profiles.scattered


def test_relative_speed_is_that_of_as_many_devices_of_the_reference() -> None:
    k80 = DeviceType("k80")
    relative = BOOK.profiles([k80, REFERENCE], [1, 8]).relative_to(REFERENCE)

    assert relative.is_relative
    assert relative.rate(REFERENCE, "resnet50", 8) == 1.0
    assert relative.rate(k80, "resnet50", 8) == pytest.approx(387 / 2862)


def test_models_whose_tensors_are_known_go_by_the_same_name() -> None:
    assert {"alexnet", "vgg16", "resnet50"} <= LARGEST_TENSOR_SHARE.keys() & BOOK.models.keys()
