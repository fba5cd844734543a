"""The order in which Slurm considers waiting jobs, and forecasts that follow it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from builders import job
from drivers.slurm.slurm_values import job_value
from rota.core.model.job import JobState
from rota.core.state.inventory import Inventory
from rota.core.state.state import State
from rota.drivers.slurm.records import read_jobs
from rota.drivers.slurm.view import SlurmView
from rota.live.workers.forecast_worker import rank_waiting

PRIORITIES = st.lists(st.integers(0, 4), max_size=8)


@given(PRIORITIES)
def test_ranking_is_by_priority_then_submission_without_held_jobs(priorities: list[int]) -> None:
    values = [job_value(number, priority=priority) for number, priority in enumerate(priorities, start=1)]
    view = SlurmView()
    view.take(reversed(read_jobs(json.dumps({"jobs": values})).found), 0.0)

    waiting = [(-priority, number) for number, priority in enumerate(priorities, start=1) if priority]
    if waiting == sorted(waiting):
        assert view.ranking() is None
    else:
        assert view.ranking() == [str(number) for _, number in sorted(waiting)]


@given(st.permutations(range(6)), st.sets(st.integers(0, 5)))
def test_ranked_jobs_swap_places_and_others_keep_theirs(order: list[int], running: set[int]) -> None:
    state = State(Inventory())
    for number in range(6):
        live = state.admit(job(str(number)), 1.0)
        if number in running:
            live.state = JobState.RUNNING
    ranked = [number for number in order if number not in running]

    rank_waiting(state, [str(number) for number in order] + ["unknown"])

    seqs = {int(name): live.seq for name, live in state.jobs.items()}
    assert all(seqs[number] == number for number in running)
    assert [number for number in sorted(seqs, key=seqs.__getitem__) if number not in running] == ranked
    assert sorted(seqs.values()) == list(range(6))
