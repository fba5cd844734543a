"""Jobs in containers of a real Docker daemon, where one can be reached, with an image that is built here."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from managers import Manager, eventually
from podman_images import BUSYBOX, IMAGE, write_image
from rota.drivers.local.containers.settings import DOCKER_SOCKET
from rota.sdk.client import Refused

pytestmark = pytest.mark.slow
STUBBORN = "trap '' TERM; echo up; while true; do sleep 0.1; done"


def docker(*words: str) -> str:
    """What the client says."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip()


def ours() -> list[str]:
    """Containers of Rota's that Docker knows, ended or not."""
    return docker("ps", "--all", "--quiet", "--filter", "name=rota-").split()


@pytest.fixture(scope="module", params=["own", "mapped"])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """A manager that runs containers by Docker, as its own user and as another."""
    if (
        shutil.which("docker") is None
        or not os.access(DOCKER_SOCKET, os.W_OK)
        or not docker("version", "--format", "1")
    ):
        pytest.skip(f"no Docker daemon answers at {DOCKER_SOCKET}")
    if not Path(BUSYBOX).exists():
        pytest.skip(f"{BUSYBOX} is not installed (apt-get install busybox-static)")
    folder = tmp_path_factory.mktemp("docker")
    write_image(folder / "image.tar")
    docker("import", str(folder / "image.tar"), IMAGE)
    settings = folder / "rota.yaml"
    parts = {"health": {"checks": []}, "containers": {"runtime": "docker", "volumes": [str(folder)]}}
    settings.write_text(json.dumps(parts))
    options = ("--run-as", "nobody") if request.param == "mapped" else ()
    for above in (folder, *folder.parents):
        if not above.stat().st_mode & 0o001:  # tasks of another user have to pass through
            above.chmod(above.stat().st_mode | 0o011)
    made = Manager(folder, "--emulate", "gpu=4/4", "--config", str(settings), *options)
    made.start()
    try:
        yield made
    finally:
        made.clean_up()


@pytest.fixture
def manager(kept: Manager) -> Iterator[Manager]:
    """The same, without jobs and containers afterwards."""
    yield kept
    kept.calm_down()
    eventually(lambda: not ours())


def up(manager: Manager, run: str, **fields: object) -> str:
    """Submit a job in a container; return it once it says that it is up."""
    job_id = manager.submit(run, image=IMAGE, **fields)
    eventually(lambda: "up" in manager.said(job_id))
    return job_id


def test_task_runs_in_its_image_as_its_user(manager: Manager) -> None:
    run = "cat /etc/whose; id -u; echo $WORDS; echo kept > $ROTA_RUN_DIR/kept; grep CapEff /proc/self/status; exit 3"

    job = manager.wait(manager.submit(run, image=IMAGE, env={"WORDS": "two words"}), "failed")

    uid = 65534 if "--run-as" in manager.options else 0
    said = manager.said(job["id"])
    assert said.split("\n")[:3] == ["of the image", str(uid), "two words"]
    assert "CapEff:\t0000000000000000" in said
    assert job["exit_code"] == 3
    assert (manager.home / "runs" / job["id"] / "shared" / "kept").stat().st_uid == uid


def test_cancelled_container_is_removed(manager: Manager) -> None:
    job_id = up(manager, STUBBORN, checkpoint={"grace": "0.2s"})

    manager.client.act(job_id, "cancel")
    manager.wait(job_id, "cancelled")

    assert not ours()


def test_container_is_removed_though_its_supervisor_was_killed(manager: Manager) -> None:
    job_id = up(manager, STUBBORN, max_restarts=0)
    before = ours()
    state = json.loads((manager.home / "runs" / job_id / "1" / "0" / "state.json").read_text())

    os.kill(state["supervisor"], signal.SIGKILL)

    eventually(lambda: manager.client.job(job_id)["attempt"] == 2)
    eventually(lambda: not set(before) & set(ours()))


def test_job_saves_in_its_grace_and_is_found_by_the_next_manager(manager: Manager) -> None:
    job_id = up(
        manager,
        "trap 'echo saved > $ROTA_RUN_DIR/saved; exit 0' TERM; echo up; while true; do sleep 0.1; done",
        checkpoint={"grace": "30s"},
        resources={"gpus": 4},
    )
    manager.kill()
    manager.start()
    assert manager.state(job_id) == "running"

    manager.wait(manager.submit("true", priority=5, resources={"gpus": 4}), "succeeded")

    assert (manager.home / "runs" / job_id / "shared" / "saved").read_text() == "saved\n"


def test_memory_limit_missing_image_and_command_beside(manager: Manager) -> None:
    fills = "x=0123456789abcdef; while true; do x=$x$x; done"
    filled = manager.wait(manager.submit(fills, image=IMAGE, resources={"memory": "50Mi"}), "failed")
    missing = manager.wait(manager.submit("true", image="localhost/no-such:1"), "failed")
    job_id = up(manager, "echo up; echo mark > /tmp/mark; sleep 600")

    done = manager.rota("exec", job_id, "--", "sh", "-c", "cat /etc/whose /tmp/mark; exit 9")

    assert filled["exit_code"] in (137, 2)
    assert missing["failure"] == "container"
    assert "No such image: localhost/no-such:1" in missing["message"]
    assert (done.returncode, done.stdout) == (9, "of the image\nmark\n")


def test_only_what_an_admin_named_is_mounted_for_other_users(manager: Manager) -> None:
    fields = {"run": "cat /in/rota.yaml > /dev/null; echo read", "image": IMAGE}
    job_id = manager.client.submit({**fields, "volumes": [f"{manager.folder}:/in:ro"]})[0]
    manager.wait(job_id)

    assert "read" in manager.said(job_id)
    with pytest.raises(Refused, match="may not be mounted here"):
        manager.client.submit({**fields, "volumes": ["/etc:/in"]})
    if "--run-as" in manager.options:
        with pytest.raises(Refused, match="may not be mounted here"):
            manager.client.submit({**fields, "volumes": [f"{manager.home}:/in"]})
