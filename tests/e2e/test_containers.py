"""Jobs in containers of the local driver, run by real Podman with an image that is built here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from managers import ROTA, Manager, eventually
from podman_images import IMAGE, OWN_MOUNTS, image_store
from rota.drivers.local.task_runner.processes import start_time
from rota.sdk.client import Refused
from terminals import UserTerminal

STUBBORN = "trap '' TERM; echo up; while true; do sleep 0.1; done"
SAVES = "trap 'echo saved >> $ROTA_RUN_DIR/saved; exit 0' TERM; echo up; while true; do sleep 0.1; done"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """A manager that runs containers as its own user, with four emulated devices."""
    folder = tmp_path_factory.mktemp("containers")
    settings = folder / "rota.yaml"
    parts = {"health": {"checks": []}, "containers": {"runtime": "podman", "images": [str(image_store())]}}
    settings.write_text(json.dumps(parts))
    made = Manager(folder, "--emulate", "gpu=4/4", "--config", str(settings))
    made.prelude = OWN_MOUNTS
    made.start()
    try:
        yield made
    finally:
        made.clean_up()


@pytest.fixture
def manager(kept: Manager) -> Iterator[Manager]:
    """The same, without jobs and without anything of their containers afterwards."""
    yield kept
    kept.calm_down()
    eventually(lambda: not list((kept.home / "runs").glob("*/container-*")))
    assert not runtimes_of(kept)


def runtimes_of(manager: Manager) -> list[int]:
    """Processes of the runtime that serve a manager's containers."""
    mark = str(manager.home / "runs").encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if mark in words and (b"podman" in words or b"conmon" in words):
            found.append(int(path.parent.name))
    return found


def first_process(manager: Manager, job_id: str, attempt: int = 1, rank: int = 0) -> int:
    """The first process of a task's container."""
    return int((manager.home / "runs" / job_id / f"container-{attempt}-{rank}" / "pid").read_text())


def up(manager: Manager, run: str, **fields: object) -> str:
    """Submit a job in a container; return it once it says that it is up."""
    job_id = manager.submit(run, image=IMAGE, **fields)
    eventually(lambda: "up" in manager.said(job_id))
    return job_id


def test_task_sees_its_image_and_its_folders_and_nothing_else(manager: Manager) -> None:
    data = manager.folder / "data-set"
    data.mkdir()
    (data / "part").write_text("data\n")
    (manager.folder / "code").write_text("code\n")
    manager.client.put_data_set("texts", {"path": str(data)})
    looks = (
        "cat /etc/whose code $ROTA_DATA_TEXTS/part /mnt/in/part",
        "echo x > $ROTA_DATA_TEXTS/part; echo x > /mnt/in/part",
        "echo made > /mnt/out/made; echo kept > $ROTA_RUN_DIR/kept; echo here > here",
        "ls / | tr '\\n' ' '; ls /root /home; test -e /etc/shadow || echo no shadow",
        "echo $PATH; echo $HOME; echo $WORDS; pwd; exit 3",
    )

    job_id = manager.submit(
        "; ".join(looks),
        image=IMAGE,
        data=["texts"],
        volumes=[f"{data}:/mnt/in:ro", f"{manager.folder}:/mnt/out"],
        env={"WORDS": "of  two 'quotes' \"and\" #spaces=x"},
    )
    job = manager.wait(job_id, "failed")

    said = manager.said(job_id)
    run_folder = manager.home / "runs" / job_id / "shared"
    assert job["exit_code"] == 3
    assert said.startswith("of the image\ncode\ndata\ndata\n")
    assert said.count("Read-only file system") == 2
    assert (data / "part").read_text() == "data\n"
    assert [(manager.folder / name).read_text() for name in ("made", "here")] == ["made\n", "here\n"]
    assert (run_folder / "kept").read_text() == "kept\n"
    assert "no shadow" in said
    assert said.splitlines()[-4:] == [
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        str(run_folder),
        "of two 'quotes' \"and\" #spaces=x",
        str(manager.folder),
    ]


