"""A job tries to gain by a container what it could not have without one."""

from __future__ import annotations

import json
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from managers import Manager, eventually
from podman_images import IMAGE, OWN_MOUNTS, image_store
from rota.sdk.client import Client, Refused
from strangers import Shared, Stranger

pytestmark = pytest.mark.slow
TRUTH = "the truth"


@pytest.fixture(scope="module")
def boxed(users: tuple[str, str]) -> Iterator[Shared]:
    """A manager of root that runs the containers of two users, with a folder that is mounted for reading only."""
    store = image_store()
    folder = Path(tempfile.mkdtemp(prefix="rota-containers-", dir="/var/lib"))
    folder.chmod(0o711)
    secrets, fixed = folder / "secrets", folder / "fixed"
    secrets.mkdir(mode=0o700)
    (secrets / "file").write_text(TRUTH)
    (secrets / "file").chmod(0o644)
    fixed.mkdir()
    fixed.chmod(0o777)
    settings = folder / "rota.yaml"
    parts = {"health": {"checks": []}, "containers": {"runtime": "podman", "images": [str(store)]}}
    settings.write_text(json.dumps(parts))
    options = ("--emulate", "gpu=2/2", "--require-token", "--accounts", "names", "--run-as", "nobody", "--seccomp")
    tenants = ("--tenants", ",".join(f"tenant-{name}" for name in users))
    manager = Manager(folder, "--config", str(settings), *options, *tenants)
    bind, again = 4096, 4096 | 32 | 1
    place = repr(str(fixed).encode())
    manager.prelude = f"{OWN_MOUNTS}\n_libc.mount({place}, {place}, None, {bind}, None)\n"
    manager.prelude += f"_libc.mount(None, {place}, None, {again}, None)\n"
    try:
        manager.start_guarded()
        attacker, victim = (_stranger(manager, name) for name in users)
        yield Shared(manager=manager, attacker=attacker, victim=victim, secrets=secrets, device=str(fixed))
    finally:
        manager.clean_up()
        shutil.rmtree(folder, ignore_errors=True)


def _stranger(manager: Manager, name: str) -> Stranger:
    made = manager.client.post("/tokens", {"name": name, "role": "member", "tenants": [f"tenant-{name}"]})
    return Stranger(name=name, uid=pwd.getpwnam(name).pw_uid, client=Client(manager.client.url, made["token"]))


@pytest.mark.attack("is root in its container", stopped_by="the job's own user, without capabilities")
@pytest.mark.attack("mounts, or makes namespaces, in its container", stopped_by="no capabilities; seccomp")
@pytest.mark.attack("ends the runtime of its container", stopped_by="processes and user of its own")
def test_container_has_its_users_rights_and_no_more(boxed: Shared) -> None:
    tries = (
        "id -u",
        "grep -E '^(Cap|NoNew|Seccomp:)' /proc/self/status",
        "mount -t tmpfs none /tmp && echo mounted",
        "unshare -U true && echo unshared",
        "touch /etc/mine && echo wrote",
        "ls /proc | grep -c '^[0-9]'",
        "kill -9 -1; echo still here",
    )

    said = boxed.run("; ".join(tries), image=IMAGE)

    assert said.splitlines()[0] == str(boxed.attacker.uid)
    assert {line.split()[1] for line in said.splitlines() if line.startswith("Cap")} == {"0000000000000000"}
    assert "NoNewPrivs:\t1" in said
    assert "Seccomp:\t2" in said
    assert not {"mounted", "unshared", "wrote"} & {*said.split()}
    assert said.splitlines()[-1] == "still here"
    assert int(next(line for line in said.splitlines()[1:] if line.isdigit())) <= 5


@pytest.mark.parametrize(
    ("path", "why"),
    [
        pytest.param(
            "{secrets}/file",
            "can't be mounted: Permission denied",
            id="file",
            marks=pytest.mark.attack(
                "mounts a file in a folder that it may not enter", stopped_by="opened as its user"
            ),
        ),
        pytest.param(
            "{home}/link",
            "can't be mounted: Permission denied",
            id="link",
            marks=pytest.mark.attack("mounts a link of its own to such a file", stopped_by="opened as its user"),
        ),
        pytest.param(
            "/proc/1/root",
            "can't be mounted: No such file",
            id="root of another process",
            marks=pytest.mark.attack("mounts the root of the first process", stopped_by="private /proc"),
        ),
        pytest.param(
            "{secrets}",
            "Permission denied",
            id="folder",
            marks=pytest.mark.attack("mounts a folder of root that it may not list", stopped_by="mode of the folder"),
        ),
    ],
)
def test_volume_gives_nothing_that_its_user_may_not_read(boxed: Shared, path: str, why: str) -> None:
    home = Path(pwd.getpwnam(boxed.attacker.name).pw_dir)
    if not (home / "link").is_symlink():
        (home / "link").symlink_to(boxed.secrets / "file")
    source = path.format(secrets=boxed.secrets, home=home)

    job_id = boxed.attacker.submit("cat /in /in/file", image=IMAGE, volumes=[f"{source}:/in"])
    job = boxed.manager.wait(job_id, "failed")

    assert why in job["message"] + boxed.manager.said(job_id)
    assert TRUTH not in boxed.manager.said(job_id)


