"""Containers as a supervisor's process starts them, by real Podman: rootless, and with a device by its CDI name."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podman_images import IMAGE, OWN_MOUNTS, image_store, write_image
from rota.drivers.local.containers.gpu_names import GivenGpu, cdi_names
from rota.drivers.local.containers.plan import ContainerPlan, ContainerUser
from rota.drivers.local.containers.podman import podman_command
from rota.drivers.local.containers.settings import Containers, RuntimeName
from rota.drivers.local.containers.short_folder import remove_short
from rota.drivers.local.containers.volumes import MountedVolume
from rota.drivers.local.task_runner.containers.become import become_runtime

CDI = Path("/etc/cdi")
NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can reach."""
    image_store()
    made = Path(f"/var/lib/rota-podman-test-{os.getpid()}")
    made.mkdir(mode=0o755)
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def unix_user() -> Iterator[pwd.struct_passwd]:
    """A Unix user without numbers of other users, which only further programs could give its containers."""
    if os.geteuid() != 0 or shutil.which("useradd") is None:
        pytest.skip("only root can make Unix users, with useradd")
    name = f"rota-p{os.getpid() % 100000}"
    none = ("-K", "SUB_UID_COUNT=0", "-K", "SUB_GID_COUNT=0")
    subprocess.run(["useradd", "--create-home", *none, name], check=True, capture_output=True)
    try:
        yield pwd.getpwnam(name)
    finally:
        _end_all_of(pwd.getpwnam(name).pw_uid)
        subprocess.run(["userdel", "--remove", name], capture_output=True, check=False)


def _end_all_of(uid: int) -> None:
    """End what Podman leaves of a user's containers outside of tasks, and remove its folders."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if path.stat().st_uid == uid:
                os.kill(int(path.name), signal.SIGKILL)
    for folder in ("rota-containers", "podman-run", "containers-user"):
        shutil.rmtree(f"/tmp/{folder}-{uid}", ignore_errors=True)


def said_by(folder: Path, work: Callable[[], None]) -> str:
    """What a process with mounts of its own says that turns into a runtime by `work`; it must succeed."""
    output = folder / "output"
    child = os.fork()
    if child == 0:
        try:
            said = os.open(output, os.O_WRONLY | os.O_CREAT)
            os.dup2(said, 1)
            os.dup2(said, 2)
            exec(OWN_MOUNTS, {})
            work()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(99)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, output.read_text()
    return output.read_text()


def become(
    run: str, own: Path, user: ContainerUser | None, *, store: Path | None = None, gpus: tuple[str, ...] = ()
) -> None:
    """Turn into the runtime of a task that works in the parent of its container's own folder."""
    own.mkdir(mode=0o700)
    work = str(own.parent)
    images = () if store is None else (store,)
    plan = ContainerPlan(
        containers=Containers(runtime=RuntimeName.PODMAN, program="/usr/bin/podman", why="", images=images),
        name=f"rota-test-{os.getpid()}",
        image=IMAGE,
        workdir=work,
        folder=own,
        user=user,
        manager_uid=os.geteuid(),
        interactive=False,
        tty=False,
        gpus=gpus,
        limits=(("nofile", 256, 256), ("nproc", 1000, 1000)),
        cpu_milli=0,
        memory_bytes=0,
        processes=0,
        refuses_calls=False,
        implied=((MountedVolume(source=work, target=work, read_only=False), "user-if-there"),),
        volumes=(),
    )
    order: dict[str, object] = {
        "argv": ["sh", "-c", run],
        "env": {"WORDS": "two words", "ROTA_TASK_TOKEN": "t"},
        "workdir": work,
        "container": podman_command(plan).order(plan),
    }
    if user is not None:
        order |= {"uid": user.uid, "gid": user.gid, "groups": list(user.groups)}
    become_runtime(order, beside=False)


def test_rootless_container_is_its_users(folder: Path, unix_user: pwd.struct_passwd) -> None:
    archive, mine = folder / "image.tar", folder / "mine"
    write_image(archive)
    mine.mkdir()
    os.chown(mine, unix_user.pw_uid, unix_user.pw_gid)
    run = "cat /etc/whose; echo $WORDS; touch made; grep -E '^(CapEff|NoNew)' /proc/self/status; cat /proc/self/uid_map"

    def work() -> None:
        os.setgroups([])
        os.setgid(unix_user.pw_gid)
        os.setuid(unix_user.pw_uid)
        os.environ.clear()
        os.environ |= {"HOME": unix_user.pw_dir, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        imports = ("podman", "--cgroup-manager", "cgroupfs", "import", str(archive), IMAGE)
        subprocess.run(imports, check=True, capture_output=True)
        become(run, mine / "own", None)

    said = said_by(folder, work).split()

    assert said[:8] == ["of", "the", "image", "two", "words", "CapEff:", "0000000000000000", "NoNewPrivs:"]
    assert said[-3:] == ["0", str(unix_user.pw_uid), "1"]  # its root is the user, and nothing else
    assert (mine / "made").stat().st_uid == unix_user.pw_uid


def test_device_is_handed_over_by_its_name_and_no_other(folder: Path) -> None:
    devices = [
        {
            "name": name,
            "containerEdits": {
                "env": [f"GIVEN={name}"],
                "deviceNodes": [{"path": f"/dev/{name}", "hostPath": "/dev/null", "type": "c", "major": 1, "minor": 3}],
            },
        }
        for name in ("GPU-a", "1")
    ]
    there = CDI.is_dir()
    CDI.mkdir(exist_ok=True)

    def work() -> None:
        import ctypes

        assert ctypes.CDLL(None).mount(b"none", str(CDI).encode(), b"tmpfs", 0, None) == 0
        (CDI / "nvidia.json").write_text(
            json.dumps({"cdiVersion": "0.3.0", "kind": "nvidia.com/gpu", "devices": devices})
        )
        names = cdi_names([GivenGpu(index=1, uuid="GPU-b")], (CDI,))
        user = ContainerUser(uid=NOBODY, gid=NOBODY, groups=(NOBODY,))
        run = "echo x > /dev/1 && echo $GIVEN; test -e /dev/GPU-a || echo no other; id -u"
        become(run, folder / "own", user, store=image_store(), gpus=names)

    try:
        said = said_by(folder, work)
    finally:
        remove_short(folder / "own")
        if not there:
            CDI.rmdir()

    assert said == f"1\nno other\n{NOBODY}\n"
