"""The order in which Slurm considers waiting jobs, and forecasts that follow it."""

from __future__ import annotations

import json
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from drivers.slurm.slurm_values import job_value
from rota.drivers.slurm.printed.records import SlurmReading, read_jobs
from rota.drivers.slurm.view import SlurmView
from rota.live.workers.forecast_worker import ranked

PRIORITIES = st.lists(st.integers(0, 4), max_size=8)


@given(PRIORITIES)
def test_ranking_is_by_priority_then_submission_without_held_jobs(priorities: list[int]) -> None:
    values = [job_value(number, priority=priority) for number, priority in enumerate(priorities, start=1)]
    view = SlurmView()
    view.take(SlurmReading([*reversed(read_jobs(json.dumps({"jobs": values})).found)]), 0.0)

    waiting = [(-priority, number) for number, priority in enumerate(priorities, start=1) if priority]
    if waiting == sorted(waiting):
        assert view.ranking() is None
    else:
        assert view.ranking() == [str(number) for _, number in sorted(waiting)]


class Row(NamedTuple):
    """What a row of the records has of a job."""

    id: str
    state: str
    seq: int
    live: str


@given(st.permutations(range(6)), st.sets(st.integers(0, 5)))
def test_ranked_jobs_swap_places_and_others_keep_theirs(order: list[int], running: set[int]) -> None:
    states = ["running" if number in running else "waiting" for number in range(6)]
    rows = [Row(str(number), state, number, json.dumps({"seq": number})) for number, state in enumerate(states)]

    found = ranked(rows, [str(number) for number in order] + ["unknown"])

    seqs = {int(row.id): row.seq for row in found}
    assert {int(row.id): json.loads(row.live)["seq"] for row in found} == seqs
    assert all(seqs[number] == number for number in running)
    waiting = [number for number in order if number not in running]
    assert [number for number in sorted(seqs, key=seqs.__getitem__) if number not in running] == waiting
