"""The list scheduler avoids the walk over all jobs; what it computes must be what the walk gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import job
from mechanisms.naive import KEYS, completion_times
from rota.core.model.cluster import Cluster
from rota.drivers.simulator.study import Setting, simulate
from rota.traces.workload import Submission, Workload

GPUS = 8

Plan = list[tuple[float, int, float]]
"""Submit time, devices and seconds of each job."""


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 12), st.sampled_from([1, 1, 2, 2, 4, 8]), st.integers(1, 90)),
            min_size=1,
            max_size=18,
        )
    )
    now_s = 0.0
    plan = []
    for gap_s, gpus, work_s in rows:
        now_s += gap_s
        plan.append((now_s, gpus, float(work_s)))
    return plan


def simulated(plan: Plan, policy: str, per_node: int = 2) -> list[float]:
    submissions = tuple(
        Submission(job=job(f"j{seq}", workers=gpus, work=work_s), submit_s=submit_s)
        for seq, (submit_s, gpus, work_s) in enumerate(plan)
    )
    workload = Workload(submissions=submissions, source="test", format="rota")
    setting = Setting(cluster=Cluster.uniform(("gpu", GPUS, per_node)), placement="any")
    result = simulate(workload, policy, setting)
    return [row.end_s or -1.0 for row in result.history.jobs]


@pytest.mark.slow
@pytest.mark.parametrize("policy", list(KEYS))
@given(plan=plans())
@settings(max_examples=30)
def test_completion_times_are_those_of_the_naive_walk(policy: str, plan: Plan) -> None:
    assert simulated(plan, policy) == completion_times(GPUS, plan, policy)


@pytest.mark.slow
@pytest.mark.parametrize("policy", list(KEYS))
@given(plan=plans())
@settings(max_examples=400)
def test_completion_times_are_those_of_the_naive_walk_at_length(policy: str, plan: Plan) -> None:
    assert simulated(plan, policy) == completion_times(GPUS, plan, policy)
