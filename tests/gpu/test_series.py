"""Samples over time in bounded space."""

from __future__ import annotations

import json

import pytest

from rota.drivers.local.gpu.sensors import FIELDS, Values
from rota.drivers.local.gpu.series import MOST_LAST, SampleSeries


def values(busy: float | None, memory: float = 0.0) -> Values:
    """A sample of which only these are known."""
    return tuple({"busy": busy, "memory_bytes": memory}.get(name) for name in FIELDS)


def filled(seconds: int, every: int = 1) -> SampleSeries:
    """Samples of so many seconds; the GPU is busy in every second sample, and its memory grows."""
    series = SampleSeries()
    for second in range(0, seconds, every):
        series.add(float(second), values(100.0 * (second // every % 2), float(second)))
    return series


def test_older_samples_are_merged_and_each_counts_once() -> None:
    series = filled(20_000)

    points = series.points()

    assert sum(point.samples for point in points) == 20_000
    assert [point.at_s for point in points] == sorted(point.at_s for point in points)
    recent = [point for point in points if point.at_s >= 19_400]
    assert {point.samples for point in recent} == {1}
    middle = [point for point in points if 9_300 < point.at_s < 19_300]
    assert {point.samples for point in middle} == {10}
    assert {point.samples for point in points[1:20]} == {60}


def test_a_merged_point_has_the_mean_of_use_and_the_peak_of_memory() -> None:
    point = filled(1_000).points()[1]

    assert (point.at_s, point.samples) == (10.0, 10)
    assert point.values[FIELDS.index("busy")] == 50.0
    assert point.values[FIELDS.index("memory_bytes")] == 19.0


def test_weeks_take_bounded_space() -> None:
    series = filled(40 * 86_400, every=60)

    points = series.points()

    assert sum(point.samples for point in points) == 40 * 1440
    assert len(points) < 10 + 180 + MOST_LAST + 10
    assert points[0].at_s == 0.0


def test_what_is_written_is_read_again() -> None:
    series = filled(15_000)

    again = SampleSeries.decode(json.loads(json.dumps(series.encode())))

    assert [point.at_s for point in again.points()] == [point.at_s for point in series.points()]
    assert sum(point.samples for point in again.points()) == 15_000
    again.add(15_000.0, values(1.0))
    assert again.points()[-1].at_s == 15_000.0


def test_the_mean_of_a_time_leaves_out_what_is_unknown() -> None:
    series = SampleSeries()
    for second, busy in enumerate([90.0, 10.0, None, 30.0]):
        series.add(float(second), values(busy))

    assert series.mean_since(1.0, "busy") == pytest.approx(20.0)
    assert series.mean_since(4.0, "busy") is None
