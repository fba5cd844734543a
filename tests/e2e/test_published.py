"""The published fair and elastic policies, live: real processes are resized, take turns and come to their end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from managers import Manager, eventually

pytestmark = pytest.mark.slow
COUNTS = (
    "n=$(cat count-$ROTA_JOB_ID 2>/dev/null || echo 0); trap 'echo $n > count-$ROTA_JOB_ID; exit 0' TERM; "
    "while [ $n -lt {steps} ]; do sleep 0.1; n=$((n+1)); done"
)
ONE = {"gpus": 1}
Up = Callable[..., Manager]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """Managers of pretend devices under a policy."""
    made: list[Manager] = []

    def start(policy: str, devices: str) -> Manager:
        made.append(Manager(tmp_path, "--emulate", devices, "--policy", policy).start())
        return made[-1]

    yield start
    for manager in made:
        manager.clean_up()


def count(manager: Manager, steps: int, **fields: object) -> str:
    """Submit a job that counts, and goes on counting where it was stopped."""
    return manager.submit(COUNTS.format(steps=steps), resources=ONE, checkpoint={"grace": 5}, **fields)


def runs_with(manager: Manager, job_id: str, attempt: int) -> str:
    """What an attempt says of its tasks and of where it began; empty until it has."""
    job = manager.client.job(job_id)
    said = manager.said(job_id).strip() if job["attempt"] == attempt and job["state"] == "running" else ""
    return said.partition(" before")[0]


@pytest.mark.parametrize("policy", ["afs-l", "afs-p", "elasticflow"])
def test_elastic_job_makes_room_for_another_and_takes_it_back(up: Up, policy: str) -> None:
    """Four devices: all of them for the only job; one while a gang of three runs; then all again."""
    manager = up(policy, "gpu=4/4")
    job_id = manager.train()
    assert eventually(lambda: runs_with(manager, job_id, 1)) == "task 0 of 4 from False"
    eventually(lambda: (manager.client.job(job_id)["progress"] or {}).get("step", 0) > 5)

    other = manager.submit("sleep 2", workers=3, resources=ONE)

    assert eventually(lambda: runs_with(manager, job_id, 2)) == "task 0 of 1 from True"
    assert manager.client.job(job_id)["tasks"] == 1
    assert manager.wait(other)["state"] == "succeeded"
    assert eventually(lambda: runs_with(manager, job_id, 3)) == "task 0 of 4 from True"


@pytest.mark.parametrize("policy", ["themis:lease_s=1", "gandiva-fair:quantum_s=1", "shockwave:round_s=1"])
def test_two_jobs_have_one_device_in_turns(up: Up, policy: str) -> None:
    """They come together: whoever has had the device is then better off than the other."""
    manager = up(policy, "gpu=1/1")
    counts = {"run": COUNTS.format(steps=35), "workdir": str(manager.folder), "resources": ONE}
    jobs = manager.client.submit([{**counts, "checkpoint": {"grace": 5}}] * 2)

    ended = [manager.wait(job_id, within_s=60) for job_id in jobs]

    assert [job["state"] for job in ended] == ["succeeded", "succeeded"]
    assert all(job["attempt"] >= 2 for job in ended)


@pytest.mark.parametrize("policy", ["capacity", "allox", "optimus:round_s=1", "pollux:round_s=1", "sia:round_s=1"])
def test_jobs_of_all_kinds_come_to_their_end(up: Up, policy: str) -> None:
    """Fixed, elastic and dependent ones, and one without devices, more than fit at once."""
    manager = up(policy, "v100=1/1,k80=1/1")

    first = count(manager, 5)
    jobs = [first, count(manager, 8, elastic={"min": 1, "max": 2}), count(manager, 5, depends_on=[first])]
    jobs.append(manager.submit("true"))

    assert [manager.wait(job_id, within_s=60)["state"] for job_id in jobs] == ["succeeded"] * len(jobs)


@pytest.mark.parametrize("policy", ["ursa", "perotin"])
def test_stages_run_in_their_order(up: Up, policy: str) -> None:
    manager = up(policy, "gpu=2/2")
    load = manager.submit("echo load >> order", resources={"cpus": 1})
    train = [manager.submit("echo train >> order", resources=ONE, depends_on=[load]) for _ in range(2)]
    test = manager.submit("echo test >> order", resources={"cpus": 1}, depends_on=train)

    assert manager.wait(test)["state"] == "succeeded"
    assert (manager.folder / "order").read_text().split() == ["load", "train", "train", "test"]


@pytest.mark.parametrize("policy", ["afs-l", "pollux", "themis", "gandiva-fair", "shockwave", "ursa"])
def test_guarantees_to_tenants_are_refused_by_name(tmp_path: Path, policy: str) -> None:
    manager = Manager(tmp_path)
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("nodes: [{name: a, gpus: 4, type: gpu}]\ntenants: {x: {gpus: 4}}\n")

    told = manager.rota("up", "--port", "0", "--emulate", str(cluster), "--policy", policy, "--tenancy", "quota")

    assert told.returncode == 2
    assert f"policy {policy!r} divides the whole cluster and can't run with tenancy 'quota'" in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1
