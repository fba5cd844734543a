"""A manager that is killed while confined tasks start and run: after its restart they are the same, kept apart."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from managers import Manager, eventually
from rota.drivers.local.cgroup import NoCgroups
from rota.drivers.local.cgroup_search import find
from rota.sdk.client import Client
from strangers import Shared, Stranger

pytestmark = pytest.mark.slow
TASKS = 6
KILLED_AFTER_S = (0.03, 0.3)
RUN = "echo $ROTA_RANK >> $ROTA_RUN_DIR/ran; while [ ! -e $ROTA_RUN_DIR/end ]; do sleep 0.1; done"


@pytest.fixture
def alone(users: tuple[str, str]) -> Iterator[Shared]:
    """A manager of its own, which can be killed."""
    folder = Path(tempfile.mkdtemp(prefix="rota-killed-", dir="/var/lib"))
    folder.chmod(0o711)
    options = ("--emulate", "gpu=2/2", "--require-token", "--accounts", "names", "--run-as", "nobody")
    tenants = ("--tenants", ",".join(f"tenant-{name}" for name in users))
    manager = Manager(folder, *options, *tenants)
    try:
        manager.start_guarded()
        strangers = []
        for name in users:
            made = manager.client.post("/tokens", {"name": name, "role": "member", "tenants": [f"tenant-{name}"]})
            client = Client(manager.client.url, made["token"])
            strangers.append(Stranger(name=name, uid=pwd.getpwnam(name).pw_uid, client=client))
        yield Shared(manager=manager, attacker=strangers[0], victim=strangers[1], secrets=folder, device="")
    finally:
        manager.clean_up()
        shutil.rmtree(folder, ignore_errors=True)


def restart(manager: Manager) -> None:
    """Start the manager again on its data; its token stays valid."""
    token = manager.token
    log = manager.folder / "up.log"
    log.unlink()
    (manager.home / "first-token").write_text(token)
    manager.start_guarded()
    (manager.home / "first-token").unlink(missing_ok=True)


def processes(manager: Manager, job_id: str, attempt: int) -> list[int]:
    """The processes in the cgroups of an attempt's tasks."""
    found = find(manager.home)
    assert not isinstance(found, NoCgroups)
    parent = found.parents["memory"]
    folders = parent.glob(f"{job_id}-{attempt}-*")
    return [int(pid) for folder in folders for pid in (folder / "cgroup.procs").read_text().split()]


def mount_namespace(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/mnt")


@pytest.mark.parametrize("after_s", KILLED_AFTER_S)
def test_confined_gang_outlives_the_manager(alone: Shared, after_s: float) -> None:
    manager, victim = alone.manager, alone.victim
    if isinstance(find(manager.home), NoCgroups):
        pytest.skip("no cgroups can be made here")
    job_id = victim.submit(RUN, workers=TASKS, resources={"memory": "64Mi"}, checkpoint={"grace": "1s"})
    time.sleep(after_s)
    manager.kill()
    restart(manager)
    job = manager.wait(job_id, "running")
    ran = alone.folder(job_id) / "ran"
    eventually(lambda: ran.exists() and len(ran.read_text().split()) == TASKS)
    before = sorted(processes(manager, job_id, job["attempt"]))
    manager.kill()
    restart(manager)

    assert manager.wait(job_id, "running")["attempt"] == job["attempt"]
    assert sorted(ran.read_text().split(), key=int) == [str(rank) for rank in range(TASKS)]
    shells = [pid for pid in before if Path(f"/proc/{pid}").exists()]
    assert len(shells) >= TASKS
    for pid in shells:
        assert os.stat(f"/proc/{pid}").st_uid == victim.uid
        assert mount_namespace(pid) != mount_namespace(os.getpid())
    (alone.folder(job_id) / "end").touch()
    manager.wait(job_id, "succeeded")
    assert not processes(manager, job_id, job["attempt"])


def test_confined_gang_is_cancelled_by_the_manager_that_found_it(alone: Shared) -> None:
    manager, victim = alone.manager, alone.victim
    job_id = victim.submit(RUN, workers=TASKS, checkpoint={"grace": "1s"})
    manager.wait(job_id, "running")
    manager.kill()
    restart(manager)
    Client(manager.client.url, victim.client._token).act(job_id, "cancel")

    manager.wait(job_id, "cancelled")
    eventually(lambda: not manager.task_processes())
    assert not [path for path in Path("/dev/shm").glob("rota-*/owner.json") if str(manager.home) in path.read_text()]
