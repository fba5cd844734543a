"""Pollux by hand: speed is the square root of the size, and is found out by trying."""

from __future__ import annotations

import math

import pytest

from elastic_jobs import elastic, ends
from rota.core.errors import RotaError
from rota.policies import find_policy

ROOT2 = math.sqrt(2)


def test_sizes_double_while_that_is_worth_it() -> None:
    """Four devices, plans at 0, 60, 120.

    0: nothing is known, one device each. 60: speed is taken as linear, with two devices each both have their equal
    share: speedup 1 less 0.1 for the restart, better than 0.5 as they are. a ends at 60 + 40/1.414.
    120: b has the cluster to itself. By the speeds 1 and 1.414 a step takes 0.586/w + 0.414 s, so four devices give
    1.78: a speedup of 1 - 0.1 against 1.414/1.78 = 0.79 as it is. It has done 100 + 31.7 x 1.414 by then.
    """
    a_s = 60 + 40 / ROOT2
    b_s = 120 + (400 - 100 - (120 - a_s) * ROOT2) / 2

    assert ends("pollux", elastic("a", 100.0), elastic("b", 400.0)) == {"a": round(a_s, 2), "b": round(b_s, 2)}


def test_a_restart_must_be_worth_its_penalty() -> None:
    """With a penalty of 0.3 the step from 0.79 to 1 is not taken: b stays on two devices."""
    a_s = 60 + 40 / ROOT2

    found = ends("pollux:restart_penalty=0.3", elastic("a", 100.0), elastic("b", 400.0))

    assert found["b"] == round(a_s + 300 / ROOT2, 2)


def test_no_job_starves_for_the_mean_speedup() -> None:
    """Three jobs on two devices: two run; the third starts when they have ended, at 90, and has both
    devices from 150 on."""
    found = ends("pollux", *(elastic(name, 90.0, most=2) for name in "abc"), gpus=2)

    assert sorted(found.values()) == [90.0, 90.0, round(150 + 30 / ROOT2, 2)]


@pytest.mark.parametrize("options", ["power=0", "power=2", "round_s=0", "population=2"])
def test_parameters_that_make_no_sense_are_refused(options: str) -> None:
    with pytest.raises(RotaError, match=options.partition("=")[0]):
        find_policy("pollux")[0].read(options)
