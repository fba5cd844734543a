"""A search ends, loses no trial, keeps to its places, and gives the best trials the most steps."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.sweeps.rules import rule_of
from rota.sweeps.search import Search
from rota.sweeps.trial import SweepTrial, TrialState
from sweeps.running import World, made

RULES: tuple[dict[str, Any], ...] = (
    {"rule": "none"},
    {"rule": "asha", "min_steps": 1, "max_steps": 9, "factor": 3},
    {"rule": "hyperband", "min_steps": 1, "max_steps": 9, "factor": 3},
    {"rule": "median", "min_steps": 1, "every": 2},
    {"rule": "learning-curve", "min_steps": 1, "max_steps": 9, "every": 1},
)
rules = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["rule"])


def steady(trial: SweepTrial, step: int) -> float:
    """A loss that falls to the trial's own parameter."""
    return float(trial.params["x"]) + 1.0 / step


@rules
@given(data=st.data())
def test_any_order_of_steps_ends_with_every_trial_over(rule: dict[str, Any], data: st.DataObject) -> None:
    trials = data.draw(st.integers(1, 14))
    parallel = data.draw(st.integers(1, 5))
    seed = data.draw(st.integers(0, 100))
    noise = data.draw(st.lists(st.floats(-1, 1), min_size=1, max_size=20))
    world = World(
        made(early_stop=rule, trials=trials, parallel=parallel, seed=seed, job={"run": "x", "checkpoint": {}}),
        lambda trial, step: steady(trial, step) + noise[(trial.number * 7 + step) % len(noise)],
        9,
    )

    def choose(active: list[SweepTrial]) -> int:
        assert len(active) <= parallel
        return data.draw(st.sampled_from(active)).number

    world.run(choose)

    assert len(world.search.trials) == trials
    assert all(trial.state.is_over for trial in world.search.trials)
    assert any(trial.state is TrialState.COMPLETED for trial in world.search.trials)
    assert world.why == "all trials are done"


@rules
def test_best_trial_runs_to_its_end_where_curves_do_not_cross(rule: dict[str, Any]) -> None:
    world = World(made(early_stop=rule, trials=20), steady, 9).run()

    best = min(world.search.trials, key=lambda trial: float(trial.params["x"]))

    assert best.state is TrialState.COMPLETED
    assert world.search.best is best


@pytest.mark.parametrize("rule", RULES[1:], ids=lambda rule: str(rule["rule"]))
def test_rule_saves_steps(rule: dict[str, Any]) -> None:
    world = World(made(early_stop=rule, trials=27, seed=3), steady, 9).run()

    assert world.done_steps < 0.8 * 27 * 9


def test_asha_does_as_few_steps_as_its_rungs_say_when_trials_come_one_by_one() -> None:
    world = World(
        made(early_stop=RULES[1], trials=9, parallel=1), lambda trial, step: trial.number + 1 / step, 9
    ).run()  # every trial is worse than those before it

    assert [len(world.reports[number]) for number in range(9)] == [9, 3, 3, 1, 1, 1, 1, 1, 1]


def test_paused_trial_resumes_when_others_turn_out_worse() -> None:
    file = made(early_stop={"rule": "asha", "min_steps": 1, "max_steps": 4, "factor": 2}, trials=2, parallel=1)
    world = World(file, lambda trial, step: float(trial.number), 4)

    world.step(0)

    assert [trial.state for trial in world.search.trials] == [TrialState.PAUSED, TrialState.ACTIVE]
    assert world.search.trials[0].why == "1 of 1 at step 1"

    world.step(1)

    assert [trial.state for trial in world.search.trials] == [TrialState.ACTIVE, TrialState.PAUSED]
    assert world.search.trials[0].why == "promoted: 1 of 2 at step 1"


def test_without_checkpoints_asha_stops_instead_of_pausing() -> None:
    file = made(early_stop=RULES[1], trials=9, job={"run": "x"})
    world = World(file, steady, 9).run()

    assert {trial.state for trial in world.search.trials} == {TrialState.STOPPED, TrialState.COMPLETED}


def test_reports_that_come_late_are_judged_mark_by_mark() -> None:
    world = World(made(early_stop=RULES[1], trials=3, parallel=3), steady, 9)
    for number in (0, 1, 2):
        trial = world.search.trials[number]
        world.reports[number] = [(step, steady(trial, step)) for step in range(1, 8)]

    for number in (0, 1, 2):
        world.tell(number)

    best = min(world.search.trials, key=lambda trial: float(trial.params["x"]))
    assert max(len(trial.values) for trial in world.search.trials) == len(best.values)
    assert all(mark in (1, 3) for trial in world.search.trials for mark in trial.values)


def late(world: World, number: int, steps: int) -> None:
    """Let a trial run on, to its end at most, before the search hears of it."""
    points = world.reports.setdefault(number, [])
    trial = world.search.trials[number]
    points.extend((step, world.loss(trial, step)) for step in range(len(points) + 1, min(steps, world.steps) + 1))
    world.tell(number, TrialState.COMPLETED if len(points) == world.steps else None)


ASHA_OF_FOUR = {"rule": "asha", "min_steps": 1, "max_steps": 16, "factor": 4}


def test_trial_that_ran_to_its_end_unheard_does_not_keep_a_better_one_from_it() -> None:
    file = made(early_stop=ASHA_OF_FOUR, trials=3, parallel=3)
    world = World(file, lambda trial, step: trial.number + 1 / step, 16)

    late(world, 1, 16)
    late(world, 2, 16)
    late(world, 0, 1)

    assert [trial.state for trial in world.search.trials] == [TrialState.ACTIVE, *[TrialState.COMPLETED] * 2]
    assert world.search.trials[0].why == "promoted: best of those that came farthest"
    world.run()
    assert world.search.trials[0].state is TrialState.COMPLETED


