"""Policies that plan in rounds, live: leases run out, are renewed, and change hands; real processes take turns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from managers import Manager, eventually

pytestmark = pytest.mark.slow
COUNTS = (
    "n=$(cat count-$ROTA_JOB_ID 2>/dev/null || echo 0); trap 'echo $n > count-$ROTA_JOB_ID; exit 0' TERM; "
    "while [ $n -lt {steps} ]; do sleep 0.1; n=$((n+1)); done"
)


@pytest.fixture
def one_device(tmp_path: Path) -> Iterator[Manager]:
    """A manager of one pretend device, which jobs have for a second at a time."""
    made = Manager(tmp_path, "--emulate", "gpu=1/1", "--policy", "gavel/max_min_fairness:round_s=1").start()
    yield made
    made.clean_up()


def count(manager: Manager, steps: int) -> str:
    """Submit a job that counts, and goes on counting where it was stopped."""
    return manager.submit(COUNTS.format(steps=steps), resources={"gpus": 1}, checkpoint={"grace": 5})


def journal(manager: Manager) -> tuple[Path, list[dict[str, Any]]]:
    path = manager.folder / "journal.jsonl"
    path.write_bytes(b"".join(manager.client.journal()))
    return path, [json.loads(line) for line in path.read_text().splitlines()[1:]]


def test_two_jobs_have_one_device_in_turns(one_device: Manager) -> None:
    jobs = [count(one_device, 35), count(one_device, 35)]

    ended = [one_device.wait(job_id) for job_id in jobs]

    assert [job["state"] for job in ended] == ["succeeded", "succeeded"]
    assert all(job["attempt"] >= 2 for job in ended)
    path, steps = journal(one_device)
    started = [order["job_id"] for step in steps for order in step.get("out", ()) if order["order"] == "start"]
    assert started[:3] in ([jobs[0], jobs[1], jobs[0]], [jobs[1], jobs[0], jobs[1]])
    told = one_device.rota("sim", "--replay", str(path))
    assert (told.returncode, told.stderr) == (0, "")


def test_job_alone_keeps_its_device_from_round_to_round(one_device: Manager) -> None:
    job = one_device.wait(count(one_device, 20))

    assert (job["state"], job["attempt"]) == ("succeeded", 1)
    _, steps = journal(one_device)
    assert any(order["order"] == "renew" for step in steps for order in step.get("out", ()))


def test_turns_go_on_after_the_server_was_killed(one_device: Manager) -> None:
    jobs = [count(one_device, 35), count(one_device, 35)]
    eventually(lambda: any(one_device.state(job_id) == "running" for job_id in jobs))
    one_device.kill()
    one_device.start()

    assert [one_device.wait(job_id)["state"] for job_id in jobs] == ["succeeded", "succeeded"]


def test_waiting_job_is_told_that_its_turn_comes(one_device: Manager) -> None:
    jobs = [count(one_device, 300), count(one_device, 300)]

    def told() -> dict[str, Any] | None:
        found = [one_device.client.why(job_id) for job_id in jobs]
        turns = [why for why in found if why["expected"] and why["reason"] and why["reason"]["code"] == "next-round"]
        return next(iter(turns), None)  # between two rounds, another reason is told for a moment

    why = eventually(told)

    assert why is not None
    assert why["expected"]["usual"] is not None or why["expected"]["reason"]


@pytest.mark.parametrize("policy", ["gavel/fifo", "gavel/finish_time_fairness", "gavel/allox", "gavel/gandiva"])
def test_other_policies_of_rounds_run_jobs_too(tmp_path: Path, policy: str) -> None:
    manager = Manager(tmp_path, "--emulate", "v100=1/1,k80=1/1", "--policy", f"{policy}:round_s=1").start()
    try:
        jobs = [count(manager, 8) for _ in range(3)]
        assert [manager.wait(job_id)["state"] for job_id in jobs] == ["succeeded"] * 3
    finally:
        manager.clean_up()
