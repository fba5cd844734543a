"""Hangs and stragglers by the steps of ranks."""

from __future__ import annotations

import pytest

from rota.health.stalls import ProgressOfRanks, Stall, StallKind


def looks(progress: ProgressOfRanks, paces: dict[int, float], count: int, start_s: float = 0.0) -> list[Stall | None]:
    times = [start_s + 5.0 * number for number in range(count)]
    return [progress.look(at_s, {rank: pace * at_s for rank, pace in paces.items()}) for at_s in times]


def test_even_ranks_are_neither() -> None:
    assert set(looks(ProgressOfRanks(60.0), {0: 1.0, 1: 1.02, 2: 0.97, 3: 1.0}, 40)) == {None}


def test_slow_rank_is_reported_by_its_pace_after_several_looks() -> None:
    found = looks(ProgressOfRanks(60.0), {0: 2.0, 1: 2.0, 2: 1.0, 3: 2.0}, 12)

    assert found[:7] == [None] * 7
    stall = found[-1]
    assert stall is not None
    assert (stall.kind, stall.ranks) == (StallKind.STRAGGLER, (2,))
    assert "rank 2 makes 1.00 steps a second, the median of its gang is 2.00" in stall.text


def test_job_that_stops_hangs_after_the_learned_time() -> None:
    progress = ProgressOfRanks(60.0)
    looks(progress, {0: 1.0, 1: 1.0}, 10)
    progress.look(50.0, {0: 46.0, 1: 45.0})

    assert progress.look(120.0, {0: 46.0, 1: 45.0}) is None
    stall = progress.look(152.0, {0: 46.0, 1: 45.0})

    assert stall is not None
    assert (stall.kind, stall.ranks) == (StallKind.HANG, (0, 1))
    assert "rank 1 is behind" in stall.text


def test_slow_steps_are_no_hang() -> None:
    progress = ProgressOfRanks(60.0)
    for number in range(5):
        for look in range(20):
            assert progress.look(100.0 * number + 5.0 * look, {0: float(number)}) is None


def test_job_that_reports_nothing_is_left_alone() -> None:
    progress = ProgressOfRanks(60.0)

    assert progress.look(0.0, {}) is None
    assert progress.look(1e6, {}) is None


def test_rank_whose_gpus_are_idle_while_all_others_are_busy_is_what_they_wait_for() -> None:
    progress = ProgressOfRanks(60.0)
    busy = {0: 99.0, 1: 0.0, 2: 97.0, 3: 100.0}

    assert progress.look_at_gpus(10.0, busy) is None
    assert progress.look_at_gpus(69.0, busy) is None
    stall = progress.look_at_gpus(70.0, busy)

    assert stall is not None
    assert (stall.kind, stall.ranks) == (StallKind.HANG, (1,))
    assert stall.text == "the GPUs of rank 1 are idle for 60 s while those of 3 others are busy"


@pytest.mark.parametrize(
    "busy",
    [
        {},
        {0: 0.0},
        {0: 0.0, 1: 0.0, 2: 0.0},
        {0: 0.0, 1: 0.0, 2: 99.0},
        {0: 0.0, 1: 99.0, 2: 50.0},
        {0: 30.0, 1: 99.0, 2: 99.0},
    ],
    ids=["none is measured", "one rank", "all idle", "most idle", "others half busy", "busy a little"],
)
def test_gpus_that_show_no_hang(busy: dict[int, float]) -> None:
    progress = ProgressOfRanks(60.0)

    assert [progress.look_at_gpus(30.0 * look, busy) for look in range(20)] == [None] * 20


def test_gpus_that_were_busy_in_between_start_over() -> None:
    progress = ProgressOfRanks(60.0)
    idle, busy = {0: 0.0, 1: 99.0}, {0: 99.0, 1: 99.0}
    progress.look_at_gpus(0.0, idle)
    progress.look_at_gpus(50.0, busy)

    assert progress.look_at_gpus(70.0, idle) is None
    assert progress.look_at_gpus(129.0, idle) is None
    assert progress.look_at_gpus(130.0, idle) is not None