@pytest.mark.attack("mounts /tmp, or what is above it, to see the machine's", stopped_by="its own covers it there too")
def test_volume_of_tmp_is_the_tasks_own_tmp(boxed: Shared) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="rota-of-others-", dir="/tmp"),
        tempfile.TemporaryDirectory(prefix="rota-of-others-", dir="/var/tmp"),
    ):
        said = boxed.run("ls /in /var/tmp /var", image=IMAGE, volumes=["/tmp:/in", "/var:/var"])

    assert "lib" in said.split()
    assert "rota-of-others" not in said


@pytest.mark.attack("mounts for writing what the machine has mounted for reading", stopped_by="the mount's own flags")
def test_volume_of_a_mount_for_reading_is_for_reading(boxed: Shared) -> None:
    said = boxed.run("touch /in/new && echo wrote; true", image=IMAGE, volumes=[f"{boxed.device}:/in:rw"])

    assert "Read-only file system" in said
    assert "wrote" not in said


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(
            {"image": name}, id=name, marks=pytest.mark.attack(f"has an image named {name}", stopped_by="names only")
        )
        for name in ("--privileged", "-v=/:/host", "docker-archive:x", "dir:/etc", "x --privileged", "x\n--privileged")
    ]
    + [
        pytest.param(
            {"image": IMAGE, "volumes": [volume]},
            id=volume,
            marks=pytest.mark.attack(f"mounts {volume}", stopped_by="plain paths, `ro` and `rw` only"),
        )
        for volume in ("/data:/data:rw,suid,dev", "/data:/a:ro:U", "/data,dst=/etc:/x", "/a/../root:/x", "/a:/proc/1")
    ],
)
def test_names_are_no_options(boxed: Shared, fields: dict[str, object]) -> None:
    with pytest.raises(Refused, match=r"job: (image is|volumes)"):
        boxed.attacker.submit("true", **fields)


@pytest.mark.attack("has its working directory taken for options of a volume", stopped_by="no colons and commas")
def test_working_directory_is_no_option(boxed: Shared) -> None:
    home = Path(pwd.getpwnam(boxed.attacker.name).pw_dir)
    for name in (f"{home}:/etc:rw", f"{home},suid"):
        job_id = boxed.attacker.submit("true", image=IMAGE, workdir=name)
        job = boxed.manager.wait(job_id, "failed")
        assert "can't be mounted: it is not absolute, or holds a colon or a comma" in job["message"]


@pytest.mark.attack("sets variables that the runtime obeys", stopped_by="the runtime has variables of its own")
@pytest.mark.attack("reads what another's container has written", stopped_by="mode 0700")
def test_variables_reach_the_container_and_not_its_runtime(boxed: Shared) -> None:
    own = {"LD_PRELOAD": "/no/such.so", "CONTAINERS_CONF": "/no/such.conf", "CONTAINER_HOST": "unix:///no/such"}
    job_id, pid = boxed.prey("echo $CONTAINERS_CONF; sleep 600", image=IMAGE, env=own)
    runtime = Path(f"/proc/{pid}/environ").read_bytes()
    folder = boxed.manager.home / "runs" / job_id / "container-1-0"

    said = boxed.run(f"ls {folder}; ls /run/rota-containers")

    assert "/no/such.conf" in boxed.manager.said(job_id)
    assert b"/no/such" not in runtime
    assert said.count("Permission denied") == 2
    boxed.manager.client.act(job_id, "cancel")


@pytest.mark.attack("opens a session as root in its container", stopped_by="sessions have the task's user")
def test_session_in_a_container_has_the_users_rights(boxed: Shared) -> None:
    job_id = boxed.attacker.submit("echo up; sleep 600", image=IMAGE)
    eventually(lambda: "up" in boxed.manager.said(job_id))
    boxed.manager.env |= {"ROTA_TOKEN": boxed.manager.token, "ROTA_SERVER": boxed.manager.client.url}

    done = boxed.manager.rota("exec", job_id, "--", "sh", "-c", "id -u; grep -E '^(CapEff|NoNew)' /proc/self/status")

    assert done.stdout.split() == [str(boxed.attacker.uid), "CapEff:", "0000000000000000", "NoNewPrivs:", "1"]
    boxed.manager.client.act(job_id, "cancel")