def test_secret_is_on_no_command_line_and_leaves_the_disk_with_its_container(manager: Manager) -> None:
    job_id = up(manager, "echo up; sleep 600", env={"KEY": {"secret": "hunter2-in-a-box"}})

    inside = Path(f"/proc/{first_process(manager, job_id)}/environ").read_bytes()
    lines = b"".join(
        path.read_bytes() for pid in runtimes_of(manager) for path in (Path(f"/proc/{pid}/cmdline"),) if path.exists()
    )
    files = [path for path in (manager.home / "runs" / job_id).rglob("*") if path.is_file() and not path.is_symlink()]

    assert b"hunter2-in-a-box" in inside
    assert lines
    assert b"hunter2" not in lines
    own = manager.home / "runs" / job_id / "container-1-0"  # where the runtime has it while the container runs
    assert own.stat().st_mode & 0o777 == 0o700
    assert [path for path in files if b"hunter2" in path.read_bytes() and not path.is_relative_to(own)] == []


def test_container_is_in_the_cgroup_of_its_task(manager: Manager) -> None:
    job_id = up(manager, "echo up; sleep 600")
    state = json.loads((manager.home / "runs" / job_id / "1" / "0" / "state.json").read_text())

    first = first_process(manager, job_id)

    assert Path(f"/proc/{first}/cgroup").read_text() == Path(f"/proc/{state['pid']}/cgroup").read_text()
    limits = Path(f"/proc/{first}/status").read_text()
    assert "NoNewPrivs:\t1" in limits
    assert "CapEff:\t0000000000000000" in limits
    assert "Seccomp:\t2" in limits


def test_memory_limit_ends_a_container(manager: Manager) -> None:
    fills = "x=0123456789abcdef; while true; do x=$x$x; done"

    job = manager.wait(manager.submit(fills, image=IMAGE, resources={"memory": "150Mi"}), "failed")

    assert job["message"].startswith("out of memory: it used more than it asked for")


def test_missing_image_is_one_clear_reason(manager: Manager) -> None:
    image = "localhost/no-such:1"
    job = manager.wait(manager.submit("true", image=image, max_restarts=3), "failed")

    assert (job["failure"], job["attempt"], job["exit_code"]) == ("container", 1, 125)
    assert job["message"] == f"its container could not be started: {image}: image not known (permanent)"


def test_missing_command_and_missing_volume_are_named(manager: Manager) -> None:
    command = manager.wait(manager.client.submit({"run": ["no-such"], "image": IMAGE})[0], "failed")
    volume = manager.wait(manager.submit("true", image=IMAGE, volumes=["/no/such:/data"]), "failed")

    assert (command["failure"], command["message"]) == ("command", "the command was not found (permanent)")
    assert (
        volume["message"] == "it could not be started: /no/such can't be mounted: No such file or directory (permanent)"
    )


def test_job_saves_when_it_is_stopped_for_another(manager: Manager) -> None:
    job_id = up(manager, SAVES, checkpoint={"grace": "30s"}, resources={"gpus": 4})

    urgent = manager.submit("true", priority=5, resources={"gpus": 4})
    manager.wait(urgent, "succeeded")
    eventually(lambda: manager.client.job(job_id)["attempt"] == 2 and manager.said(job_id))

    assert (manager.home / "runs" / job_id / "shared" / "saved").read_text() == "saved\n"


def test_cancelled_container_is_gone_though_it_does_not_listen(manager: Manager) -> None:
    job_id = up(manager, STUBBORN, checkpoint={"grace": "0.2s"})
    first = first_process(manager, job_id)

    manager.client.act(job_id, "cancel")
    manager.wait(job_id, "cancelled")

    assert not start_time(first)
    eventually(lambda: not runtimes_of(manager) and not list((manager.home / "runs" / job_id).glob("container-*")))


def test_killed_manager_finds_its_containers_again(manager: Manager) -> None:
    release = manager.folder / "release"
    run = f"echo up; echo began >> $ROTA_RUN_DIR/began; until test -e {release}; do sleep 0.05; done; echo done; exit 4"
    job_id = up(manager, run)
    first = first_process(manager, job_id)

    manager.kill()
    assert start_time(first)
    manager.start()
    assert first_process(manager, job_id) == first
    assert manager.state(job_id) == "running"
    release.touch()
    job = manager.wait(job_id, "failed")

    assert (job["exit_code"], job["attempt"], manager.said(job_id)) == (4, 1, "up\ndone\n")
    assert (manager.home / "runs" / job_id / "shared" / "began").read_text() == "began\n"


