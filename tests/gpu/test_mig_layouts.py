"""Idle GPUs of the pool are repartitioned when waiting jobs ask for it; NVML and `nvidia-smi` are stand-ins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import node
from gpu.machines import GIB, GpuMachine
from gpu.smi_stand_in import smi_program
from gpu.test_topology import library_of
from managers import Manager, eventually
from rota.core.errors import RotaError
from rota.drivers.local.gpu.mig_layouts import WHOLE_GPU, MigLayouts, MigPool

POOL = MigPool(gpus=(1,), profiles=("1g.18gb", "3g.71gb"))


@pytest.fixture
def machine(tmp_path: Path) -> GpuMachine:
    return GpuMachine(tmp_path / "nvml", 2)


def layouts(machine: GpuMachine, pool: MigPool = POOL) -> MigLayouts:
    program = smi_program(machine.folder, machine)
    return MigLayouts(library_of(machine), node("h", devices=2), pool, str(program))


def test_every_layout_is_a_node_and_the_other_gpus_stay_together(machine: GpuMachine) -> None:
    made = layouts(machine)

    assert [(each.id, each.device_type, each.devices) for each in made.nodes] == [
        ("h", "gpu", 1),
        ("h-gpu1", "gpu", 1),
        ("h-gpu1-1g.18gb", "gpu-1g.18gb", 7),
        ("h-gpu1-3g.71gb", "gpu-3g.71gb", 2),
    ]
    assert made.nodes[2].device_memory_bytes == 16 * GIB
    assert made.look(1) == WHOLE_GPU
    assert {str(name): len(found) for name, found in made.devices.items()} == {
        "h": 1,
        "h-gpu1": 1,
        "h-gpu1-1g.18gb": 0,
        "h-gpu1-3g.71gb": 0,
    }


def test_a_gpu_is_partitioned_twice_and_made_whole(machine: GpuMachine) -> None:
    made = layouts(machine)
    for layout, count in (("3g.71gb", 2), ("1g.18gb", 7), (WHOLE_GPU, 1)):
        made.change(1, layout)

        assert made.look(1) == layout
        assert [len(found) for name, found in made.devices.items() if name != "h" and found] == [count]
    asked = Path(f"{machine.folder}/state.json.asked").read_text().splitlines()
    assert asked == [
        "-i 1 -mig 1",
        "mig -i 1 -cgi 3g.71gb,3g.71gb -C",
        "mig -i 1 -dci",
        "mig -i 1 -dgi",
        f"mig -i 1 -cgi {','.join(['1g.18gb'] * 7)} -C",
        "mig -i 1 -dci",
        "mig -i 1 -dgi",
        "-i 1 -mig 0",
    ]


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"smi_fails": "-cgi"}, r"-cgi 3g.71gb,3g.71gb -C: Unable to do it: Insufficient Permissions"),
        ({"smi_needs_reset": True}, "GPU 1 must be reset before its MIG mode changes"),
    ],
)
def test_why_a_gpu_can_not_be_repartitioned_is_told(machine: GpuMachine, state: dict[str, object], why: str) -> None:
    made = layouts(machine)
    machine.state |= state
    machine.write()

    with pytest.raises(RotaError, match=why):
        made.change(1, "3g.71gb")


def test_instances_made_by_hand_are_no_layout(machine: GpuMachine) -> None:
    made = layouts(machine)
    one = {"name": "NVIDIA H200 MIG 1g.18gb", "uuid": "MIG-x", "used": 0, "total": GIB}
    machine.change(1, mig=[one], mig_mode=1)

    assert made.look(1) is None
    assert [name for name, found in made.devices.items() if found] == ["h"]


@pytest.mark.parametrize(
    ("pool", "why"),
    [
        (MigPool(gpus=(4,), profiles=("1g.18gb",)), "there is no GPU 4; this machine has 2"),
        (MigPool(gpus=(1,), profiles=("2g.9gb",)), "GPU 1 has no profile '2g.9gb'; it has 1g.18gb, 3g.71gb"),
    ],
)
def test_a_pool_that_can_not_be_is_refused_by_name(machine: GpuMachine, pool: MigPool, why: str) -> None:
    with pytest.raises(RotaError, match=why):
        layouts(machine, pool)


@pytest.fixture
def manager(tmp_path: Path, machine: GpuMachine) -> Iterator[Manager]:
    """A manager of two GPUs, the second of which may be repartitioned."""
    smi_program(tmp_path, machine)
    pool = "{gpus: [1], profiles: [1g.18gb, 3g.71gb]}"
    (tmp_path / "rota.yaml").write_text(f"gpu: {{nvml: {machine.folder}, sample: 0.2s, mig: {pool}}}\n")
    made = Manager(tmp_path, "--config", str(tmp_path / "rota.yaml"), "--cgroups", "off")
    made.env["PATH"] = f"{tmp_path}:{made.env['PATH']}"
    yield made.start(within_s=120)
    made.clean_up()


@pytest.mark.slow
def test_waiting_jobs_get_their_instances_and_running_ones_keep_theirs(manager: Manager, machine: GpuMachine) -> None:
    def submit(gpu: str) -> str:
        return manager.submit("echo sees $CUDA_VISIBLE_DEVICES; sleep 300", resources={"gpus": 1, "gpu": gpu})

    small = [submit("H200-1g.18gb") for _ in range(2)]
    for job_id in small:
        manager.wait(job_id, "running", within_s=60)
    assert {eventually(lambda: manager.said(job_id)) for job_id in small} == {  # noqa: B023
        "sees MIG-1g.18gb-0\n",
        "sees MIG-1g.18gb-1\n",
    }
    large = submit("H200-3g.71gb")
    manager.kill()
    manager.start(within_s=120)
    manager.client.act(small[0], "cancel")
    manager.wait(small[0], "cancelled")
    assert manager.state(large) == "waiting", "the other instance is in use"
    assert manager.state(small[1]) == "running"
    manager.client.act(small[1], "cancel")
    manager.wait(large, "running", within_s=60)
    assert eventually(lambda: manager.said(large)) == "sees MIG-3g.71gb-0\n"
    whole = [submit("H200") for _ in range(2)]
    manager.client.act(large, "cancel")
    for job_id in whole:
        manager.wait(job_id, "running", within_s=60)
    state = json.loads((machine.folder / "state.json").read_text())
    assert (state["gpus"][1]["mig"], state["gpus"][1]["mig_mode"]) == ([], 0)
    assert {each["gpu"] for each in manager.client.gpus() if each["jobs"]} == {0, 1}
