"""One machine's manager from the outside: real processes, a real database, real HTTP."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from managers import Manager, eventually
from rota.sdk.client import Refused

pytestmark = [pytest.mark.slow, pytest.mark.executable]


def test_command_becomes_a_job_and_says_what_it_says(manager: Manager) -> None:
    told = manager.rota("submit", "--name", "hello", "--gpus", "1", "--", "echo", "hello there")
    job_id = told.stdout.strip()

    job = manager.wait(job_id)

    assert (told.returncode, told.stderr) == (0, "")
    assert (job["state"], job["exit_code"], job["name"]) == ("succeeded", 0, "hello")
    assert manager.rota("logs", job_id).stdout == "hello there\n"
    listed = json.loads(manager.rota("ps", "--all", "-o", "json").stdout)
    assert [(each["id"], each["state"], each["reason"]) for each in listed] == [(job_id, "succeeded", None)]
    assert manager.rota("ps", "-o", "json").stdout.strip() == "[]"


def test_several_files_are_submitted_all_or_none(shared: Manager) -> None:
    (shared.folder / "first.yaml").write_text("name: first\nrun: 'true'\n")
    (shared.folder / "second.yaml").write_text("name: second\nrun: 'true'\ndepends_on: []\n")
    (shared.folder / "wrong.yaml").write_text("name: wrong\nrun: 'true'\nresources: {gpus: automatic}\n")

    refused = shared.rota("submit", "first.yaml", "wrong.yaml")
    mixed = shared.rota("submit", "first.yaml", "words")
    ids = shared.rota("submit", "first.yaml", "second.yaml", "--held", "--tenant", "two").stdout.split()

    assert (refused.returncode, mixed.returncode) == (2, 2)
    assert "wrong.yaml: resources.gpus: not a number of GPUs: 'automatic'" in refused.stderr
    assert "words is not a job file, unlike first.yaml; give only files, or -- and a command" in mixed.stderr
    assert [shared.client.job(job_id)["name"] for job_id in ids] == ["first", "second"]
    assert [job["id"] for job in shared.client.jobs(tenant="two")] == ids[::-1]
    for job_id in ids:
        shared.client.act(job_id, "cancel")


@pytest.mark.parametrize(
    ("run", "status", "said"),
    [("echo ok", 0, ""), ("exit 7", 100, "exit code 7"), ("kill -TERM $$", 100, "ended by SIGTERM")],
)
def test_following_ends_as_the_job_does(shared: Manager, run: str, status: int, said: str) -> None:
    told = shared.rota("submit", "--wait", "--", "sh", "-c", run)

    assert told.returncode == status
    assert said in told.stderr


def test_following_says_nothing_twice_when_the_oldest_output_is_gone(shared: Manager) -> None:
    job_id = shared.submit("while [ ! -e followed ]; do sleep 0.05; done")
    shared.wait(job_id, "running")
    folder = shared.home / "runs" / job_id / "1" / "0"
    (folder / "output-000000000001000.log").write_bytes(b"late\n")
    (folder / "output-000000000000000.log").unlink(missing_ok=True)

    said = []
    for piece in shared.client.logs(job_id, follow=True):
        said.append(piece)
        (shared.folder / "followed").touch()

    notice, _, rest = b"".join(said).partition(b"\n")
    assert notice.startswith(b"[rota: 1000 bytes of output were dropped here")
    assert rest == b"late\n"
    with pytest.raises(Refused, match="no attempt 5; its latest is 1"):
        list(shared.client.logs(job_id, attempt=5))


def test_gang_gets_ranks_devices_and_a_meeting_point(shared: Manager) -> None:
    show = "echo $RANK/$WORLD_SIZE $CUDA_VISIBLE_DEVICES $ROTA_ROLE $MASTER_ADDR:${MASTER_PORT:+port}"
    job_id = shared.submit(show, workers=2, resources={"gpus": 2})
    shared.wait(job_id)

    assert shared.said(job_id, 0) == "0/2 0,1 worker 127.0.0.1:port\n"
    assert shared.said(job_id, 1) == "1/2 2,3 worker 127.0.0.1:port\n"


def test_waiting_job_says_why_and_starts_when_its_turn_comes(shared: Manager) -> None:
    first = shared.submit("sleep 600", workers=2, resources={"gpus": 4})
    shared.wait(first, "running")
    second = shared.submit("true", resources={"gpus": 4})

    told = shared.rota("why", second)

    assert told.stdout.startswith(
        f"job {second} is waiting: needs 4 devices, 0 devices available now; starts when other jobs end\n"
        "expected start: "
    )
    shared.client.act(first, "cancel")
    assert shared.wait(first)["state"] == "cancelled"
    assert shared.wait(second)["state"] == "succeeded"


def test_expected_start_follows_from_what_is_known(shared: Manager) -> None:
    first = shared.submit("sleep 600", workers=2, resources={"gpus": 4}, estimate="100s")
    shared.wait(first, "running")
    second = shared.submit("sleep 600", workers=2, resources={"gpus": 4}, estimate="100s")
    third = shared.submit("true", resources={"gpus": 1}, estimate="1s")
    fourth = shared.submit("true", resources={"gpus": 1}, estimate="1s")

    told = shared.client.why(third)["expected"]
    tried = shared.rota("submit", "--dry-run", "--gpus", "8", "--", "true")

    seconds = (datetime.fromisoformat(told["usual"]) - datetime.now(UTC)).total_seconds()
    assert 150 < seconds < 260
    assert (told["position"], told["known"]) == (2, True)
    assert shared.client.why(second)["expected"]["position"] == 1
    assert shared.client.why(fourth)["expected"]["position"] == 3  # though it starts together with the third
    assert told["earliest"] < told["usual"] < told["latest"]
    assert (tried.returncode, tried.stdout.splitlines()[0]) == (
        0,
        "no forecast: it is not expected to start within a month, as things are",
    )
    assert "it needs 8 devices; the cluster can never offer that" in tried.stdout
    assert len(list(shared.client.jobs())) == 4


def test_cancelled_task_takes_its_children_with_it(shared: Manager) -> None:
    job_id = shared.submit(
        "sleep 300 & (setsid sleep 300 &) ; trap '' TERM; echo up; sleep 300", checkpoint={"grace": 0.2}
    )
    eventually(lambda: shared.said(job_id) == "up\n")
    supervisors = shared.supervisors()
    assert supervisors
    assert set(supervisors) < set(shared.task_processes())

    shared.client.act(job_id, "cancel")

    assert shared.wait(job_id)["state"] == "cancelled"
    eventually(lambda: shared.task_processes() == [])
    assert shared.supervisors() == []


def test_time_limit_ends_a_job(shared: Manager) -> None:
    job = shared.wait(shared.submit("sleep 600", time_limit="300ms"))

    assert (job["state"], job["message"]) == ("failed", "it reached its time limit")


def test_urgent_job_preempts_and_the_other_resumes_from_its_checkpoint(shared: Manager) -> None:
    script = (
        "n=$(cat ckpt 2>/dev/null || echo 0); echo from $n; trap 'echo 7 > ckpt; exit 0' TERM; "
        "[ $n = 7 ] || sleep 60 & wait"
    )
    job_id = shared.submit(script, priority=-1, workers=1, resources={"gpus": 4}, checkpoint={"path": "ckpt"})
    eventually(lambda: shared.said(job_id) == "from 0\n")
    both = shared.submit("sleep 0.5", priority=5, workers=2, resources={"gpus": 4})

    shared.wait(job_id, "suspended")
    shared.wait(both)

    assert shared.wait(job_id)["state"] == "succeeded"
    assert shared.said(job_id) == "from 7\n"


def test_what_a_shell_runs_has_the_grace_too(manager: Manager) -> None:
    """The shell dies of the signal at once; the program that it runs still saves."""
    (manager.folder / "save.py").write_text(
        "import pathlib, signal, sys, time\n"
        "def save(*_):\n"
        "    time.sleep(0.5)\n"
        "    pathlib.Path('saved').write_text('yes')\n"
        "    print('saved', flush=True)\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    job_id = manager.submit("python3 save.py; true", checkpoint={"grace": "20s"})
    eventually(lambda: manager.said(job_id) == "up\n")
    manager.client.act(job_id, "cancel")

    assert manager.wait(job_id)["state"] == "cancelled"
    assert manager.said(job_id) == "up\nsaved\n"
    assert (manager.folder / "saved").read_text() == "yes"


def test_failure_of_one_task_ends_its_gang(shared: Manager) -> None:
    job_id = shared.submit('[ "$RANK" = 1 ] && exit 4; sleep 600', workers=3, resources={"gpus": 1})

    job = shared.wait(job_id)

    assert (job["state"], job["exit_code"], job["message"]) == ("failed", 4, "task 1: exit code 4")
    eventually(lambda: shared.task_processes() == [])


def test_roles_complete_as_they_say(shared: Manager) -> None:
    job = {
        "roles": {
            "worker": {"count": 2, "gpus": 1, "run": "true", "completion": {"min_succeeded": 2}},
            "ps": {"count": 1, "run": "sleep 600"},
        }
    }

    assert shared.wait(shared.client.submit(job)[0])["state"] == "succeeded"


def test_job_is_tried_again_as_often_as_it_says(shared: Manager) -> None:
    job_id = shared.submit("echo try $ROTA_ATTEMPT; [ $ROTA_ATTEMPT = 2 ]", max_restarts=1)

    job = shared.wait(job_id)

    assert (job["state"], job["attempt"]) == ("succeeded", 2)


def test_permanent_failure_is_not_tried_again(shared: Manager) -> None:
    job = shared.wait(shared.submit("echo 'ModuleNotFoundError: no torch'; exit 1", max_restarts=5))

    assert (job["state"], job["attempt"], job["message"]) == ("failed", 1, "import error (permanent)")


def test_missing_command_is_told_in_the_log(shared: Manager) -> None:
    job_id = shared.client.submit({"run": ["no-such-program"]})[0]

    assert shared.wait(job_id)["message"] == "it could not be started: the command was not found (permanent)"
    assert "can't run 'no-such-program'" in shared.said(job_id)


def test_dependent_job_waits_and_follows_its_cause(shared: Manager) -> None:
    first = shared.submit("while [ ! -e prepared ]; do sleep 0.05; done", name="prepare")
    second = shared.submit("true", depends_on=["prepare"])
    third = shared.submit("exit 1", depends_on=[first])
    fourth = shared.submit("true", depends_on=[third])

    assert shared.client.why(second)["reason"]["code"] == "waits-for-dependency"
    fifth = shared.submit("true", depends_on=[fourth])
    (shared.folder / "prepared").touch()
    assert [shared.wait(each)["state"] for each in (second, third, fourth)] == ["succeeded", "failed", "cancelled"]
    assert shared.wait(fourth)["message"] == f"job {third}, which it depends on, failed"
    assert shared.wait(fifth)["message"] == f"job {fourth}, which it depends on, was cancelled"


def test_held_job_waits_for_its_release(shared: Manager) -> None:
    job_id = shared.client.submit({"run": "true"}, held=True)[0]
    assert shared.state(job_id) == "held"

    shared.client.act(job_id, "release")

    assert shared.wait(job_id)["state"] == "succeeded"
    with pytest.raises(Refused, match="has ended already"):
        shared.client.act(job_id, "hold")


def test_drained_node_takes_nothing_new_even_after_a_restart(manager: Manager) -> None:
    manager.client.drain("n1")
    manager.kill()
    manager.start()

    job_id = manager.submit("echo $ROTA_NODE", resources={"gpus": 1})
    manager.wait(job_id)

    assert manager.said(job_id) == "n2\n"
    manager.client.drain("n1", drained=False)
    assert {node["state"] for node in manager.client.nodes()} == {"up"}


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("image", "x", "image can't be honoured here: containers are off in the manager's settings; leave it out"),
        ("volumes", ["/a:/b"], "volumes are mounted in containers, and this job has no image"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(shared: Manager, field: str, value: object, why: str) -> None:
    with pytest.raises(Refused, match=why):
        shared.client.submit({"run": "true", field: value})


@pytest.mark.attack("looks for a secret in the API and the journal", stopped_by="secrets are shown as ***")
def test_secret_reaches_the_task_and_nobody_else(shared: Manager) -> None:
    job_id = shared.submit("test ${#KEY} = 7", env={"KEY": {"secret": "hunter2"}})

    assert shared.wait(job_id)["state"] == "succeeded"
    assert "hunter2" not in json.dumps(shared.client.job(job_id))
    assert b"hunter2" not in b"".join(shared.client.journal())
    assert shared.client.job(job_id)["spec"]["env"] == {"KEY": {"secret": "***"}}


def test_openpai_job_file_runs_as_it_is(shared: Manager) -> None:
    (shared.folder / "pai.yaml").write_text(
        """
