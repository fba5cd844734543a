"""Simulated sweeps: their times by hand, and what holds under every policy and rule."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.model.cluster import Cluster
from rota.drivers.simulator.study import Setting
from rota.drivers.simulator.sweep_runs import SimulatedSweep, SweepOutcome, simulate_sweeps
from rota.perf.speed.model import Costs
from rota.sweeps.trial import Params, TrialState
from sweeps.running import made

STEPS = 16


def curves(seed: int) -> Any:
    """Losses that fall from about 2 to a floor of the trial's own."""

    def curve(number: int, params: Params) -> Sequence[float]:
        rng = Random(seed * 1000 + number)
        floor, speed = rng.uniform(0.1, 1.0), rng.uniform(0.1, 1.0)
        return [floor + (2 - floor) / (1 + speed * step) + rng.gauss(0, 0.01) for step in range(1, STEPS + 1)]

    return curve


def ran(policy: str, *, devices: int = 4, seed: int = 1, costs: Costs | None = None, **fields: Any) -> SweepOutcome:
    file = made(**{"trials": 12, "parallel": 12, **fields})
    sweep = SimulatedSweep(name="s", file=file, curve=curves(seed), step_s=10.0)
    setting = Setting(cluster=Cluster.uniform(("gpu", devices, devices)), costs=costs or Costs())
    return simulate_sweeps([sweep], policy, setting)[0]


def asha(**numbers: int) -> dict[str, Any]:
    return {"early_stop": {"rule": "asha", "min_steps": 1, "max_steps": STEPS, "factor": 4, **numbers}}


def test_without_a_rule_trials_run_to_their_end_one_after_the_other() -> None:
    found = ran("fifo", devices=2, trials=4, parallel=4)

    assert found.took_s == pytest.approx(2 * STEPS * 10.0)
    assert found.device_s == pytest.approx(4 * STEPS * 10.0)
    assert found.steps == 4 * STEPS
    assert found.states == {TrialState.COMPLETED: 4}
    losses = [curves(1)(number, {}) for number in range(4)]
    assert found.best == min(map(min, losses))
    first = min(losses[0][0], losses[1][0])
    assert found.time_to(first) == pytest.approx(10.0)
    assert found.time_to(-1.0) is None
    start_s = 0.0 if found.best_trial < 2 else STEPS * 10.0
    at_step = losses[found.best_trial].index(found.best) + 1
    assert found.time_to(found.best) == pytest.approx(start_s + at_step * 10.0)


def test_time_slices_show_all_trials_early_and_finish_late() -> None:
    """Under round robin every trial reports within a slice of each; the best comes later than if it ran alone."""
    in_order, in_turns = ran("fifo", devices=1), ran("gandiva:pack=false", devices=1)

    assert in_turns.took_s == pytest.approx(in_order.took_s, rel=0.05)
    assert in_turns.best == in_order.best
    assert in_turns.found != in_order.found


def test_successive_halving_needs_less_device_time_for_the_same_best() -> None:
    every, some = ran("fifo", seed=3), ran("fifo", seed=3, **asha(min_steps=4))

    assert some.best == every.best
    assert some.device_s < 0.6 * every.device_s
    assert some.states[TrialState.STOPPED] >= 6
    assert sum(some.states.values()) == 12


@given(
    policy=st.sampled_from(["fifo", "las", "gandiva:pack=false", "srtf", "themis", "fair-share"]),
    rule=st.sampled_from(["none", "asha", "hyperband", "median", "learning-curve"]),
    seed=st.integers(0, 50),
    parallel=st.integers(1, 12),
    devices=st.integers(1, 6),
)
@settings(max_examples=60, deadline=None)
def test_under_every_policy_and_rule_sweeps_end_with_a_whole_trial(
    policy: str, rule: str, seed: int, parallel: int, devices: int
) -> None:
    stop = {"rule": rule} if rule == "none" else {"rule": rule, "min_steps": 1, "max_steps": STEPS}

    found = ran(policy, devices=devices, seed=seed, parallel=parallel, early_stop=stop)

    assert sum(found.states.values()) == 12
    assert found.states.get(TrialState.COMPLETED, 0) >= 1
    assert set(found.states) <= {TrialState.COMPLETED, TrialState.STOPPED}
    assert found.steps * 10.0 <= found.device_s + 1e-3, "no step without device time"
    assert found.device_s <= found.took_s * devices + 1e-3
    assert found.device_s <= 12 * STEPS * 10.0 + 1e-3, "a pause loses no work"
    losses = [loss for _, loss in found.found]
    assert losses == sorted(losses, reverse=True)
    assert found.found[-1][1] == found.best
    assert 0 < found.found[-1][0] <= found.took_s
