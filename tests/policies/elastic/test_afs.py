"""AFS by hand: who gets the next device, with speeds that are the square root of the size."""

from __future__ import annotations

import math

import numpy as np
import pytest

from elastic_jobs import elastic, ends, history, rigid
from rota.perf.speed.model import SpeedModel
from rota.policies.published.elastic.afs import _dominant

ROOT2 = math.sqrt(2)


def test_the_longer_job_gets_a_device_when_it_gains_more_than_the_shorter_loses() -> None:
    """Four devices; sizes 1, 2 and 4 with speeds 1, 1.414 and 2.

    1. Both have nothing: the shorter, a.            2. b gains 1/1 > (1.414 - 1)/1: b.
    3. b gains (1.414 - 1)/1.414 = 0.29 < 0.41: a.   4. a loses (2 - 1.414)/1.414/2 = 0.21 < 0.29: b.
    a ends at 100/1.414; b has done as much by then and does the other 300 on all four at speed 2.
    """
    found = ends("afs-l", elastic("a", 100.0), elastic("b", 400.0))

    assert found == {"a": round(100 / ROOT2, 2), "b": round(100 / ROOT2 + 150, 2)}


def test_what_does_not_scale_leaves_devices_to_what_does() -> None:
    """Speed 1 at any size for `flat` (scaling 0 is not to be had per job, so it is not elastic): the other has three,
    of which only two share out the node without a rest: speed 1.414 until 50, then 2."""
    found = ends("afs-l", rigid("flat", 50.0), elastic("b", 100.0))

    assert found == {"flat": 50.0, "b": round(50 + (100 - 50 * ROOT2) / 2, 2)}


def test_short_jobs_go_first_when_there_are_more_jobs_than_devices() -> None:
    """One device: in order of length, and a shorter one that comes later takes it over."""
    found = ends("afs-l", rigid("long", 100.0), rigid("mid", 50.0), rigid("late", 10.0, at_s=20.0), gpus=1)

    assert found == {"mid": 60.0, "late": 30.0, "long": 160.0}


def test_a_job_that_grows_keeps_running_until_its_devices_are_free() -> None:
    """`b` has two of four devices; when `a` ends it gets all four without having been stopped."""
    rows = {row.id: row for row in history("afs-l", elastic("a", 100.0), elastic("b", 400.0)).jobs}

    assert (rows["b"].preemptions, rows["b"].wait_s) == (0, 0.0)
    assert rows["b"].gpu_s == 2 * 100 / ROOT2 + 4 * 150


def test_without_lengths_everybody_has_a_turn() -> None:
    """Two devices, turns of 50 s. a and b run until 50; c, which has had nothing, takes b's place; a ends at 100,
    and b and c do their last 50 s side by side."""
    found = ends("afs-p:evict_s=50", rigid("a", 100.0), rigid("b", 100.0), rigid("c", 100.0), gpus=2)

    assert found == {"a": 100.0, "b": 150.0, "c": 150.0}


def test_without_lengths_devices_go_where_they_bring_more() -> None:
    """Linear speed: from 1 to 2 both gain the same and chance decides; `wide` may have four, `narrow` only one."""
    found = ends("afs-p", elastic("narrow", 100.0, most=1), elastic("wide", 300.0), speed=SpeedModel())

    assert found == {"narrow": 100.0, "wide": 125.0}


@pytest.mark.parametrize(("reach", "winner"), [(0.5, 0), (0.51, 1)], ids=["tie", "more"])
def test_without_lengths_a_job_wins_only_if_it_gains_more_than_the_other_loses(reach: float, winner: int) -> None:
    """The first job loses 0.5 without the device, the second 0.6; the first would win 0.3."""
    assert _dominant(np.array([0.5, 0.6]), np.array([0.3, reach])) == winner
