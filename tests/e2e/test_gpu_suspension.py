"""Preemption on GPUs loses nothing, in a real manager with a stand-in of the driver, whenever the manager is killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from drivers.local.cuda_stand_in import CudaStandIn
from managers import Manager, eventually

pytestmark = pytest.mark.slow
_WITH_STAND_IN = """
import os, sys
sys.path.insert(0, {folder!r})
import rota.drivers.local.task_runner.nvml as nvml
import rota.drivers.local.gpu.abilities as abilities
nvml.DRIVER, abilities.LIBRARY = os.devnull, {library!r}
"""
LONG, SHORT = 400, 30


@pytest.fixture
def cuda(tmp_path: Path) -> CudaStandIn:
    return CudaStandIn(tmp_path / "cuda", slow_s=0.3)


@pytest.fixture
def manager(tmp_path: Path, cuda: CudaStandIn) -> Iterator[Manager]:
    one = Manager(tmp_path, "--policy", "priority", "--cgroups", "off")
    one.prelude = _WITH_STAND_IN.format(folder=str(cuda.folder), library=str(cuda.library))
    one.start()
    yield one
    one.clean_up()


def steps(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def submit(manager: Manager, cuda: CudaStandIn, log: Path, count: int, priority: int = 0) -> str:
    return manager.submit(cuda.training(log, steps=count), resources={"gpus": 1}, priority=priority)


def can_resume(manager: Manager, job_id: str) -> bool:
    return bool(manager.client.job(job_id)["if_preempted"] == "resumes")


def process_of(manager: Manager, job_id: str) -> tuple[int, int]:
    folders = sorted((manager.home / "runs" / job_id).glob("[0-9]*"), key=lambda path: int(path.name))
    state = json.loads((folders[-1] / "0" / "state.json").read_text())
    return state["pid"], state["pid_start"]


def test_urgent_job_takes_the_gpu_and_the_other_goes_on_where_it_was(
    manager: Manager, cuda: CudaStandIn, tmp_path: Path
) -> None:
    long = submit(manager, cuda, tmp_path / "long", LONG)
    eventually(lambda: can_resume(manager, long))
    process = process_of(manager, long)

    urgent = submit(manager, cuda, tmp_path / "urgent", SHORT, priority=5)
    manager.wait(urgent, "running")
    assert manager.state(long) == "suspended"
    manager.wait(urgent)
    manager.wait(long, "running")
    done = manager.wait(long)

    assert (done["state"], done["attempt"]) == ("succeeded", 2)
    assert process_of(manager, long) == process, "its second attempt is the same process"
    assert steps(tmp_path / "long") == list(range(LONG))
    assert steps(tmp_path / "urgent") == list(range(SHORT))


@pytest.mark.parametrize("moment", ["while it is suspended", "while it waits", "while it is resumed"])
def test_killed_manager_loses_no_step_and_leaves_no_process(
    manager: Manager, cuda: CudaStandIn, tmp_path: Path, moment: str
) -> None:
    long = submit(manager, cuda, tmp_path / "long", LONG)
    eventually(lambda: can_resume(manager, long))
    urgent = submit(manager, cuda, tmp_path / "urgent", SHORT, priority=5)
    locked = cuda.state / f"{cuda.on_gpu()[0]}.locked"
    if moment == "while it is suspended":
        eventually(locked.exists, every_s=0.001)
    elif moment == "while it waits":
        manager.wait(urgent, "running")
    else:
        manager.wait(urgent)
        eventually(lambda: (manager.home / "runs" / long / "2").exists(), every_s=0.001)
    manager.kill()

    manager.start()
    manager.wait(urgent)
    assert manager.wait(long)["state"] == "succeeded"

    assert steps(tmp_path / "long") == list(range(LONG))
    eventually(lambda: not manager.task_processes())
    assert (cuda.on_gpu(), cuda.on_host()) == ([], [])


def test_why_a_job_would_start_over_is_named(manager: Manager, cuda: CudaStandIn, tmp_path: Path) -> None:
    cuda.refuse("lock")
    job_id = submit(manager, cuda, tmp_path / "steps", LONG)

    def said() -> bool:
        return bool(manager.client.job(job_id)["if_preempted"] == "starts over: lock: not supported for it")

    eventually(said)


def test_job_cancelled_while_it_waits_suspended_leaves_nothing(
    manager: Manager, cuda: CudaStandIn, tmp_path: Path
) -> None:
    long = submit(manager, cuda, tmp_path / "long", LONG)
    eventually(lambda: can_resume(manager, long))
    (pid,) = cuda.on_gpu()
    urgent = submit(manager, cuda, tmp_path / "urgent", LONG, priority=5)
    manager.wait(urgent, "running")

    manager.client.act(long, "cancel")

    assert manager.wait(long)["state"] == "cancelled"
    eventually(lambda: not os.path.exists(f"/proc/{pid}"))
    assert manager.state(urgent) == "running"


def test_job_with_idle_gpus_is_suspended_with_its_memory_and_goes_on_when_it_is_released(
    cuda: CudaStandIn, tmp_path: Path
) -> None:
    rule = "{below: 5, for: 1s, then: suspend, after: 1s}"
    (tmp_path / "rota.yaml").write_text(f"gpu: {{nvml: {cuda.folder}, sample: 0.2s, idle: {rule}}}\n")
    manager = Manager(tmp_path, "--config", str(tmp_path / "rota.yaml"), "--cgroups", "off")
    manager.prelude = _WITH_STAND_IN.format(folder=str(cuda.folder), library=str(cuda.library))
    manager.start()
    try:
        job_id = submit(manager, cuda, tmp_path / "steps", 3 * LONG)
        eventually(lambda: can_resume(manager, job_id))
        (cuda.state / "idle").touch()

        held = manager.wait(job_id, "held", within_s=60)
        assert held["message"].startswith("suspended: its GPUs were idle: busy for ")
        assert (cuda.on_gpu(), len(cuda.on_host())) == ([], 1)
        (cuda.state / "idle").unlink()
        manager.client.act(job_id, "release")
        assert manager.wait(job_id)["state"] == "succeeded"
    finally:
        manager.clean_up()

    assert steps(tmp_path / "steps") == list(range(3 * LONG))


def test_time_sliced_jobs_are_never_both_in_gpu_memory_that_is_too_small(tmp_path: Path) -> None:
    cuda = CudaStandIn(tmp_path / "cuda", slow_s=0.3, total=3 << 29)
    manager = Manager(tmp_path, "--policy", "gandiva:quantum_s=1,pack=false,switching=1", "--cgroups", "off")
    manager.prelude = _WITH_STAND_IN.format(folder=str(cuda.folder), library=str(cuda.library))
    manager.start()
    try:
        one = submit(manager, cuda, tmp_path / "one", LONG)
        eventually(lambda: can_resume(manager, one))
        other = submit(manager, cuda, tmp_path / "other", LONG)
        manager.wait(one, "suspended")
        assert "has its turn on the same devices" in manager.client.why(one)["reason"]["sentence"]
        manager.kill()
        manager.start()

        def both_end() -> bool:
            assert len(cuda.on_gpu()) <= 1
            return {manager.state(one), manager.state(other)} == {"succeeded"}

        eventually(both_end, within_s=60)
        states = [json.loads((manager.home / "runs" / job / "1/0/state.json").read_text()) for job in (one, other)]
        lives = [(tmp_path / name).read_text() for name in ("one", "other")]
    finally:
        manager.clean_up()

    assert all(state.get("swap_out_s") for state in states), "each has made room for the other"
    assert lives == ["".join(f"{step}\n" for step in range(LONG))] * 2
