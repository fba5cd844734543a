"""The loop that bounds the loss of guaranteed jobs, against plants whose interference is known."""

from __future__ import annotations

import random

import pytest

from rota.drivers.local.gpu.throttle import FLOOR, DutyControl, StepRate


def run(factor: float, bound: float, noise: float = 0.01, looks: int = 60, change: float | None = None) -> float:
    """The part of the time that others get beside a job that loses `factor` for each part; it must keep its bound."""
    rng = random.Random(1)
    control = DutyControl(bound=bound)
    control.note_alone(100.0)
    kept, duties = [], []
    for look in range(looks):
        now = change if change is not None and look >= looks // 2 else factor
        rate = 100.0 * (1 - now * control.duty) * rng.gauss(1.0, noise)
        kept.append(rate / 100.0)
        duties.append(control.update(rate))
    half = kept[looks // 2 + 5 :]
    assert sum(half) / len(half) >= bound
    return sum(duties[-len(half) :]) / len(half)


@pytest.mark.parametrize(("factor", "least"), [(0.0, 0.98), (0.1, 0.3), (0.5, 0.05), (1.0, 0.025)])
@pytest.mark.parametrize("bound", [0.9, 0.95])
def test_the_bound_holds_and_the_other_job_gets_most_of_what_is_left(factor: float, least: float, bound: float) -> None:
    assert run(factor, bound) >= least


def test_it_follows_when_the_interference_changes() -> None:
    assert run(0.6, 0.95, change=0.05, looks=200) > 0.5
    assert run(0.05, 0.95, change=0.6, looks=200) < 0.1


def test_a_loss_above_the_bound_cuts_at_once_but_never_to_nothing() -> None:
    control = DutyControl(bound=0.95, duty=0.8)
    control.note_alone(100.0)

    assert control.update(60.0) <= 0.8 * 0.6
    assert all(FLOOR <= control.update(10.0) < 0.1 for _ in range(3))


def test_a_loss_that_comes_suddenly_is_cut_before_its_cause_is_learned() -> None:
    control = DutyControl(bound=0.95, duty=0.8, loss_seen=0.05, duty_seen=1.0, alone=100.0)

    assert control.update(80.0) <= 0.8 * 0.6


def test_without_a_speed_alone_nothing_changes() -> None:
    control = DutyControl(bound=0.95, duty=0.3)

    assert control.update(50.0) == 0.3


def test_the_rate_is_that_of_the_last_seconds_and_a_new_start_begins_again() -> None:
    rate = StepRate()
    assert rate.rate is None
    for second in range(20):
        rate.add(float(second), 10.0 * second if second < 5 else 50.0 + 20.0 * (second - 5))
    assert rate.rate == pytest.approx(20.0)
    rate.add(20.0, 3.0)
    assert rate.rate is None
    rate.add(21.0, 8.0)
    assert rate.rate == 5.0


def test_reports_of_before_conditions_changed_do_not_count() -> None:
    rate = StepRate()
    for second in range(4):
        rate.add(float(second), 10.0 * second)
    rate.clear(3.5)

    rate.add(3.0, 30.0)
    rate.add(4.0, 40.0)
    assert rate.rate is None
    rate.add(5.0, 45.0)
    assert rate.rate == 5.0


def test_a_job_that_becomes_slower_by_itself_does_not_starve_the_other() -> None:
    """It loses a quarter of its speed, whatever the other does: that is its speed alone from then on."""
    control = DutyControl(bound=0.95)
    control.note_alone(144.0)

    duties = [control.update(105.0) for _ in range(60)]

    assert min(duties) == FLOOR
    assert max(duties[30:]) > 0.9
