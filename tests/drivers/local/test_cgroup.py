"""Cgroups as the kernel gives them here, and as a tree of files looks where it gives none of that version."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rota.drivers.local.cgroup import Cgroups, NoCgroups, find

V2 = "0::/user.slice/rota.scope\n"
MOUNT_V2 = "31 23 0:28 / {at} rw - cgroup2 cgroup2 rw\n"


def tree(tmp_path: Path, cgroup: str, mounts: str) -> Path:
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(cgroup)
    (proc / "mountinfo").write_text(mounts)
    return proc


@pytest.fixture
def real(tmp_path: Path) -> Cgroups:
    found = find(tmp_path)
    if isinstance(found, NoCgroups):
        pytest.skip(f"no cgroups can be made here: {found.why}")
    return found


@pytest.mark.slow
def test_kernel_counts_what_a_task_takes_and_ends_what_is_left_of_it(real: Cgroups) -> None:
    told = real.make("7/1/0", 500, 32 << 20)
    enter = " && ".join(f"echo $$ > {path}" for path in told["enter"])
    hungry = subprocess.run(
        ["sh", "-c", f"{enter} && exec python3 -c 'x = bytearray(100 << 20)'"], capture_output=True, check=False
    )
    kept = subprocess.Popen(["sh", "-c", f"{enter} && echo in && exec sleep 60"], stdout=subprocess.PIPE)
    assert kept.stdout is not None
    assert kept.stdout.readline() == b"in\n"

    counted = [line for line in Path(told["kills"]).read_text().splitlines() if line.startswith("oom_kill ")]
    real.remove("7/1/0")

    assert hungry.returncode == -9
    assert counted == ["oom_kill 1"]
    assert kept.wait(timeout=10) == -9
    kept.stdout.close()
    assert not Path(told["enter"][0]).parent.exists()


def test_what_nobody_knows_is_swept_away(real: Cgroups) -> None:
    real.make("1/1/0", 0, 0)
    real.make("2/1/0", 0, 0)

    real.sweep(["1/1/0"])

    assert sorted(path.name for path in real.memory.iterdir() if path.is_dir()) == ["1-1-0"]
    real.sweep([])
    assert not real.memory.exists()


def test_second_version_writes_its_own_files(tmp_path: Path) -> None:
    group = Cgroups(version=2, memory=tmp_path, cpu=tmp_path)
    folder = tmp_path / "3-2-1"
    folder.mkdir()
    (folder / "memory.swap.max").write_text("max")

    told = group.make("3/2/1", 1500, 1 << 30)

    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "cpu.max": "150000 100000",
        "memory.max": str(1 << 30),
        "memory.oom.group": "1",
        "memory.swap.max": "0",
    }
    assert told == {"enter": [f"{folder}/cgroup.procs"], "kills": f"{folder}/memory.events"}


def test_second_version_hands_controllers_down_again_after_everything_was_swept_away(tmp_path: Path) -> None:
    group = Cgroups(version=2, memory=tmp_path / "rota-1", cpu=tmp_path / "rota-1")

    group.make("1/1/0", 0, 0)

    assert (tmp_path / "rota-1" / "cgroup.subtree_control").read_text() == "+memory +cpu"


def test_manager_alone_in_its_cgroup_moves_into_a_leaf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 2 refuses controllers below a cgroup that has processes."""
    own = tmp_path / "fs" / "user.slice" / "rota.scope"
    own.mkdir(parents=True)
    (own / "cgroup.controllers").write_text("cpu memory pids\n")
    (own / "cgroup.procs").write_text(f"{os.getpid()}\n")
    write = Path.write_text

    def as_the_kernel(path: Path, text: str) -> int:
        if path == own / "cgroup.subtree_control" and not (own / "rota-manager" / "cgroup.procs").exists():
            raise OSError(16, "Device or resource busy", str(path))
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", as_the_kernel)
    monkeypatch.setattr("rota.drivers.local.cgroup.Cgroups.remove", lambda self, token: None)

    found = find(tmp_path / "home", _proc(tmp_path, write))

    assert isinstance(found, Cgroups)
    assert (found.version, found.memory.parent, found.keeps_cpus) == (2, own, True)
    assert (own / "rota-manager" / "cgroup.procs").read_text() == str(os.getpid())
    assert (found.memory / "cgroup.subtree_control").read_text() == "+memory +cpu"


def _proc(tmp_path: Path, write: object) -> Path:
    proc = tmp_path / "proc"
    proc.mkdir()
    for name, text in (("cgroup", V2), ("mountinfo", MOUNT_V2.format(at=tmp_path / "fs"))):
        with (proc / name).open("w") as file:
            file.write(text)
    return proc


@pytest.mark.parametrize(
    ("cgroup", "mounts", "why"),
    [
        ("", "", "there is no cgroup file system"),
        ("4:memory:/a\n", "35 31 0:32 / /sys/fs/no-such-thing rw - cgroup cgroup rw,memory\n", "cgroup v1: "),
    ],
    ids=["none", "not writable"],
)
def test_without_cgroups_it_says_why(tmp_path: Path, cgroup: str, mounts: str, why: str) -> None:
    found = find(tmp_path, tree(tmp_path, cgroup, mounts))

    assert isinstance(found, NoCgroups)
    assert found.why.startswith(why)
    assert str(found) == "watched"


def test_own_folder_is_found_where_only_part_of_the_tree_is_mounted(tmp_path: Path) -> None:
    """As in a container: the mount shows the container's own cgroup as its root."""
    at = tmp_path / "fs"
    (at / "sub").mkdir(parents=True)
    mounts = f"35 31 0:32 /docker/abc {at} rw - cgroup cgroup rw,memory\n"

    found = find(tmp_path, tree(tmp_path, "4:memory:/docker/abc/sub\n", mounts))

    assert isinstance(found, Cgroups)
    assert (found.version, found.memory.parent, str(found)) == (1, at / "sub", "cgroup v1 (memory only)")
