"""What a task may use, kept by the kernel where it gives cgroups, and watched where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from managers import Manager, eventually
from rota.drivers.local.cgroup import NoCgroups
from rota.drivers.local.cgroup_search import find

pytestmark = pytest.mark.slow
HUNGRY = "python3 -c 'x = bytearray(300 << 20); import time; time.sleep(60)'"
BUSY = "import os,time; t=time.time()+1.5\nwhile time.time()<t: pass\nprint(sum(os.times()[:2]))"


@pytest.fixture(params=["on", "off"])
def limited(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Manager]:
    """A manager with cgroups, and one without."""
    found = find(tmp_path / "data" / "rota")
    if request.param == "on" and isinstance(found, NoCgroups):
        pytest.skip(f"no cgroups can be made here: {found.why}")
    made = Manager(tmp_path, "--emulate", "gpu=8/4", "--cgroups", request.param).start()
    yield made
    made.clean_up()


def test_task_that_takes_too_much_memory_is_ended_and_that_is_said(limited: Manager) -> None:
    job = limited.wait(limited.submit(HUNGRY, resources={"memory": "100Mi"}))

    assert (job["state"], job["failure"], job["exit_code"]) == ("failed", "out-of-memory", 137)
    assert job["message"] == "out of memory: it used more than it asked for (permanent)"


def test_nodes_say_how_limits_are_kept(limited: Manager) -> None:
    kept = {node["limits"] for node in limited.client.nodes()}

    assert kept == {"watched"} if "off" in limited.options else all(text.startswith("cgroup v") for text in kept)


def test_half_a_cpu_is_half_a_cpu(tmp_path: Path) -> None:
    if isinstance(found := find(tmp_path / "data" / "rota"), NoCgroups) or not found.keeps_cpus:
        pytest.skip("the kernel limits no CPU time here")
    manager = Manager(tmp_path).start()
    try:
        job_id = manager.client.submit({"run": ["python3", "-c", BUSY], "resources": {"cpus": 0.5}})[0]
        manager.wait(job_id)
        assert 0.1 < float(manager.said(job_id)) < 1.1
    finally:
        manager.clean_up()


def test_process_that_hides_is_found_by_its_cgroup(tmp_path: Path) -> None:
    """It left the session and cleared its environment: nothing but the cgroup knows whose it is."""
    if isinstance(found := find(tmp_path / "data" / "rota"), NoCgroups):
        pytest.skip(f"no cgroups can be made here: {found.why}")
    manager = Manager(tmp_path).start()
    try:
        hide = "env -i setsid sh -c 'echo $$ > hidden; exec sleep 300' & while [ ! -s hidden ]; do sleep 0.01; done"
        job_id = manager.submit(f"{hide}; echo up; sleep 300")
        eventually(lambda: manager.said(job_id) == "up\n")
        hidden = int((tmp_path / "hidden").read_text())
        manager.client.act(job_id, "cancel")
        manager.wait(job_id)
        eventually(lambda: not Path(f"/proc/{hidden}").exists())
    finally:
        manager.clean_up()
    assert (
        not found.parents["memory"].exists()
        or [path for path in found.parents["memory"].iterdir() if path.is_dir()] == []
    )
