"""A manager whose jobs share a device: suspended and resumed by decisions, or by turns within the driver."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from managers import Manager, eventually

pytestmark = pytest.mark.slow
REST = "exec sleep 600"
"""What a task does is of no account here: its supervisor's clock counts the time in which it is not stopped."""
WATCH_S = 30.0


@pytest.fixture
def sliced(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Manager]:
    manager = Manager(tmp_path, "--emulate", "gpu=1/1", "--policy", request.param)
    try:
        yield manager.start()
    finally:
        manager.clean_up()


def unstopped_s(manager: Manager, job_id: str) -> float:
    """How long a job's task has run and was not stopped, by its supervisor's clock."""
    now_s = time.time()
    state = json.loads((manager.home / "runs" / job_id / "1" / "0" / "state.json").read_text())
    since_s = state.get("rests_since_s")
    rested_s = state.get("rested_s", 0.0) + (0.0 if since_s is None else now_s - since_s)
    return float(now_s - state["started_s"] - rested_s)


def come_to_parts(manager: Manager, jobs: list[str], wanted: list[float]) -> None:
    """Fail unless jobs come to these parts of the time in which some job was not stopped, over a stretch of time.

    On a busy machine orders take a while, and meanwhile no job runs; two at a time never do for long. A turn that was
    much too long is made up for by watching longer.
    """
    begun_s, before = time.time(), [unstopped_s(manager, each) for each in jobs]

    def parts() -> list[float]:
        had_s = [unstopped_s(manager, each) - was for each, was in zip(jobs, before, strict=True)]
        assert sum(had_s) <= 1.05 * (time.time() - begun_s)
        return [each / sum(had_s) for each in had_s]

    eventually(lambda: time.time() >= begun_s + WATCH_S, within_s=WATCH_S + 60.0, every_s=0.5)
    eventually(lambda: parts() == pytest.approx(wanted, abs=0.05), within_s=4 * WATCH_S, every_s=1.0)


@pytest.mark.parametrize("sliced", ["gandiva:quantum_s=1.5,pack=false"], indirect=True)
def test_two_jobs_have_a_device_in_turn_by_decisions(sliced: Manager) -> None:
    jobs = [sliced.submit(REST, resources={"gpus": 1}) for _ in range(2)]
    for each in jobs:
        sliced.wait(each, "running", "suspended")
    eventually(lambda: {sliced.state(each) for each in jobs} == {"running", "suspended"})

    come_to_parts(sliced, jobs, [0.5, 0.5])

    path = sliced.folder / "journal.jsonl"
    path.write_bytes(b"".join(sliced.client.journal()))
    steps = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    orders = [decision["order"] for step in steps for decision in step.get("out", ())]
    assert orders.count("suspend") >= 5
    assert orders.count("stop") == 0
    told = sliced.rota("sim", "--replay", str(path))
    assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.parametrize("sliced", ["kubeshare"], indirect=True)
def test_parts_of_a_device_are_parts_of_the_time(sliced: Manager) -> None:
    jobs = [sliced.submit(REST, resources={"gpus": gpus}) for gpus in (0.7, 0.3)]
    for each in jobs:
        sliced.wait(each, "running")

    come_to_parts(sliced, jobs, [0.7, 0.3])


@pytest.mark.parametrize("sliced", ["gandiva:quantum_s=600,pack=false"], indirect=True)
def test_suspended_job_outlives_the_manager_and_is_resumed(sliced: Manager) -> None:
    first = sliced.submit("until [ -e end ]; do sleep 0.05; done", resources={"gpus": 1})
    sliced.wait(first, "running")
    second = sliced.submit("until [ -e end ]; do sleep 0.05; done", resources={"gpus": 1})
    sliced.wait(first, "suspended")
    sliced.wait(second, "running")
    pid = json.loads((sliced.home / "runs" / first / "1" / "0" / "state.json").read_text())["pid"]

    sliced.kill()
    sliced.start()
    assert (sliced.state(first), sliced.state(second)) == ("suspended", "running")
    kernel = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    assert kernel in ("T", "D"), "stopped, or in wait for a child that was as it forked"
    (sliced.folder / "end").touch()

    for each in (second, first):
        assert sliced.wait(each)["state"] == "succeeded"
    assert sliced.client.job(first)["attempt"] == 1