def test_trials_are_compared_at_the_same_step_when_the_last_is_chosen() -> None:
    file = made(early_stop=ASHA_OF_FOUR, trials=3, parallel=3)
    world = World(file, lambda trial, step: trial.number / 10 + 1 / step, 16)

    late(world, 1, 3)  # its last loss is below the first of trial 0
    late(world, 2, 1)
    late(world, 0, 1)

    assert [trial.state for trial in world.search.trials] == [TrialState.ACTIVE, *[TrialState.PAUSED] * 2]


@given(data=st.data())
def test_best_trial_runs_to_its_end_however_late_the_search_hears_of_steps(data: st.DataObject) -> None:
    trials, parallel = data.draw(st.integers(1, 14)), data.draw(st.integers(1, 8))
    file = made(early_stop=ASHA_OF_FOUR, trials=trials, parallel=parallel, seed=data.draw(st.integers(0, 100)))
    world = World(file, steady, 16)

    while not world.is_over:
        number = data.draw(st.sampled_from(world.active)).number
        late(world, number, len(world.reports.get(number, ())) + data.draw(st.integers(1, 16)))

    best = min(world.search.trials, key=lambda trial: float(trial.params["x"]))
    assert best.state is TrialState.COMPLETED
    assert world.search.best is best


def test_asking_twice_gives_the_same_answer() -> None:
    world = World(made(early_stop=RULES[1], trials=9), steady, 9)
    reports = {0: [(1, 0.5)], 1: [(1, 0.4)], 2: [(1, 0.9)]}

    first = world.search.decide(reports, {})

    assert world.search.decide(reports, {}) == first


def test_target_ends_the_sweep() -> None:
    world = World(made(objective={"target": 0.55}, trials=20), steady, 9).run()

    assert world.why.endswith("reached the target")
    assert world.search.best is not None
    assert world.search.best.loss <= 0.55
    assert TrialState.STOPPED in {trial.state for trial in world.search.trials}


def test_maximised_metric_is_negated_once() -> None:
    file = made(objective={"metric": "accuracy", "goal": "maximize", "target": 0.9})

    assert file.loss_of(0.95) == -0.95
    assert file.shown(-0.95) == 0.95
    assert file.loss_of(math.nan) == math.inf
    assert file.shown(math.inf) is None


def test_sweep_ends_when_too_many_trials_fail() -> None:
    world = World(made(trials=20, max_failures=3), steady, 9)

    for number in (0, 1, 2):
        world.tell(number, TrialState.FAILED)

    assert (world.is_over, world.has_failed) == (True, True)
    assert world.why == f"3 of {len(world.search.trials)} trials failed, and max_failures is 3"


@pytest.mark.parametrize(
    ("ends", "reports", "why", "has_failed"),
    [
        ("FF", False, "all 2 trials failed", True),
        ("FF", True, "all 2 trials failed", True),
        ("F", False, "its trial failed", True),
        ("FC", True, "all trials are done; 1 failed", False),
        ("CC", True, "all trials are done", False),
        ("CC", False, "all trials are done, and none has reported loss", True),
        ("FX", False, "all trials are done, and none has reported loss", True),
        ("XX", False, "all trials were cancelled", True),
    ],
)
def test_sweep_without_a_result_has_failed(ends: str, reports: bool, why: str, has_failed: bool) -> None:
    world = World(made(trials=len(ends)), steady, 9)

    for number, end in enumerate(ends):
        if reports:
            world.step(number)
        state = {"F": TrialState.FAILED, "C": TrialState.COMPLETED, "X": TrialState.CANCELLED}[end]
        world.tell(number, state)

    assert (world.is_over, world.why, world.has_failed) == (True, why, has_failed)


def test_sweep_of_values_that_are_no_numbers_has_failed() -> None:
    world = World(made(trials=2), lambda trial, step: math.inf, 9)

    for number in (0, 1):
        world.step(number)
        world.tell(number, TrialState.COMPLETED)

    assert (world.why, world.has_failed) == (
        "all trials are done, and none has reported a finite number for loss",
        True,
    )


def test_failed_trial_is_replaced_and_does_not_count_in_its_rung() -> None:
    world = World(made(early_stop=RULES[1], trials=6, parallel=3), steady, 9)
    world.step(0)
    world.tell(0, TrialState.FAILED)

    assert len(world.search.trials) == 4
    assert world.search.trials[0].state is TrialState.FAILED
    assert World(made(early_stop=RULES[1], trials=6), steady, 9).run().is_over


def test_hyperband_brackets_have_the_published_sizes() -> None:
    file = made(early_stop={"rule": "hyperband", "min_steps": 1, "max_steps": 81, "factor": 3}, trials=143)
    rule = rule_of(file)

    first_rungs = [(rule.marks(number) or (81,))[0] for number in range(143)]

    assert [first_rungs.count(step) for step in (1, 3, 9, 27, 81)] == [81, 34, 15, 8, 5]
    assert rule.marks(0) == (1, 3, 9, 27)


def test_nothing_is_kept_by_a_question() -> None:
    file = made(early_stop=RULES[1])
    search = Search(file, rule_of(file), [SweepTrial(number=0, params={"x": 0.5})])

    search.decide({0: [(1, 0.3)]}, {})

    assert search.trials[0].values == {}
