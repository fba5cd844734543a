"""Optimus by hand: with linear speed, worker w+1 saves a job with R work left R / (w (w + 1)) seconds."""

from __future__ import annotations

import pytest

from builders import World
from elastic_jobs import elastic, ends, history
from rota.core.model.job import Elastic
from rota.perf.speed.model import SpeedModel

LINEAR = SpeedModel()


def test_workers_go_where_they_save_most_time() -> None:
    """Six devices, one each at first. The other three: c saves 1200/2 = 600, then 1200/6 = 200, then b 300/2 = 150
    (c would save 100 more, a 50). So a has 1, b 2, c 3, until all have ended before the next plan at 600."""
    jobs = (
        elastic("a", 100.0, estimate_s=100.0),
        elastic("b", 300.0, estimate_s=300.0),
        elastic("c", 1200.0, estimate_s=1200.0),
    )

    assert ends("optimus", *jobs, gpus=6, speed=LINEAR) == {"a": 100.0, "b": 150.0, "c": 400.0}


def test_losses_tell_how_far_a_job_is_whatever_its_user_says() -> None:
    """Both say 3600 s, so both get two of four devices. At 600 x has done 20 of its 50 epochs and y 6: y has at least
    6400 left by its losses, x 1800: y saves 6400/2 and 6400/6 > 1800/2 and gets three. x ends at 600 + 1800; y has
    done 1200 + 3 x 1800 of its 9000 by then, and does the rest on all four."""
    jobs = (elastic("x", 3000.0, estimate_s=3600.0), elastic("y", 9000.0, estimate_s=3600.0))

    assert ends("optimus", *jobs, speed=LINEAR) == {"x": 2400.0, "y": 3000.0}


def test_a_job_that_comes_between_two_plans_waits_for_the_next() -> None:
    """At 600, though a device was free all the time; but `last` finds no running job and starts at once."""
    found = ends(
        "optimus",
        elastic("a", 1400.0, most=2),
        elastic("late", 10.0, at_s=100.0, most=1),
        elastic("last", 10.0, at_s=1000.0, most=1),
        speed=LINEAR,
    )

    assert found == {"a": 700.0, "late": 610.0, "last": 1010.0}


def test_a_job_that_comes_at_the_moment_of_a_plan_but_after_it_waits_for_the_next() -> None:
    world = World(gpus=4, policy="optimus")
    world.settle(world.submit("a", elastic=Elastic(min_tasks=1, max_tasks=2), work=1400.0))

    assert world.submit("late", elastic=Elastic(min_tasks=1, max_tasks=1), work=10.0) == []


def test_with_too_few_devices_the_first_come_are_served() -> None:
    rows = history("optimus:round_s=50", *(elastic(name, 100.0, most=2) for name in "abc"), gpus=2, speed=LINEAR).jobs

    assert [row.end_s for row in rows] == pytest.approx([100.0, 100.0, 150.0])