protocolVersion: 2
name: pai
type: job
prerequisites: [{type: dockerimage, name: image, uri: example/train}]
secrets: {key: hunter2}
taskRoles:
  worker:
    instances: 2
    dockerImage: image
    resourcePerInstance: {gpu: 1, cpu: 1, memoryMB: 100}
    commands: ['echo $PAI_TASK_INDEX', 'K="<% $secrets.key %>"; test ${#K} = 7']
"""
    )
    refused = shared.rota("submit", "pai.yaml")
    tried = shared.rota("submit", "pai.yaml", "--no-image", "--dry-run")
    job_id = shared.rota("submit", "pai.yaml", "--no-image").stdout.strip()

    assert (refused.returncode, "image can't be honoured here" in refused.stderr) == (2, True)
    assert tried.stdout.startswith("expected start: ")
    assert shared.wait(job_id)["state"] == "succeeded"
    assert [shared.said(job_id, task) for task in (0, 1)] == ["0\n", "1\n"]
    assert "hunter2" not in str(shared.client.job(job_id))


def test_commands_reach_several_jobs_and_the_end_of_a_log(manager: Manager) -> None:
    ids = manager.rota("submit", "--held", "--array", "0-2", "--name", "sweep", "--", "seq", "5").stdout.split()
    told = manager.rota("release", ids[0], "99", ids[1])
    for each in ids[:2]:
        manager.wait(each)

    assert (told.returncode, told.stderr) == (2, "error: there is no job '99'\n")
    assert manager.rota("logs", ids[0], "--tail", "2").stdout == "4\n5\n"
    assert manager.rota("logs", "-f", ids[0], "--tail", "1").stdout == "5\n"
    assert manager.rota("cancel", "--name", "sweep").returncode == 0
    assert manager.state(ids[2]) == "cancelled"
    wide = manager.rota("ps", "--all", "-o", "wide").stdout.splitlines()
    assert " ".join(wide[0].split()) == (
        "id name tenant state gpus tasks priority owner attempt submitted started ended exit failure reason"
    )
    assert manager.rota("cancel", "--name", "sweep").stderr == "error: there is no unfinished job 'sweep'\n"
