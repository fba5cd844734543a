"""A manager for strangers: root, with tokens, and two Unix users whose tasks it keeps apart."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from managers import Manager
from rota.sdk.client import Client
from strangers import Shared, Stranger

DEVICE_MAJOR = 1
FULL, RANDOM = 7, 8
"""Minor numbers of harmless devices that stand for accelerators."""
TRUTH = "the truth"
"""What the manager's owner keeps to itself."""


def _user(name: str) -> int:
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", name], check=True, capture_output=True)
    Path(pwd.getpwnam(name).pw_dir).chmod(0o700)
    return pwd.getpwnam(name).pw_uid


@pytest.fixture(scope="session")
def users() -> Iterator[tuple[str, str]]:
    """Two Unix users, removed afterwards."""
    if os.geteuid() != 0:
        pytest.skip("only root can make Unix users and run tasks as them")
    if shutil.which("useradd") is None:
        pytest.skip("there is no useradd to make Unix users with")
    names = (f"rota-a{os.getpid() % 100000}", f"rota-v{os.getpid() % 100000}")
    try:
        for name in names:
            _user(name)
        yield names
    finally:
        for name in names:
            subprocess.run(["userdel", "--remove", name], capture_output=True, check=False)


@pytest.fixture(scope="session")
def shared(users: tuple[str, str]) -> Iterator[Shared]:
    """One manager for all attacks: each leaves it as it was."""
    folder = Path(tempfile.mkdtemp(prefix="rota-attacks-", dir="/var/lib"))
    folder.chmod(0o711)
    secrets = folder / "secrets"
    secrets.mkdir(mode=0o700)
    (secrets / "file").write_text(TRUTH)
    device = str(folder / "accel{index}")
    _make_devices(device)
    options = ("--emulate", "gpu=2/2", "--require-token", "--accounts", "names", "--run-as", "nobody")
    sizes = ("--scratch", "32Mi", "--task-output", "1Mi", "--default-memory", "400Mi")
    limits = ("--max-processes", "64", *sizes, "--device-nodes", device)
    tenants = ("--tenants", ",".join(["x", *(f"tenant-{name}" for name in users)]))
    manager = Manager(folder, *options, *limits, *tenants)
    manager.env |= {"ROTA_SECRET_OF_THE_MANAGER": "tell nobody", "LD_LIBRARY_PATH": "/opt/of-the-manager"}
    try:
        manager.start_guarded()
        attacker, victim = (_stranger(manager, name) for name in users)
        yield Shared(manager=manager, attacker=attacker, victim=victim, secrets=secrets, device=device)
        manager.must_be_alive()
    finally:
        manager.clean_up()
        shutil.rmtree(folder, ignore_errors=True)


def _make_devices(path: str) -> None:
    """Two character devices that anyone may open, as NVIDIA's are; no test needs either."""
    for index, minor in enumerate((FULL, RANDOM)):
        node = path.replace("{index}", str(index))
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(DEVICE_MAJOR, minor))
        os.chmod(node, 0o666)


def _stranger(manager: Manager, name: str) -> Stranger:
    made = manager.client.post("/tokens", {"name": name, "role": "member", "tenants": [f"tenant-{name}"]})
    return Stranger(name=name, uid=pwd.getpwnam(name).pw_uid, client=Client(manager.client.url, made["token"]))


@pytest.fixture
def calm(shared: Shared) -> Iterator[Shared]:
    """The shared manager, without jobs afterwards."""
    yield shared
    shared.manager.calm_down()
