"""What a pod requests in all: against its life, container by container, and in the cases that have names."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.drivers.kubernetes.objects.pod_resources import other_resources, requests_of

Json = dict[str, Any]


def container(name: str, cpu: int, *, sidecar: bool = False) -> Json:
    made: Json = {"name": name, "resources": {"requests": {"cpu": str(cpu)}}}
    return {**made, "restartPolicy": "Always"} if sidecar else made


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=6), st.lists(st.integers(0, 9), min_size=1))
def test_a_pod_requests_the_most_that_runs_at_one_time(starts: list[tuple[int, bool]], mains: list[int]) -> None:
    spec = {
        "initContainers": [container(f"i{index}", cpu, sidecar=stays) for index, (cpu, stays) in enumerate(starts)],
        "containers": [container(f"c{index}", cpu) for index, cpu in enumerate(mains)],
    }
    most, beside = 0, 0
    for cpu, stays in starts:
        most = max(most, beside + cpu)
        beside += cpu if stays else 0
    most = max(most, beside + sum(mains))

    assert requests_of(spec)["cpu"] == most * 1000


@pytest.mark.parametrize(
    ("spec", "status", "cpu"),
    [
        pytest.param({"resources": {"requests": {"cpu": "5"}}}, {}, 5000, id="pod level takes the place of the sum"),
        pytest.param({"resources": {"limits": {"cpu": "3"}}}, {}, 3000, id="limit at pod level"),
        pytest.param({"overhead": {"cpu": "250m"}}, {}, 2250, id="overhead"),
        pytest.param(
            {}, {"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "4"}}]}, 4000, id="shrinking"
        ),
        pytest.param(
            {},
            {"containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]},
            2000,
            id="growing",
        ),
        pytest.param(
            {},
            {
                "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
                "containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
            },
            1000,
            id="a resize that can't be",
        ),
    ],
)
def test_cpus_as_the_kubelet_counts_them(spec: Json, status: Json, cpu: int) -> None:
    assert requests_of({"containers": [container("main", 2)], **spec}, status)["cpu"] == cpu


def test_other_resources_are_those_that_nothing_else_counts() -> None:
    asked = {
        "cpu": 1,
        "memory": 2,
        "nvidia.com/gpu": 8000,
        "rdma/hca": 1000,
        "ephemeral-storage": 5,
        "example.com/x": 0,
    }

    assert other_resources(asked, ["nvidia.com/gpu"]) == (("ephemeral-storage", 5), ("rdma/hca", 1000))
