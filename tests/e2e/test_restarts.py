"""What outlives a manager: tasks, their ends, orders to stop, and submissions that are sent again."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from managers import ROTA, Manager, eventually
from rota.sdk.client import Refused

pytestmark = pytest.mark.slow


def test_second_manager_of_a_folder_is_refused(manager: Manager) -> None:
    told = manager.rota("up", "--port", "0")

    assert told.returncode == 1
    assert "a manager runs already" in told.stderr


def test_running_tasks_outlive_the_server_and_are_found_again(manager: Manager) -> None:
    job_id = manager.submit("echo $$; while [ ! -e end ]; do sleep 0.05; done; echo done", workers=2)
    manager.wait(job_id, "running")
    manager.kill()
    manager.start()
    (manager.folder / "end").touch()

    job = manager.wait(job_id)

    assert (job["state"], job["attempt"]) == ("succeeded", 1)
    assert manager.said(job_id).count("done") == 1


def test_who_follows_is_told_that_the_job_goes_on_without_the_server(manager: Manager) -> None:
    job_id = manager.submit("echo up; sleep 600")
    eventually(lambda: manager.said(job_id) == "up\n")
    follower = subprocess.Popen(
        [*ROTA, "logs", "-f", job_id], env=manager.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert follower.stdout is not None
    assert follower.stdout.readline() == "up\n"
    manager.kill()
    _, said = follower.communicate(timeout=30)

    assert follower.returncode == 1
    assert f"job {job_id} goes on; come back with `rota logs -f {job_id}` when it is there again" in said
    manager.start()


def test_task_that_ends_while_the_server_is_away_is_not_lost(manager: Manager) -> None:
    job_id = manager.submit("while [ ! -e end ]; do sleep 0.05; done; exit 9")
    manager.wait(job_id, "running")
    manager.kill()
    (manager.folder / "end").touch()
    eventually(lambda: manager.task_processes() == [])
    manager.start()

    job = manager.wait(job_id)

    assert (job["state"], job["exit_code"]) == ("failed", 9)


def test_cancelled_job_whose_tasks_end_while_the_server_is_away_is_cancelled(manager: Manager) -> None:
    job_id = manager.submit("echo up; trap 'sleep 1; exit 7' TERM; sleep 600 & wait", checkpoint={"grace": "20s"})
    eventually(lambda: manager.said(job_id))
    manager.client.act(job_id, "cancel")
    manager.kill()
    eventually(lambda: manager.task_processes() == [])
    manager.start()

    assert manager.wait(job_id, "cancelled")["state"] == "cancelled"


def test_killed_supervisor_does_not_lose_the_job(manager: Manager) -> None:
    job_id = manager.submit("echo up; [ $ROTA_ATTEMPT = 2 ] || sleep 600")
    eventually(lambda: manager.said(job_id) == "up\n")
    state = json.loads((manager.home / "runs" / job_id / "1" / "0" / "state.json").read_text())

    os.kill(state["supervisor"], signal.SIGKILL)

    job = manager.wait(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 2)
    assert not os.path.exists(f"/proc/{state['pid']}")


def test_repeated_submission_with_a_key_is_one_job(manager: Manager) -> None:
    first = manager.client.submit({"run": "true"}, key="k1")
    manager.kill()
    manager.start()

    assert manager.client.submit({"run": "true"}, key="k1") == first
    with pytest.raises(Refused, match="used for another request"):
        manager.client.submit({"run": "false"}, key="k1")


def test_at_most_so_many_jobs_of_an_array_run_before_and_after_a_restart(manager: Manager) -> None:
    wait = "while [ ! -e end-$ROTA_ARRAY_INDEX ]; do sleep 0.05; done"
    told = manager.rota("submit", "--array", "0-4%2", "--", "sh", "-c", wait)
    ids = told.stdout.split()
    assert len(ids) == 5, told.stderr

    def states() -> list[str]:
        return [manager.state(job_id) for job_id in ids]

    eventually(lambda: states() == ["running"] * 2 + ["waiting"] * 3)
    assert manager.client.why(ids[2])["reason"]["code"] == "array-limit"
    (manager.folder / "end-1").touch()
    eventually(lambda: states() == ["running", "succeeded", "running", "waiting", "waiting"])

    manager.kill()
    manager.start()

    assert manager.client.why(ids[3])["reason"]["sentence"].startswith("at most 2 jobs of its array may run at once")
    (manager.folder / "end-2").touch()
    eventually(lambda: states() == ["running", "succeeded", "succeeded", "running", "waiting"])
    (manager.folder / "end-0").touch()
    eventually(lambda: states() == ["succeeded", "succeeded", "succeeded", "running", "running"])
    for number in (3, 4):
        (manager.folder / f"end-{number}").touch()
    eventually(lambda: set(states()) == {"succeeded"})
    assert manager.client.job(ids[4])["spec"]["array_limit"] == 2
