"""Instances of partitioned GPUs are devices of their own types, by which tasks are told which is theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import node
from gpu.machines import GIB, GpuMachine
from gpu.test_topology import library_of
from local_drivers import Bench, until, with_driver
from rota.core.messages.decisions import Cause
from rota.core.messages.events import Started
from rota.core.model.job import JobId, NodeId
from rota.drivers.local.gpu.mig import NamedDevice, find_devices, nodes_of
from rota.store.run_folder import tail


def instance(profile: str, number: int, memory: int) -> dict[str, object]:
    return {
        "name": f"NVIDIA H200 MIG {profile}",
        "uuid": f"MIG-{profile}-{number}",
        "used": 0,
        "total": memory * GIB,
    }


@pytest.fixture
def machine(tmp_path: Path) -> GpuMachine:
    """A machine of two GPUs, the first of which is partitioned."""
    made = GpuMachine(tmp_path / "nvml", 2)
    made.change(0, mig=[instance("3g.71gb", 0, 70), instance("1g.18gb", 0, 17), instance("1g.18gb", 1, 17)])
    return made


def test_instances_are_devices_of_their_own_types(machine: GpuMachine) -> None:
    host = node("h", devices=2)

    nodes, devices = nodes_of(find_devices(library_of(machine)), host)

    assert [(each.id, each.device_type, each.devices) for each in nodes] == [
        ("h", host.device_type, 1),
        ("h-1g.18gb", f"{host.device_type}-1g.18gb", 2),
        ("h-3g.71gb", f"{host.device_type}-3g.71gb", 1),
    ]
    assert nodes[1].labels == (("mig-profile", "1g.18gb"),)
    assert nodes[1].device_memory_bytes == 17 * GIB
    assert [each.uuid for each in devices[NodeId("h-1g.18gb")]] == ["MIG-1g.18gb-0", "MIG-1g.18gb-1"]
    assert [each.gpu for each in devices[NodeId("h")]] == [1]


def test_without_partitions_indexes_are_those_of_the_gpus(tmp_path: Path) -> None:
    assert find_devices(library_of(GpuMachine(tmp_path / "nvml", 2))) == []


@pytest.mark.slow
def test_a_task_sees_its_instance_by_name(tmp_path: Path) -> None:
    named = tuple(NamedDevice(uuid=f"MIG-{index}", gpu=0, profile="1g.18gb") for index in range(4))

    async def course(bench: Bench) -> None:
        bench.driver.start(bench.order("echo sees $CUDA_VISIBLE_DEVICES; sleep 600"))
        await until(lambda: bench.events(Started))
        await until(lambda: "sees MIG-0\n" in tail(bench.folder()))
        bench.driver.stop(JobId("1"), Cause.CANCELLED)
        await until(lambda: bench.state()["phase"] == "ended")

    with_driver(tmp_path, course, devices={NodeId("n1"): named})
