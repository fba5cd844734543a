"""What users may ask for, and how the rest is refused."""

from __future__ import annotations

from typing import Any

import pytest

from builders import job, node
from rota.core.errors import RotaError, did_you_mean
from rota.core.model.cluster import Cluster
from rota.core.model.job import Checkpoint, Elastic, JobState, Locality, Role


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "a role needs a name"),
        ({"count": 0}, "role 'worker': count is 0; it must be at least 1"),
        ({"device_milli": -500}, "role 'worker': gpus is -0.5; it must not be negative"),
        ({"device_milli": 1500}, "role 'worker': gpus is 1.5; above one it must be a whole number"),
        ({"cpu_milli": -1}, "role 'worker': cpus is -1"),
        ({"memory_bytes": -1}, "role 'worker': memory is -1"),
        ({"network_bps": -1}, "role 'worker': network is -1"),
        ({"disk_bps": -1}, "role 'worker': disk is -1"),
        ({"device_memory_bytes": -1}, "role 'worker': gpu_memory is -1"),
    ],
)
def test_wrong_role_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RotaError) as refused:
        Role(**fields)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": ""}, "a job needs an id"),
        ({"roles": ()}, "job j: it has no roles"),
        ({"roles": (Role(), Role())}, "job j: two roles share a name; names are worker, worker"),
        ({"work": -1.0}, "job j: duration is -1"),
        ({"work": float("inf")}, "job j: duration is inf"),
        ({"estimate_s": -1.0}, "job j: estimate is -1"),
        ({"priority": -2}, "job j: priority is -2; the lowest is -1"),
        ({"time_limit_s": 0.0}, "job j: time_limit is 0"),
        ({"elastic": Elastic(min_tasks=2, max_tasks=3)}, "job j: 1 tasks lie outside elastic 2..3"),
        (
            {"roles": (Role(), Role(name="b")), "elastic": Elastic(min_tasks=1, max_tasks=1)},
            "job j: elastic needs a job of one role; it has 2",
        ),
    ],
)
def test_wrong_job_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RotaError) as refused:
        job(fields.pop("id", "j"), **fields)
    assert message in str(refused.value)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (3, 2)])
def test_wrong_bounds_are_refused(low: int, high: int) -> None:
    with pytest.raises(RotaError, match="it needs 1 <= min <= max"):
        Elastic(min_tasks=low, max_tasks=high)


def test_wrong_times_are_refused() -> None:
    with pytest.raises(RotaError, match="relax_after is -1"):
        Locality(relax_after_s=-1.0)
    for fields in ({"interval_s": -1.0}, {"grace_s": float("nan")}):
        with pytest.raises(RotaError, match="interval and grace"):
            Checkpoint(**fields)


def test_size_of_a_job_is_that_of_its_roles() -> None:
    asked = job(roles=(Role(count=4, device_milli=2000), Role(name="ps", count=3, device_milli=500)))

    assert (asked.gpu_milli, asked.gpus, asked.tasks) == (9500, 9.5, 7)


def test_final_states() -> None:
    assert [state.value for state in JobState if state.is_final] == ["succeeded", "failed", "cancelled"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "a node needs a name"),
        ({"devices": -1}, "it has -1 devices"),
        ({"sockets": (1, 2)}, "sockets hold 3 devices, the node has 4"),
    ],
)
def test_wrong_node_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RotaError, match=message):
        node(**({"name": "n"} | fields))


def test_wrong_cluster_is_refused() -> None:
    with pytest.raises(RotaError, match="the cluster has no nodes"):
        Cluster(nodes=())
    with pytest.raises(RotaError, match="two nodes are named 'a'"):
        Cluster(nodes=(node("a"), node("a")))
    with pytest.raises(RotaError, match="rack 'r' is in two domains: 'd1' and 'd2'"):
        Cluster(nodes=(node("a", rack="r", domain="d1"), node("b", rack="r", domain="d2")))


def test_uniform_cluster_has_a_last_smaller_node() -> None:
    made = Cluster.uniform(("v100", 5, 4), ("k80", 2, 2))

    assert [(n.id, n.device_type, n.devices) for n in made.nodes] == [
        ("n1", "v100", 4),
        ("n2", "v100", 1),
        ("n3", "k80", 2),
    ]
    assert made.devices == 7
    assert made.devices_by_type == {"v100": 5, "k80": 2}


def test_hints() -> None:
    assert did_you_mean("lass", ["las", "fifo"]) == "did you mean 'las'?"
    assert did_you_mean("zzz", ["las", "fifo"]) == "known: fifo, las"
    assert did_you_mean("zzz", []) == "there are none"
