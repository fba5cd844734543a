"""What Slurm's jobs, nodes and accounts are in Rota's types."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drivers.slurm.slurm_values import job_value, jobs, node_value, running_value
from rota.core.messages.events import NodeDrained
from rota.core.model.job import OPPORTUNISTIC, NodeId
from rota.core.state.state import State
from rota.drivers.slurm import marks
from rota.drivers.slurm.printed.accounts import read_associations, read_qos
from rota.drivers.slurm.printed.fields import Gpus
from rota.drivers.slurm.printed.records import read_jobs, read_nodes
from rota.drivers.slurm.translate import Misfit, cluster_of, is_simple, job_of, placement_of, tenants_of, why_left
from rota.drivers.slurm.view import node_events


def test_job_and_cluster_in_rotas_types() -> None:
    cluster = cluster_of(read_nodes(json.dumps({"nodes": [node_value("n1"), node_value("n2")]})).found)
    (job,) = read_jobs(jobs(running_value(3, "n2", features="fast"))).found
    shaped = job_of(job)

    assert [(node.devices, node.device_type, node.cpu_milli) for node in cluster.nodes] == [(4, "a100", 16000)] * 2
    assert (shaped.gpus, shaped.estimate_s, shaped.tenant, shaped.preemptible) == (2, 600.0, "vision", True)
    placement = placement_of(job, shaped, {"n1": 0, "n2": 1}, {})
    assert not isinstance(placement, Misfit)
    assert [tuple(slot[:3]) for slot in placement] == [(1, 0b11, 1)]
    assert isinstance(placement_of(job, shaped, {"n1": 0}, {}), Misfit)


def test_what_rota_does_not_understand_is_left_to_slurm_by_name() -> None:
    for fields, word in (
        ({"resv_name": "maint"}, "reservation"),
        ({"features": "[fast*2&slow*1]"}, "constraints"),
        ({"required_nodes": "n1"}, "name their nodes"),
        ({"het_job_id": 9}, "heterogeneous"),
    ):
        (job,) = read_jobs(jobs(job_value(**fields))).found
        assert word in str(is_simple(job))
    (plain,) = read_jobs(jobs(job_value(features="fast|slow&big"))).found
    assert is_simple(plain) is None
    assert len(job_of(plain).roles[0].requires) == 2


def test_accounts_are_tenants_with_limits_and_weights() -> None:
    lines = (
        "bed|root|||1|||normal",
        "bed|lab||root|2|gres/gpu=6,cpu=100||normal",
        "bed|vision||lab|3||gres/gpu=2|normal,high",
        "bed|vision|ann||1|||normal",
        "bed|broken|||x|||",
    )
    reading = read_associations("\n".join(lines))
    plan = tenants_of(reading.found)

    assert plan is not None
    assert list(plan.shares) == ["root", "lab", "vision"]
    assert plan.shares["vision"].parent == "lab"  # type: ignore[index]  # ids are texts
    assert plan.shares["lab"].limit == {"*": 6}  # type: ignore[index]  # ids are texts
    assert (plan.shares["vision"].weight, plan.shares["vision"].per_user) == (3.0, 2)  # type: ignore[index]
    assert len(reading.faults) == 1


def test_qos_gives_the_priority_and_one_that_is_free_of_charge_no_guarantee() -> None:
    output = "normal|0|1.000000\nprod|100|1.000000\nscavenger|5|0.000000\nhalf|3|0.500000\nold|2\nbad|x|1\n"

    assert read_qos(output) == {"normal": 0, "prod": 100, "scavenger": OPPORTUNISTIC, "half": 3, "old": 2}


@pytest.mark.parametrize(("tasks", "each"), [(3, 2), (8, 1), (1, 4)])
def test_gpus_by_task_stay_together(tasks: int, each: int) -> None:
    value = job_value(tres_per_node="", tres_per_task=f"gres:gpu:{each}", tasks=tasks, tres_req_str="cpu=8,node=1")
    (job,) = read_jobs(jobs(value)).found

    (role,) = job_of(job).roles
    assert (role.count, role.device_milli) == (tasks, 1000 * each)


def test_delay_that_slurm_adds_after_a_requeue_is_not_waited_for_but_a_begin_time_is() -> None:
    times = {"submit_time": 1000, "eligible_time": 1121, "state_reason": "BeginTime", "admin_comment": marks.PREEMPTED}
    requeued, first, later, foreign = read_jobs(
        jobs(
            job_value(1, **times, restart_cnt=1),
            job_value(2, **times),
            job_value(3, **{**times, "eligible_time": 5000}, restart_cnt=1),
            job_value(4, **{**times, "admin_comment": ""}, restart_cnt=1),
        )
    ).found

    waits = [marks.waits_for_slurm(job, {}, 1001.0) for job in (requeued, first, later, foreign)]
    assert waits == [False, True, True, True]


def test_gpus_without_indexes_take_what_is_free() -> None:
    (job,) = read_jobs(jobs(running_value(1, gpus="gpu:a100:2(CNT:2)"))).found

    placement = placement_of(job, job_of(job), {"n1": 0}, {0: 0b0101})

    assert job.shares[0].gpus == Gpus(2, "a100")
    assert not isinstance(placement, Misfit)
    assert placement[0].devices == 0b1010


@pytest.mark.parametrize(
    ("fields", "partitions", "is_left"),
    [
        ({}, ("main", "main"), False),
        ({}, ("main", "other"), True),
        ({"tres_per_node": "gres:gpu:v100:1"}, ("main", "main"), True),
        ({"tres_per_node": "gres:gpu:a100:1"}, ("main", "main"), False),
        ({"tres_per_node": "gres:gpu:h200:1"}, ("main", "main"), False),
        ({"tres_per_node": "", "tres_req_str": "cpu=2,node=1"}, ("main", "other"), False),
    ],
    ids=str,
)
def test_jobs_that_need_a_node_of_several_types_are_left_to_slurm(
    fields: dict[str, Any], partitions: tuple[str, str], is_left: bool
) -> None:
    """The first node has both types; Slurm gives it jobs as before, and Rota none."""
    mixed = node_value("n1", gres="gpu:a100:2(S:0),gpu:v100:2(S:1)", partitions=[partitions[0]])
    nodes = read_nodes(json.dumps({"nodes": [mixed, node_value("n2", partitions=[partitions[1]])]})).found
    (job,) = read_jobs(jobs(job_value(**fields))).found

    assert [node.is_mixed for node in nodes] == [True, False]
    assert (why_left(job, nodes) is not None) == is_left
    state = State(cluster_of(nodes))
    drained = node_events({node.name: node for node in nodes}, state, decides=True)
    assert drained == [NodeDrained(NodeId("n1"))]
    assert not node_events({node.name: node for node in nodes}, state)
