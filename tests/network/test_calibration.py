"""Calibration to measured tables, one half of which the fit does not see."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.errors import RotaError
from rota.files.network.measured_table import read_measured_table
from rota.network.calibration import fit_curve, fit_table, held_back_error

DATA = os.environ.get("ROTA_DATA")
MEASURED = [f"allreduce_{kind}_{ranks}gpus.txt" for kind in ("a100", "v100") for ranks in (2, 4, 8)]


@pytest.mark.skipif(DATA is None, reason="needs $ROTA_DATA")
@pytest.mark.parametrize("name", MEASURED)
@pytest.mark.parametrize("seed", [1, 2])
def test_held_back_half_of_measured_tables_is_met(name: str, seed: int) -> None:
    points = read_measured_table(Path(str(DATA)) / "planner" / "vtrain" / name)

    error = held_back_error(points, seed)

    assert error.points >= 500
    assert error.mean < 0.02
    assert error.p99 < 0.10


@settings(max_examples=40, deadline=None)
@given(
    latency_us=st.floats(1, 500),
    rate_gb=st.floats(0.5, 500),
    switch_mb=st.floats(4, 64),
    gain=st.floats(1.0, 3.0),
    seed=st.integers(0, 99),
)
def test_a_protocol_that_switches_is_met_within_a_tenth(
    latency_us: float, rate_gb: float, switch_mb: float, gain: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    sizes = np.arange(1, 257) * 2.0**20

    def time_s(size: float) -> float:
        slow = min(size, switch_mb * 2**20) / (rate_gb * 1e9 / gain)
        return latency_us * 1e-6 + slow + max(size - switch_mb * 2**20, 0.0) / (rate_gb * 1e9)

    points = [(float(size), time_s(size) * float(rng.normal(1, 0.01))) for size in sizes]

    assert held_back_error(points, seed).p99 < 0.10


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(1, 1e9), st.floats(1e-6, 10)), min_size=2, max_size=40))
def test_any_table_gives_a_curve_that_never_falls(points: list[tuple[float, float]]) -> None:
    curve = fit_curve(points)
    times = [curve.time_s(size) for size in np.geomspace(0.5, 2e9, 50)]

    assert all(np.isfinite(times))
    assert min(times) > 0
    assert all(b >= a * (1 - 1e-9) for a, b in itertools.pairwise(times))


def test_more_ranks_than_measured_take_longer() -> None:
    table = fit_table({2: [(1e6, 1e-4), (1e8, 1e-2)], 8: [(1e6, 2e-4), (1e8, 1.7e-2)]})

    times = [table.time_s(ranks, 5e7) for ranks in (2, 3, 4, 8, 16, 64)]

    assert times == sorted(times)
    assert table.time_s(1, 5e7) == 0.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("a,b\n1,2\n", "its columns are a, b"),
        ("size,time(us)\n1024,fast\n", "line 2"),
        ("size,time(us)\n1024,-3\n", "both must be above 0"),
        ("size,time(us)\n1024,3\n", "1 measured sizes"),
    ],
    ids=["empty", "columns", "text", "negative", "one"],
)
def test_wrong_tables_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)

    with pytest.raises(RotaError, match=message):
        read_measured_table(path)
