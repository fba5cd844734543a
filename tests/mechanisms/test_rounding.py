"""Clocks are floats: two jobs with as much left must not each look a hair shorter while the other runs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import job
from rota.core.model.cluster import Cluster
from rota.drivers.simulator.study import Setting, simulate
from rota.perf.speed.model import Costs
from rota.traces.workload import Submission, Workload

POLICIES = (
    "srtf",
    "srsf",
    "priority:aging=3600",
    "las:thresholds=0.5/1.7",
    "tiresias:thresholds=0.5/1.7,promote=1",
    "gittins:thresholds=0.5/1.7",
    "e-las:epochs=3",
)
Rows = list[tuple[float, int, float]]
"""Submit time, devices and seconds of each job."""


def preemptions(rows: Rows, policy: str, restart_s: float = 0.0) -> int:
    submissions = tuple(
        Submission(job=job(f"j{number}", workers=gpus, work=work_s), submit_s=submit_s)
        for number, (submit_s, gpus, work_s) in enumerate(rows)
    )
    of = Workload(submissions=submissions, source="test", format="rota")
    setting = Setting(cluster=Cluster.uniform(("gpu", 2, 1)), placement="any", costs=Costs(restart_s=restart_s))
    return sum(row.preemptions for row in simulate(of, policy, setting).history.jobs)


@pytest.mark.parametrize(
    "rows",
    [
        [(0.0, 1, 1.1), (0.0, 2, 0.3), (1.1, 1, 0.3), (1.1, 1, 0.3)],
        [(1.7e9 + 1, 1, 0.0), (1.7e9 + 1, 1, 0.7), (1.7e9 + 1, 1, 0.7), (1.7e9 + 1, 1, 0.7)],
    ],
    ids=["tenths", "unix time"],
)
def test_jobs_with_as_much_left_do_not_swap_for_ever(rows: Rows) -> None:
    assert preemptions(rows, "srsf") <= 1


@st.composite
def odd_rows(select: st.DrawFn) -> Rows:
    now_s = select(st.sampled_from([0.0, 1e6 + 0.1, 1.7e9 + 0.3]))
    rows = []
    for _ in range(select(st.integers(2, 10))):
        now_s += select(st.sampled_from([0.0, 0.0, 0.1, 0.3, 0.7, 1.1]))
        work_s = select(st.sampled_from([0.0, 0.1, 0.3, 0.7, 0.7, 1.1, 1 / 3]))
        rows.append((now_s, select(st.sampled_from([1, 1, 2])), work_s))
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@given(rows=odd_rows(), restart_s=st.sampled_from([0.0, 0.1]))
@settings(max_examples=300)
def test_odd_times_end_with_few_preemptions(policy: str, rows: Rows, restart_s: float) -> None:
    assert preemptions(rows, policy, restart_s) <= 6 * len(rows)
