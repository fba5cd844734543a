"""Costs of starts, stops and restarts, learned from the steps of a journal."""

from __future__ import annotations

import math
from typing import Any

from builders import job
from rota.core.model.job import Checkpoint, JobId
from rota.forecast.costs import CostLearner, LearnedCosts, OrderTimes, restart_cost_s
from rota.forecast.past import PastRun


def step(at_s: float, *events: tuple[str, str], orders: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    return {
        "t": at_s,
        "in": [{"event": name, "job_id": job_id} for name, job_id in events],
        "out": [{"order": name, "job_id": job_id} for name, job_id in orders],
    }


def test_times_between_orders_and_answers_are_learned() -> None:
    learner = CostLearner()
    for each in (
        step(0.0, orders=(("start", "a"), ("start", "b"))),
        step(0.5, ("started", "a")),
        step(1.5, ("started", "b"), orders=(("stop", "a"),)),
        step(5.5, ("stopped", "a"), orders=(("resume", "c"), ("resize", "b"))),
        step(5.75, ("resumed", "c"), ("resized", "b")),
    ):
        learner.take(each)

    found = learner.learned()

    assert found == LearnedCosts(startup_s=1.0, stop_s=4.0, resume_s=0.25, resize_s=0.25)
    costs = found.costs()
    assert (costs.load_s, costs.checkpoint_s, costs.restart_s, costs.checkpoint_interval_s) == (1.0, 4.0, 0.0, math.inf)
    assert (found.costs(in_rounds=True).checkpoint_s, found.costs(in_rounds=True).restart_s) == (0.0, 4.0)


def test_stops_and_starts_of_suspended_jobs_are_no_samples_for_others() -> None:
    learner = CostLearner()
    changed = {"event": "checkpoint-changed", "job_id": "a", "job": {"checkpoint": {"suspend_s": 9.0}}}
    learner.take(step(0.0, orders=(("start", "a"),)))
    learner.take(step(1.0, ("started", "a")))
    learner.take({"t": 2.0, "in": [changed], "out": [{"order": "stop", "job_id": "a"}]})
    learner.take(step(11.0, ("stopped", "a"), orders=(("start", "a"),)))
    learner.take(step(14.0, ("started", "a")))

    assert learner.learned() == LearnedCosts(startup_s=1.0)


def test_order_that_a_job_outran_is_no_sample() -> None:
    learner = CostLearner()
    learner.take(step(0.0, orders=(("stop", "a"),)))
    learner.take(step(1.0, ("ended", "a")))
    learner.take(step(9.0, ("stopped", "a")))

    assert learner.learned().stop_s is None


def run(work_s: float, *, restarts: int = 0, saves: bool = True, name: str = "j") -> PastRun:
    checkpoint = Checkpoint() if saves else Checkpoint(interval_s=math.inf)
    return PastRun(job=job(name, name="train", checkpoint=checkpoint), submit_s=0.0, work_s=work_s, restarts=restarts)


def test_restart_costs_what_restarted_jobs_ran_longer() -> None:
    undisturbed = [run(100.0, name="a"), run(101.0, name="b"), run(99.0, name="c")]
    restarted = [run(100.0 + 10.0 * count, restarts=count, name=f"r{count}") for count in (1, 2, 4)]

    assert restart_cost_s([*undisturbed, *restarted]) == 10.0
    assert restart_cost_s([*undisturbed, *restarted[:1]]) is None
    lost = [run(90.0, restarts=1, saves=False, name=f"l{at}") for at in range(5)]
    assert restart_cost_s([*undisturbed, *lost]) is None


def test_long_jobs_that_are_stopped_more_often_do_not_make_restarts_dear() -> None:
    """All jobs that reach 100 s are stopped there, and a restart costs nothing; the others are shorter."""
    short = [run(20.0 + at, name=f"s{at}") for at in range(20)]
    unstopped = [run(150.0 + 10 * at, name=f"u{at}") for at in range(5)]
    stopped = [run(150.0 + 10 * at, restarts=1, name=f"l{at}") for at in range(5)]

    assert restart_cost_s([*short, *unstopped, *stopped], {f"l{at}": 100.0 for at in range(5)}) == 0.0
    dear = [run(250.0 + 10 * at, restarts=1, name=f"l{at}") for at in range(5)]
    found = restart_cost_s([*short, *unstopped, *dear], {f"l{at}": 100.0 for at in range(5)})
    assert found is not None
    assert 80.0 < found <= 100.0


def test_starts_and_stops_are_drawn_from_those_seen() -> None:
    learner = CostLearner()
    assert learner.order_times() is None
    for at, took_s in enumerate((4.0, 1.0, 3.0, 2.0)):
        learner.take(step(100.0 * at, orders=(("start", f"j{at}"),)))
        learner.take(step(100.0 * at + took_s, ("started", f"j{at}"), orders=(("stop", f"j{at}"),)))
        learner.take(step(100.0 * at + 2 * took_s, ("stopped", f"j{at}")))
    times = learner.order_times()
    assert times == OrderTimes(starts_s=(1.0, 2.0, 3.0, 4.0), stops_s=(1.0, 2.0, 3.0, 4.0))

    drawn = [times.draw(run, JobId("a")) for run in range(400)]

    first = sorted(each.starts_s[0] for each in drawn)
    assert 1.0 <= first[0] < 1.1
    assert 2.3 < first[200] < 2.7
    assert 3.9 < first[-1] <= 4.0
    assert all(each.starts_s[0] != each.stops_s[0] for each in drawn)
    assert times.draw(7, JobId("a")) == drawn[7], "a forecast that differs in one thing draws the same"


def test_order_that_is_under_way_takes_longer_than_it_has_taken() -> None:
    times = OrderTimes(starts_s=(1.0, 2.0, 8.0), stops_s=(5.0,))

    drawn = [times.draw(run, JobId("a"), 4.0) for run in range(50)]

    assert {each.starts_s[0] for each in drawn} == {8.0}
    assert min(each.starts_s[1] for each in drawn) < 2.0, "only the one under way"
    assert {each.stops_s[0] for each in drawn} == {5.0}
    assert {times.draw(run, JobId("a"), 9.0).stops_s[0] for run in range(50)} == {14.0}, "from now on as usual"


def test_stop_that_is_under_way_is_known_with_its_time() -> None:
    learner = CostLearner()
    learner.take(step(3.0, orders=(("stop", "a"), ("stop", "b"), ("start", "c"))))
    learner.take(step(4.0, ("stopped", "a")))

    assert learner.stops_under_way() == {"b": 3.0}
