"""Where GPUs are attached, against a stand-in of NVIDIA's library and of the kernel's folders."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu.machines import GpuMachine
from rota.drivers.local.gpu.topology import GpuTopology, cpu_list, find_topology
from rota.drivers.local.task_environment import tied_cpus


@pytest.fixture
def machine(tmp_path: Path) -> GpuMachine:
    """A machine of four GPUs on two NUMA nodes."""
    made = GpuMachine(tmp_path / "nvml", 4)
    for index in range(4):
        made.change(index, bus=f"00000000:{index + 10:02X}:00.0")
        folder = tmp_path / "sys/bus/pci/devices" / f"0000:{index + 10:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{index // 2}\n")
        (folder / "local_cpulist").write_text("0-1,4-5\n" if index < 2 else "2-3,6-7\n")
    return made


def topology_of(machine: GpuMachine) -> GpuTopology:
    return find_topology(library_of(machine), machine.folder.parent / "sys")


def library_of(machine: GpuMachine) -> Any:
    spec = importlib.util.spec_from_file_location("stand_in", machine.folder / "pynvml.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_numa_nodes_are_groups_where_nothing_closer_is_known(machine: GpuMachine) -> None:
    found = topology_of(machine)

    assert (found.groups, found.joined_by, found.sockets) == (((0, 1), (2, 3)), "numa", (2, 2))
    assert found.labels == (("gpu-groups", "numa"), ("numa-nodes", "2"))
    assert (found.cpus_near([0, 1]), found.memory_near([0, 1])) == ([0, 1, 4, 5], 0)
    assert (found.cpus_near([1, 2]), found.memory_near([1, 2])) == ([0, 1, 2, 3, 4, 5, 6, 7], None)


def test_nvlink_pairs_come_before_switches_and_nodes(machine: GpuMachine) -> None:
    for index, other in ((0, 2), (2, 0), (1, 3), (3, 1)):
        machine.change(index, nvlinks=[f"00000000:{other + 10:02X}:00.0"] * 2)

    found = topology_of(machine)

    assert (found.groups, found.joined_by) == (((0, 2), (1, 3)), "nvlink")
    assert found.sockets == ()


def test_an_nvswitch_joins_all_so_that_switches_and_nodes_decide(machine: GpuMachine) -> None:
    levels = [[0, 20, 30, 50], [20, 0, 50, 50], [30, 50, 0, 30], [50, 50, 30, 0]]
    for index in range(4):
        machine.change(index, nvlinks=["00000000:99:00.0"] * 18, topology=levels[index])

    found = topology_of(machine)

    assert (found.groups, found.joined_by, found.sockets) == (((0, 1), (2,), (3,)), "switch", (2, 1, 1))


def test_one_gpu_or_one_node_is_not_divided(tmp_path: Path) -> None:
    found = topology_of(GpuMachine(tmp_path / "nvml", 1))

    assert (found.groups, found.sockets, found.cpus_near([0]), found.memory_near([0])) == (((0,),), (), [], None)


def test_cpus_of_a_task_are_those_beside_its_gpus() -> None:
    usable = sorted(os.sched_getaffinity(0))
    near = usable[:1]

    assert tied_cpus(1000, near) == near
    assert set(tied_cpus(64_000, near)) == set(near)
    assert tied_cpus(64_000, [max(usable) + 1]) == []
    assert cpu_list("0-3,8,10-11\n") == (0, 1, 2, 3, 8, 10, 11)


@pytest.mark.skipif(sys.platform != "linux", reason="NUMA nodes are Linux's")
def test_memory_comes_from_the_node_of_the_gpus(tmp_path: Path) -> None:
    from rota.drivers.local.task_runner.numa import prefer_memory_of

    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            prefer_memory_of(0)
            kept = Path("/proc/self/numa_maps").read_text()
            code = 0 if "prefer:0" in kept or "prefer=static:0" in kept or "prefer" in kept else 2
        except FileNotFoundError:
            code = 0  # a kernel without NUMA says nothing
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