def test_manager_killed_during_the_start_starts_a_container_once(manager: Manager) -> None:
    ids = [manager.submit("echo began >> $ROTA_RUN_DIR/began; sleep 1", image=IMAGE) for _ in range(2)]

    manager.kill()
    manager.start()

    for job_id in ids:
        assert manager.wait(job_id)["state"] == "succeeded"
        assert (manager.home / "runs" / job_id / "shared" / "began").read_text() == "began\n"


def test_container_ends_with_its_supervisor(manager: Manager) -> None:
    job_id = up(manager, "echo up; sleep 600")
    first = first_process(manager, job_id)
    state = json.loads((manager.home / "runs" / job_id / "1" / "0" / "state.json").read_text())

    os.kill(state["supervisor"], signal.SIGKILL)

    eventually(lambda: not start_time(first))
    eventually(lambda: manager.client.job(job_id)["attempt"] == 2)


def test_gang_in_containers_meets_at_its_run_folder(manager: Manager) -> None:
    run = "cd $ROTA_RUN_DIR; touch $RANK; until test -e 0 -a -e 1; do sleep 0.05; done; echo $RANK"

    job_id = manager.submit(run, image=IMAGE, workers=2, resources={"gpus": 1})
    job = manager.wait(job_id)

    assert job["state"] == "succeeded"
    assert [manager.said(job_id, task) for task in (0, 1)] == ["0\n", "1\n"]


def test_command_beside_a_task_runs_in_its_container(manager: Manager) -> None:
    job_id = up(manager, "echo up; echo mark > /tmp/mark; sleep 600", env={"WORDS": "two words"})

    done = manager.rota("exec", job_id, "--", "sh", "-c", "cat /etc/whose /tmp/mark; echo $WORDS; pwd; exit 9")

    assert (done.returncode, done.stdout) == (9, f"of the image\nmark\ntwo words\n{manager.folder}\n")


def test_shell_in_a_container_is_at_the_users_terminal(manager: Manager) -> None:
    words = ("run", "--image", IMAGE, "--volume", f"{manager.folder}:/mine:ro", "-e", "PS1=ready> ", "--", "sh")
    with closing(UserTerminal(words, manager.env, manager.folder)) as user:
        user.see(b"ready> ")
        user.type(b"cat /etc/whose; test -e /mine/rota.yaml && echo a$((1+1))b; stty size\n")
        user.see(b"of the image")
        user.see(b"a2b")
        user.see(b"24 80")
        user.resize(40, 100)
        user.type(b"until test \"$(stty size)\" = '40 100'; do sleep 0.1; done; echo c$((1+2))d\n")
        user.see(b"c3d")
        user.type(b"sh -c 'echo go$((1))ne; exec sleep 1000'\n")
        user.see(b"go1ne")
        user.type(b"\x03")  # Ctrl-C: the program's
        user.see(b"ready> ")
        user.type(b"exit 9\n")

        assert user.ends() == 9


def test_input_and_output_of_a_container_are_pipes(manager: Manager) -> None:
    sent = os.urandom(200_000)

    done = subprocess.run(
        [*ROTA, "run", "-T", "--image", IMAGE, "--", "sh", "-c", "cat; echo error >&2; exit 5"],
        input=sent,
        capture_output=True,
        env=manager.env,
        cwd=manager.folder,
    )

    assert (done.returncode, done.stdout) == (5, sent)
    assert b"error" in done.stderr


def test_job_that_asks_for_what_is_not_to_be_had_is_refused(manager: Manager) -> None:
    for fields, why in (
        ({"image": "--privileged"}, "image is '--privileged'; write it like"),
        ({"image": IMAGE, "volumes": ["data:/data"]}, r"volumes\[0\] is 'data:/data'; 'data' must be an absolute path"),
        ({"image": IMAGE, "volumes": ["/a:/b", "/c:/b"]}, r"volumes\[1\] is mounted at /b, as another one is"),
        ({"image": IMAGE, "env": {"A": "two\nlines"}}, "env: A has a line break"),
        ({"image": "/images/train.sif"}, "a file of Apptainer's, and podman runs images here"),
    ):
        with pytest.raises(Refused, match=why):
            manager.client.submit({"run": "true", **fields})
