"""A job that never fits is told by what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import GIB, job
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import DeviceType, Elastic, JobId, Level, Locality, NodeId
from rota.core.model.labels import NODE_NAME, Requirement
from rota.drivers.simulator.load import load
from rota.drivers.simulator.misfits import why_never_fits
from rota.drivers.simulator.study import simulate
from rota.scenario import Scenario
from rota.traces.workload import Submission, Workload

CLUSTER = Cluster(
    nodes=(
        *(
            Node(
                id=NodeId(f"a{number}"),
                device_type=DeviceType("a"),
                devices=4,
                cpu_milli=8000,
                memory_bytes=64 * GIB,
                device_memory_bytes=16 * GIB,
                sockets=(2, 2),
                rack=f"r{number}",
            )
            for number in (1, 2)
        ),
        Node(
            id=NodeId("b"),
            device_type=DeviceType("b"),
            devices=2,
            cpu_milli=32000,
            memory_bytes=16 * GIB,
            device_memory_bytes=32 * GIB,
            rack="r2",
        ),
    )
)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"gpus": 1, "cpu_milli": 64000}, "needs 64 CPUs for a task, and no node has more than 32 CPUs"),
        (
            {"gpus": 1, "memory_bytes": 65 * GIB},
            "needs 65 GiB of memory for a task, and no node has more than 64 GiB of memory",
        ),
        ({"gpus": 8}, "needs 8 devices on one node for a task, and no node has more than 4"),
        ({"gpus": 4, "device_types": ("b",)}, "needs 4 devices of type b on one node for a task"),
        (
            {"gpus": 4, "cpu_milli": 16000},
            "4 devices, 16 CPUs on one node for a task, and no node has",
        ),
        ({"workers": 3, "device_types": ("b",)}, "needs 3 devices of type b, and the cluster has 2"),
        ({"workers": 9}, "needs 9 devices of one type, and the cluster has 8 of 'a', 2 of 'b'"),
        (
            {"workers": 8, "locality": Locality(level=Level.RACK, hard=True)},
            "needs 8 devices of one type in one rack, and no rack has more than 4",
        ),
        (
            {"workers": 8, "cpu_milli": 4000, "memory_bytes": GIB},
            "8 tasks of 1 device, 4 CPUs, 1 GiB of memory, and the nodes of one type",
        ),
        (
            {"requires": ((Requirement("zone", "In", ("x", "y")), Requirement("ssd", "Exists")),)},
            "requires nodes with zone In x, y and ssd Exists, and no node that it tolerates has that",
        ),
        (
            {"workers": 5, "device_types": ("a",), "requires": ((Requirement(NODE_NAME, "In", ("a1",)),),)},
            "needs 5 tasks of 1 device, and the nodes that it may use of one type have room for 4",
        ),
        (
            {"workers": 5, "locality": Locality(level=Level.RACK, hard=True)},
            "needs 5 devices of one type in one rack, and no rack has more than 4",
        ),
        (
            {"workers": 3, "locality": Locality(level=Level.SOCKET, hard=True)},
            "needs 3 devices of one type in one socket, and no socket has more than 2",
        ),
        (
            {"device_memory_bytes": 40 * GIB},
            "needs a device with 40 GiB of memory, and no device that it may use has more than 32 GiB",
        ),
        (
            {"gpus": 4, "device_memory_bytes": 32 * GIB},
            "needs 4 devices, devices with 32 GiB of memory on one node for a task, and no node has all of it",
        ),
        ({"workers": 11}, "needs 11 devices and can never fit into the cluster (10 devices)"),
    ],
)
def test_reason_names_what_lacks(asked: dict[str, Any], told: str) -> None:
    requires = asked.pop("requires", ())
    wanted = job("x", **asked)
    wanted = replace(wanted, roles=tuple(replace(role, requires=requires) for role in wanted.roles))

    assert told in why_never_fits(wanted, CLUSTER)


def test_tasks_that_leave_devices_over_on_each_node_are_counted() -> None:
    nodes = tuple(Node(id=NodeId(f"n{number}"), device_type=DeviceType("a"), devices=4) for number in range(3))

    told = why_never_fits(job("x", workers=4, gpus=3), Cluster(nodes=nodes))

    assert told == "needs 4 tasks of 3 devices, and the nodes have room for 3"


def test_job_that_depends_on_one_left_out_depends_on_it_no_longer() -> None:
    jobs = (job("huge", workers=11), job("next", depends_on=(JobId("huge"),)), job("last", depends_on=(JobId("next"),)))
    given = Workload(submissions=tuple(Submission(job=each, submit_s=0.0) for each in jobs), source="", format="rota")

    loaded = load(Scenario(policies=("fifo",), cluster=CLUSTER, skip_oversized=True), given)

    assert [(each.job.id, each.job.depends_on) for each in loaded.workload.submissions] == [
        ("next", ()),
        ("last", ("next",)),
    ]
    assert loaded.left_out == 1


@pytest.mark.parametrize("policy", ["gavel/fifo", "shockwave", "fifo", "sia"])
def test_round_gives_a_job_its_full_size_on_one_type(policy: str) -> None:
    """Other policies place roles on different types, and shrink elastic jobs; a round that can't would never end."""
    roles = job("x", workers=8).roles + tuple(replace(each, name="ps") for each in job("x", workers=2).roles)
    jobs = (
        replace(job("roles"), roles=roles),
        job("elastic", workers=9, elastic=Elastic(min_tasks=2, max_tasks=9)),
        job("fits", workers=2, work=10.0),
    )
    given = Workload(submissions=tuple(Submission(job=each, submit_s=0.0) for each in jobs), source="", format="rota")
    free = Cluster(nodes=tuple(replace(node, cpu_milli=None, memory_bytes=None) for node in CLUSTER.nodes))

    loaded = load(Scenario(policies=(policy,), cluster=None, skip_oversized=True), replace(given, cluster=free))

    kept = [str(each.job.id) for each in loaded.workload.submissions]
    assert kept == (["fits"] if policy in ("gavel/fifo", "shockwave") else ["roles", "elastic", "fits"])
    ended = simulate(loaded.workload, policy, loaded.setting).history.jobs
    assert all(row.end_s is not None for row in ended)
