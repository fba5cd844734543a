"""Turns between jobs: iterations start in step with them, and keeping them costs a tenth at most."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota import sdk
from rota.sdk.iteration_shift import MOST_WAIT, IterationShift

EPS = 1e-9


def course(shift: IterationShift, took_s: list[float], from_s: float) -> tuple[list[float], float]:
    """When iterations that take so long start, and the seconds waited after the first start."""
    now_s, waited_s = from_s, 0.0
    starts: list[float] = []
    for own_s in took_s:
        wait_s = shift.wait_s(now_s)
        waited_s += wait_s if starts else 0.0
        now_s += wait_s
        starts.append(now_s)
        now_s += own_s
    return starts, waited_s


def test_lateness_is_counted_from_its_turn() -> None:
    shift = IterationShift(0.25, 1.0, 10.0)

    assert shift.lateness_s(10.25) == pytest.approx(0.0)
    assert shift.lateness_s(11.0) == pytest.approx(0.75)
    assert IterationShift(0.0, 0.0).begin() == 0.0


def test_terms_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_SHIFT_S", "0.000300")
    monkeypatch.setenv("ROTA_PERIOD_S", "0.001")
    shift = sdk.IterationShift()

    assert (shift.shift_s, shift.period_s) == (0.0003, 0.001)
    assert 0 < shift.begin() <= 0.001


@settings(max_examples=100, deadline=None)
@given(
    period_s=st.floats(0.01, 100),
    turn=st.floats(0, 1, exclude_max=True),
    share=st.floats(0.953, 1.0),
    from_s=st.floats(0, 1e4),
)
def test_iterations_as_long_as_said_start_in_their_turn(
    period_s: float, turn: float, share: float, from_s: float
) -> None:
    """The scheduler lengthens periods by at most a twentieth."""
    shift = IterationShift(turn * period_s, period_s)

    starts, _ = course(shift, [share * period_s * (1 - EPS)] * 60, from_s)

    for start_s in starts:
        late_s = shift.lateness_s(start_s + 1e-6 * period_s)
        assert late_s <= 0.1 * period_s + 2e-6 * period_s


@settings(max_examples=100, deadline=None)
@given(period_s=st.floats(0.01, 100), ratios=st.lists(st.floats(0.1, 5), min_size=1, max_size=4), data=st.data())
def test_wrong_periods_cost_a_tenth_at_most(period_s: float, ratios: list[float], data: st.DataObject) -> None:
    ratio = st.sampled_from(ratios)
    took_s = [data.draw(ratio) * period_s for _ in range(5)] * 20
    shift = IterationShift(data.draw(st.floats(0, 1)) * period_s, period_s)

    starts, waited_s = course(shift, took_s, 0.0)

    assert waited_s <= MOST_WAIT * (starts[-1] - starts[0]) + period_s * (1 + EPS)


def test_iterations_that_are_a_little_too_long_do_not_wait_each_time() -> None:
    """Three per cent longer than said: to catch up with each lost turn would cost a quarter."""
    starts, waited_s = course(IterationShift(0.0, 1.0), [1.03] * 400, 0.0)

    assert waited_s < 0.12 * (starts[-1] - starts[0])
