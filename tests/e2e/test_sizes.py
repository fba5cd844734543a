"""Jobs whose tasks do not all start together: elastic ones that grow and shrink, and those without gang."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from managers import Manager, eventually
from rota.sdk.client import Refused

pytestmark = pytest.mark.slow
POLICY = Path(__file__).with_name("stretch.py")
NODE = {"gpus": 1}


@pytest.fixture
def stretched(tmp_path: Path) -> Iterator[Manager]:
    """A manager of four devices under a policy that resizes."""
    made = Manager(tmp_path, "--emulate", "gpu=4/4", "--policy", f"{POLICY}:stretch").start()
    yield made
    made.clean_up()


def tasks(manager: Manager, job_id: str, attempt: int) -> int:
    """With how many tasks an attempt runs by its own word; 0 if it has not said so yet."""
    job = manager.client.job(job_id)
    if job["attempt"] < attempt or job["state"] != "running":
        return 0
    said = manager.said(job_id).split()
    return int(said[3]) if len(said) > 3 else 0


def test_elastic_job_makes_room_and_takes_it_back(stretched: Manager) -> None:
    job_id = stretched.train()
    assert eventually(lambda: tasks(stretched, job_id, 1)) == 4
    eventually(lambda: (stretched.client.job(job_id)["progress"] or {}).get("step", 0) > 5)

    other = stretched.submit(
        "while [ ! -e end ]; do sleep 0.05; done; echo $CUDA_VISIBLE_DEVICES", workers=3, resources=NODE
    )
    assert eventually(lambda: tasks(stretched, job_id, 2)) == 1
    shown = stretched.client.job(job_id)
    assert (shown["tasks"], shown["gpus"], shown["state"]) == (1, 1, "running")
    (stretched.folder / "end").touch()
    assert stretched.wait(other)["state"] == "succeeded"
    assert eventually(lambda: tasks(stretched, job_id, 3)) == 4

    assert stretched.said(job_id).splitlines()[0] == "task 0 of 4 from True before 1"
    assert [b"".join(stretched.client.logs(job_id, attempt=each)).decode().split()[5] for each in (1, 2)] == [
        "False",
        "True",
    ]
    assert stretched.client.job(job_id)["state"] == "running"
    stretched.client.act(job_id, "cancel")
    assert stretched.wait(job_id)["state"] == "cancelled"
    eventually(lambda: stretched.task_processes() == [])


def test_resize_goes_on_after_the_server_was_killed(stretched: Manager) -> None:
    job_id = stretched.train()
    assert eventually(lambda: tasks(stretched, job_id, 1)) == 4
    eventually(lambda: (stretched.client.job(job_id)["progress"] or {}).get("step", 0) > 5)
    other = stretched.submit("sleep 1", workers=3, resources=NODE)
    eventually(lambda: stretched.client.job(job_id)["attempt"] == 2, every_s=0.001)
    stretched.kill()
    stretched.start()

    assert stretched.wait(other)["state"] == "succeeded"
    assert eventually(lambda: tasks(stretched, job_id, 3)) == 4
    assert b"".join(stretched.client.logs(job_id, attempt=2)).startswith(b"task 0 of 1 from True before 4")


def test_cancelled_in_the_middle_of_a_resize_with_a_dead_server_leaves_nothing(stretched: Manager) -> None:
    slow = "trap 'sleep 1; exit 0' TERM; echo up; sleep 300 & wait"
    job_id = stretched.submit(slow, elastic={"min": 1, "max": 4}, resources=NODE, checkpoint={"grace": "20s"})
    eventually(lambda: stretched.said(job_id) == "up\n")
    stretched.submit("true", workers=3, resources=NODE)
    eventually(lambda: stretched.client.job(job_id)["attempt"] == 2, every_s=0.001)
    stretched.client.act(job_id, "cancel")
    stretched.kill()
    stretched.start()

    assert stretched.wait(job_id)["state"] == "cancelled"
    eventually(lambda: stretched.task_processes() == [])


def test_tasks_without_gang_start_when_they_can(manager: Manager) -> None:
    blocker = manager.submit("sleep 60", resources={"gpus": 3})
    manager.wait(blocker, "running")
    say = "echo $ROTA_RANK of $ROTA_TASKS"
    ids = manager.client.submit({"run": say, "name": "loose", "workers": 8, "gang": False, "resources": {"gpus": 3}})

    assert len(ids) == 8
    assert sorted(manager.said(each) for each in ids if manager.wait(each)) == [f"{n} of 8\n" for n in range(8)]
    assert manager.state(blocker) == "running"
    after = manager.submit("true", depends_on=["loose"])
    assert manager.wait(after)["state"] == "succeeded"


def test_job_waits_for_all_that_were_submitted_together_under_a_name(manager: Manager) -> None:
    members = manager.client.submit([{"run": "true", "name": "sweep", "array": each} for each in range(3)], held=True)
    after = manager.submit("true", depends_on=["sweep"])
    for each in members[1:]:
        manager.client.act(each, "release")
        manager.wait(each)
    manager.kill()
    manager.start()
    assert manager.client.why(after)["reason"]["code"] == "waits-for-dependency"
    second = manager.submit("true", depends_on=["sweep"])

    manager.client.act(members[0], "release")

    assert [manager.wait(each)["state"] for each in (after, second)] == ["succeeded", "succeeded"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"elastic": {"min": 3, "max": 2}}, "elastic: min is 3 and max is 2"),
        ({"elastic": {"min": 2, "max": 4}, "workers": 1}, "workers is 1; with elastic it must be from 2 to 4"),
        ({"elastic": {"min": 1, "max": 2}, "gang": False}, "keep one of them"),
        ({"gang": False, "completion": {"min_failed": 2}}, "completion needs tasks that start together"),
        ({"elastic": {"min": 1, "max": 2}, "roles": {"a": {"run": "true"}}}, "elastic needs a job of one kind of task"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(manager: Manager, fields: dict[str, object], said: str) -> None:
    with pytest.raises(Refused, match=said):
        manager.client.submit({"run": "true", **fields})
