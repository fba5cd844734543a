"""Podman for tests: whether it works on this machine, and an image that is built here of a static busybox."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tarfile
import tempfile
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import pytest

BUSYBOX = "/bin/busybox"
IMAGE = "localhost/rota-test:1"
TOOLS = (
    "sh cat echo env id kill ls mkdir mount ps pwd readlink rm sleep sort test touch true false tr head grep chmod stty"
)
OWN_MOUNTS = """
import ctypes
_libc = ctypes.CDLL(None)
assert _libc.unshare(0x00020000) == 0
assert _libc.mount(None, b"/", None, 16384 | (1 << 18), None) == 0
_libc.umount2(b"/sys/fs/cgroup/unified", 2)
"""
"""Mounts of their own, without a second hierarchy of cgroups beside the first: crun refuses to work with both."""


@lru_cache(maxsize=1)
def image_store() -> Path:
    """The store with the image, made once, which every user may read; skips the test where containers can't be run."""
    for program in ("podman", "crun", BUSYBOX):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (apt-get install podman crun catatonit busybox-static)")
    if os.geteuid() != 0:
        pytest.skip("only root can try containers under several users here")
    folder = Path(tempfile.mkdtemp(prefix="rota-podman-", dir="/var/lib"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    store = make_store(folder)
    words = ["--runroot", f"{folder}/run", "--cgroup-manager", "cgroupfs"]
    run = ["run", "--rm", "--cgroups=disabled", "--network=host", "--uts=host", "--cap-drop=all"]
    limits = ["--ulimit=nproc=1000:1000", "--ulimit=nofile=256:256"]
    done = podman("--root", str(store), *words, *run, *limits, IMAGE, "echo", "works")
    if done.stdout != "works\n":
        pytest.skip(f"podman does not work here: {done.stderr.strip()[-300:]}")
    return store


def podman(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run Podman with mounts of its own, so that it leaves none."""
    program = f"{OWN_MOUNTS}\nimport os, sys\nos.execvp('podman', ['podman', *sys.argv[1:]])"
    return subprocess.run(
        ["python3", "-c", program, *words], capture_output=True, text=True, timeout=120, check=False, env=env
    )


def make_store(folder: Path) -> Path:
    """Make a store with the image, which every user may read."""
    archive, store = folder / "image.tar", folder / "store"
    write_image(archive)
    for driver in ("overlay", "vfs"):
        words = ("--root", str(store), "--runroot", f"{folder}/run", "--storage-driver", driver)
        done = podman(*words, "--cgroup-manager", "cgroupfs", "import", str(archive), IMAGE)
        if done.returncode == 0:
            break
        shutil.rmtree(store, ignore_errors=True)
    archive.unlink()
    store.mkdir(exist_ok=True)
    return store


def write_image(path: Path) -> None:
    """Write the image as an archive that `podman import` takes."""
    with tarfile.open(path, "w") as tar:
        for name, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777), ("data", 0o755), ("proc", 0o755)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        tar.add(BUSYBOX, "bin/busybox")
        for tool in (*TOOLS.split(), "unshare", "wc"):
            entry = tarfile.TarInfo(f"bin/{tool}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
        text = b"of the image\n"
        entry = tarfile.TarInfo("etc/whose")
        entry.size, entry.mode = len(text), 0o644
        tar.addfile(entry, BytesIO(text))
