"""Models that are fitted to what was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import job
from rota.perf.training.convergence import EPOCHS, LossCurve, fit, report
from rota.perf.training.goodput import TRAININGS, Batches, StepTime, best_batch, best_of, steps_tried
from rota.perf.training.goodput_fit import Seen, fit_steps, goodputs
from rota.perf.training.reports import Reports, SimulatedReports
from rota.perf.training.speed_fit import SpeedCurve, fit_speed

part = st.floats(0.01, 10.0)


@given(divided=part, fixed=part, growing=st.floats(0.0, 0.1))
def test_speeds_at_other_sizes_follow_from_a_few(divided: float, fixed: float, growing: float) -> None:
    true = SpeedCurve(divided, fixed, growing)

    found = fit_speed({count: true.speed(count) for count in (1, 2, 4, 8, 16)})

    assert found.speed(11) == pytest.approx(true.speed(11), rel=1e-6)


def test_nothing_measured_is_taken_as_linear() -> None:
    assert fit_speed({}).speed(3) == 3.0


def test_a_fit_never_gains_from_nothing() -> None:
    """Speeds that grow faster than the size (noise) are taken as linear, not as a negative part."""
    found = fit_speed({1: 1.0, 2: 2.5})

    assert min(found) >= 0.0
    assert found.speed(4) <= 4 * found.speed(1) * 1.0001


@pytest.mark.parametrize("epochs", [10, 25, 45])
@pytest.mark.parametrize("curve", [LossCurve(0.15, 1.1, 0.1), LossCurve(0.4, 0.9, 0.3), LossCurve(0.1, 1.3, 0.05)])
def test_convergence_is_foreseen_from_losses_without_noise(curve: LossCurve, epochs: int) -> None:
    found = fit([curve.loss(epoch) for epoch in range(1, epochs + 1)])

    assert found is not None
    assert found.converges_at(curve.falls(EPOCHS)) == pytest.approx(EPOCHS, rel=0.05)


def test_two_losses_are_too_few() -> None:
    assert fit([1.0, 0.9]) is None


def test_a_job_reports_the_epochs_that_it_has_done() -> None:
    half = report(job("j", work=100.0), 50.0)
    whole = report(job("j", work=100.0), 100.0)

    assert half is not None
    assert whole is not None
    assert (len(half.losses), len(whole.losses)) == (EPOCHS // 2, EPOCHS)
    assert whole.losses[: EPOCHS // 2] == half.losses
    assert report(job("j", work=None), 50.0) is None


def test_the_best_batch_by_hand() -> None:
    """Two devices, no overlap: batch m takes 1 + 0.1 m/2 + 1 s and is worth (30 + 10)/(30 + m) of m examples.

    m = 10: 10/2.5 = 4. m = 20 (the most): 20/3 x 40/50 = 5.33. A user's own batch on one device: 10/2 = 5.
    """
    times = StepTime(compute_s=1.0, per_example_s=0.1, local_s=1.0)
    batches = Batches(own=10, most=20, most_per_device=100, noise=30.0)

    assert best_batch(times, batches, 2, False) == pytest.approx((16 / 3, 20.0))
    assert times.step_s(10, 1, False) == 2.0


def test_gradients_and_their_exchange_overlap() -> None:
    """3 and 4 seconds with an overlap of 2 are 5, not 7."""
    assert StepTime(3.0, 0.0, local_s=4.0, overlap=2.0).step_s(1, 2, False) == pytest.approx(5.0)


@pytest.mark.parametrize("model", TRAININGS)
def test_models_gain_from_a_second_device_but_not_twice_and_suffer_from_the_network(model: str) -> None:
    one, two, far = best_of(model, 1, False), best_of(model, 2, False), best_of(model, 2, True)

    assert one.goodput < two.goodput < 2.05 * one.goodput
    assert far.goodput < two.goodput
    assert len(steps_tried(model, 2, False)) >= 2


@pytest.mark.parametrize("model", TRAININGS)
def test_goodput_at_sizes_not_seen_follows_from_those_that_were(model: str) -> None:
    """One, two and four devices on a node, and two nodes once."""
    places = [(1, False), (2, False), (4, False), (16, True), (24, True)]
    seen = [Seen(devices, far, steps_tried(model, devices, far)) for devices, far in places]

    found = goodputs(fit_steps(seen), TRAININGS[model].batches, [6, 20], 8)

    assert found.tolist() == pytest.approx(
        [best_of(model, 6, False).goodput, best_of(model, 20, True).goodput], rel=0.1
    )


def test_what_was_not_seen_is_taken_as_free() -> None:
    """From steps on one device, eight are eight times as good as long as the batch may grow."""
    alone = [Seen(1, False, steps_tried("resnet50", 1, False))]

    one, two = goodputs(fit_steps(alone), Batches(own=128, most=10**6, most_per_device=128, noise=1e9), [1, 2], 8)

    assert two == pytest.approx(2 * one, rel=0.01)


def test_steps_on_several_devices_alone_still_give_a_fit() -> None:
    seen = [Seen(devices, False, steps_tried("bert", devices, False)) for devices in (2, 4, 8)]

    found = goodputs(fit_steps(seen), TRAININGS["bert"].batches, [6], 8)

    assert found[0] == pytest.approx(best_of("bert", 6, False).goodput, rel=0.2)


def test_simulated_jobs_tell_of_their_training_and_real_ones_do_not() -> None:
    known, unknown = job("k", model="bert", work=100.0), job("u", model="mine", work=100.0)

    simulated = SimulatedReports()
    assert simulated.batches(known) == TRAININGS["bert"].batches
    assert simulated.steps(known, 2, False) == steps_tried("bert", 2, False)
    assert (simulated.batches(unknown), simulated.steps(unknown, 2, False)) == (None, ())
    assert simulated.losses(unknown, 50.0) == report(unknown, 50.0)
    real = Reports()
    assert (real.batches(known), real.steps(known, 2, False), real.losses(known, 50.0)) == (None, (), None)
