"""Schedules of gradients: bounds that hold for any profile, and the order of the published schedules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.errors import RotaError
from rota.network.gradients import GradientLink, GradientSchedule, LayerGradient, blocks_of, scheduled
from rota.network.layer_profiles import ARCHITECTURES, profile_of

LAYERS = st.lists(st.tuples(st.floats(0, 5e7), st.floats(1e-4, 0.1), st.floats(1e-4, 0.1)), min_size=1, max_size=12)


def layers_of(raw: list[tuple[float, float, float]]) -> list[LayerGradient]:
    ready, now_s = [], 0.0
    for _, _, backward_s in reversed(raw):
        now_s += backward_s
        ready.append(now_s)
    times = zip(raw, reversed(ready), strict=True)
    return [LayerGradient(size=size, forward_s=forward_s, ready_s=at_s) for (size, forward_s, _), at_s in times]


@pytest.mark.parametrize("kind", GradientSchedule)
@settings(max_examples=40, deadline=None)
@given(raw=LAYERS, rate=st.floats(1e7, 1e11), message_s=st.floats(0, 1e-2))
def test_no_schedule_beats_computing_or_the_link(
    kind: GradientSchedule, raw: list[tuple[float, float, float]], rate: float, message_s: float
) -> None:
    layers = layers_of(raw)

    found = scheduled(kind, layers, GradientLink(bytes_per_s=rate, message_s=message_s))

    compute_s = layers[0].ready_s + sum(layer.forward_s for layer in layers)
    first_s = min(layer.ready_s for layer in layers)
    sent_s = sum(layer.size for layer in layers) / rate
    assert found.iteration_s >= compute_s * (1 - 1e-9)
    assert max(found.arrival_s) >= first_s + sent_s * (1 - 1e-9)
    assert all(a >= layer.ready_s * (1 - 1e-9) for a, layer in zip(found.arrival_s, layers, strict=True))


@pytest.mark.parametrize("model", ["resnet50", "resnet101", "vgg16", "vgg19"])
def test_priorities_help_where_communication_dominates(model: str) -> None:
    rate = sum(layer.size for layer in profile_of(model)) / ARCHITECTURES[model][1]
    link = GradientLink(bytes_per_s=rate, message_s=2e-4)

    found = {kind: scheduled(kind, profile_of(model), link).iteration_s for kind in GradientSchedule}

    assert found[GradientSchedule.PROPHET] < found[GradientSchedule.P3] <= found[GradientSchedule.FIFO] * 1.001
    assert found[GradientSchedule.BYTESCHEDULER] < found[GradientSchedule.P3]


@pytest.mark.parametrize("model", ARCHITECTURES)
def test_prophet_costs_at_most_three_in_a_hundred_anywhere(model: str) -> None:
    layers = profile_of(model)
    for gbit in (0.5, 1, 2, 5, 10, 25, 50, 100, 400):
        link = GradientLink(bytes_per_s=gbit * 1.25e8, message_s=3e-4)
        plain = scheduled(GradientSchedule.FIFO, layers, link).iteration_s
        assert scheduled(GradientSchedule.PROPHET, layers, link).iteration_s <= 1.03 * plain


def test_blocks_end_at_wide_gaps() -> None:
    assert blocks_of([5.0, 4.9, 2.0, 1.1, 1.0]) == [[4, 3, 2], [1, 0]]
    assert blocks_of([]) == []


def test_an_unknown_model_names_the_way_out() -> None:
    with pytest.raises(RotaError, match="unknown model 'vgg17'; did you mean 'vgg1"):
        profile_of("vgg17")
