"""Cgroups as the kernel gives them here, and as a tree of files looks where it gives none of that version."""

from __future__ import annotations

import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from rota.drivers.local.cgroup import Cgroups, NoCgroups, TaskLimits
from rota.drivers.local.cgroup_search import find
from rota.drivers.local.confinement.device_rules import DeviceNumber
from rota.drivers.local.task_runner.processes import processes_of, started

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
    told = real.make("7/1/0", TaskLimits(cpu_milli=500, memory_bytes=32 << 20))
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


@pytest.mark.slow
def test_all_tasks_together_are_limited(real: Cgroups) -> None:
    """A task without a limit of its own can't take what the manager and the machine need."""
    limited = replace(real, tasks_bytes=48 << 20)
    told = limited.make("8/1/0", TaskLimits(cpu_share=2000))
    enter = " && ".join(f"echo $$ > {path}" for path in told["enter"])
    hungry = subprocess.run(
        ["sh", "-c", f"{enter} && exec python3 -c 'x = bytearray(100 << 20)'"], capture_output=True, check=False
    )
    cpu = real.parents["cpu"] / "8-1-0"
    share = int((cpu / ("cpu.weight" if real.version == 2 else "cpu.shares")).read_text())
    limited.remove("8/1/0")
    limited.sweep([])

    assert hungry.returncode == -9
    assert share == (200 if real.version == 2 else 2048)


def test_cgroup_that_two_remove_at_once_is_removed_without_an_error(real: Cgroups) -> None:
    """A manager that starts sweeps while the ends of tasks are still being concluded."""
    with ThreadPoolExecutor(2) as both:
        for number in range(600):
            token = f"{number}/1/0"
            real.make(token, TaskLimits())
            together = threading.Barrier(2)

            def remove(token: str = token, together: threading.Barrier = together) -> None:
                together.wait()
                real.remove(token)

            removals = [both.submit(remove) for _ in range(2)]
            for removal in removals:
                removal.result()
            assert not (next(iter(real.parents.values())) / token.replace("/", "-")).exists()
    real.sweep([])


def test_what_nobody_knows_is_swept_away(real: Cgroups) -> None:
    real.make("1/1/0", TaskLimits())
    real.make("2/1/0", TaskLimits())

    real.sweep(["1/1/0"])

    assert sorted(path.name for path in real.parents["memory"].iterdir() if path.is_dir()) == ["1-1-0"]
    real.sweep([])
    assert not real.parents["memory"].exists()


def test_second_version_writes_its_own_files(tmp_path: Path) -> None:
    group = Cgroups(version=2, parents=dict.fromkeys(("memory", "cpu", "pids"), tmp_path))
    folder = tmp_path / "3-2-1"
    folder.mkdir()
    (folder / "memory.swap.max").write_text("max")

    told = group.make("3/2/1", TaskLimits(cpu_milli=1500, memory_bytes=1 << 30, processes=99))

    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "cpu.max": "150000 100000",
        "cpu.weight": "150",
        "memory.max": str(1 << 30),
        "memory.oom.group": "1",
        "memory.swap.max": "0",
        "pids.max": "99",
    }
    assert told == {
        "enter": [f"{folder}/cgroup.procs"],
        "kills": f"{folder}/memory.events",
        "limit": [f"{folder}/memory.max"],
    }


def test_second_version_hands_controllers_down_again_after_everything_was_swept_away(tmp_path: Path) -> None:
    group = Cgroups(version=2, parents=dict.fromkeys(("memory", "cpu"), tmp_path / "rota-1"))

    group.make("1/1/0", TaskLimits())

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
    assert (found.version, found.parents["memory"].parent, found.keeps_cpus) == (2, own, True)
    assert (own / "rota-manager" / "cgroup.procs").read_text() == str(os.getpid())
    assert (found.parents["memory"] / "cgroup.subtree_control").read_text() == "+memory +cpu +pids"


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


@pytest.mark.slow
def test_own_folder_is_found_where_only_part_of_the_tree_is_mounted(tmp_path: Path) -> None:
    """As in a container: the mount shows the container's own cgroup as its root."""
    at = tmp_path / "fs"
    (at / "sub").mkdir(parents=True)
    mounts = f"35 31 0:32 /docker/abc {at} rw - cgroup cgroup rw,memory\n"

    found = find(tmp_path, tree(tmp_path, "4:memory:/docker/abc/sub\n", mounts))

    assert isinstance(found, Cgroups)
    assert (found.version, found.parents["memory"].parent, str(found)) == (1, at / "sub", "cgroup v1: memory")
    assert found.why == "cpu: not mounted; pids: not mounted; devices: not mounted"


class FakeKernel:
    """A tree of files that behaves as version 2 does: a cgroup with processes hands no controllers down."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_host: bool = False) -> None:
        self.top = tmp_path / "fs"
        self.top.mkdir()
        self._write = Path.write_text
        if not is_host:
            self._write(self.top / "cgroup.type", "domain\n")
        self.is_host = is_host
        self._mkdir = Path.mkdir
        self.group(self.top)
        monkeypatch.setattr(Path, "write_text", lambda path, text: self.write(path, text))
        monkeypatch.setattr(Path, "mkdir", lambda path, *args, **kwargs: self.mkdir(path, *args, **kwargs))
        monkeypatch.setattr("rota.drivers.local.cgroup_search.Cgroups.remove", lambda self, token: None)
        monkeypatch.setattr("rota.drivers.local.cgroup.attach", lambda folder, devices: None)

    def group(self, folder: Path, *pids: int) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        self._write(folder / "cgroup.controllers", "cpuset cpu io memory pids\n")
        self._write(folder / "cgroup.procs", "".join(f"{pid}\n" for pid in pids))
        return folder

    def mkdir(self, path: Path, mode: int = 0o777, *, parents: bool = False, exist_ok: bool = False) -> None:
        self._mkdir(path, mode, parents, exist_ok)
        if path.is_relative_to(self.top) and not (path / "cgroup.procs").exists():
            self._write(path / "cgroup.procs", "")

    def write(self, path: Path, text: str) -> int:
        if path.name == "cgroup.subtree_control":
            busy = (path.parent / "cgroup.procs").read_text().split()
            if busy and not (self.is_host and path.parent == self.top):
                raise OSError(16, "Device or resource busy", str(path))
        if path.name == "cgroup.procs":
            for other in self.top.rglob("cgroup.procs"):
                self._write(other, "".join(f"{pid}\n" for pid in other.read_text().split() if pid != text))
            text = f"{path.read_text()}{text}\n"
        return self._write(path, text)


def test_in_a_container_all_processes_move_into_a_leaf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that was started as a container: its cgroup, mounted as the top, holds more than the manager."""
    kernel = FakeKernel(tmp_path, monkeypatch)
    kernel.group(kernel.top, 1, 7, os.getpid())
    mounts = f"31 23 0:28 / {kernel.top} rw - cgroup2 cgroup2 rw\n"

    found = find(tmp_path / "home", tree(tmp_path, "0::/\n", mounts))

    assert isinstance(found, Cgroups), found
    assert str(found) == "cgroup v2: cpu, devices, memory, pids"
    assert (kernel.top / "cgroup.procs").read_text() == ""
    assert (kernel.top / "rota-others" / "cgroup.procs").read_text().split() == ["1", "7", str(os.getpid())]
    assert (kernel.top / "cgroup.subtree_control").read_text() == "+memory +cpu +pids"


def test_on_a_host_a_shared_session_stays_and_the_root_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = FakeKernel(tmp_path, monkeypatch, is_host=True)
    kernel.group(kernel.top, 2)
    session = kernel.group(kernel.top / "user.slice" / "session.scope", 44, os.getpid())
    mounts = f"31 23 0:28 / {kernel.top} rw - cgroup2 cgroup2 rw\n"

    found = find(tmp_path / "home", tree(tmp_path, "0::/user.slice/session.scope\n", mounts))

    assert isinstance(found, Cgroups), found
    assert found.parents["memory"].parent == kernel.top
    assert (session / "cgroup.procs").read_text().split() == ["44", str(os.getpid())]


def test_mount_that_can_be_written_is_preferred_to_a_read_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = FakeKernel(tmp_path, monkeypatch, is_host=True)
    mounts = (
        f"30 23 0:28 / {tmp_path / 'ro'} ro,nosuid - cgroup2 cgroup2 rw\n"
        f"31 23 0:28 / {kernel.top} rw - cgroup2 cgroup2 rw\n"
    )

    found = find(tmp_path / "home", tree(tmp_path, "0::/\n", mounts))

    assert isinstance(found, Cgroups), found
    assert found.parents["memory"].parent == kernel.top


def test_path_outside_of_the_mount_falls_back_to_its_top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the cgroup namespace is another one's than the mount's."""
    kernel = FakeKernel(tmp_path, monkeypatch)
    mounts = f"31 23 0:28 / {kernel.top} rw - cgroup2 cgroup2 rw\n"

    found = find(tmp_path / "home", tree(tmp_path, "0::/elsewhere/deep\n", mounts))

    assert isinstance(found, Cgroups), found
    assert found.parents["memory"].parent == kernel.top


@pytest.mark.slow
def test_fork_bomb_and_device_are_stopped_by_the_kernel(real: Cgroups) -> None:
    if {"pids", "devices"} - real.parents.keys():
        pytest.skip(f"not all controllers can be used here: {real.why}")
    zero = DeviceNumber(kind="c", major=1, minor=5)
    told = real.make("8/1/0", TaskLimits(processes=5, refused=(zero,)))
    enter = " && ".join(f"echo $$ > {path}" for path in told["enter"])
    script = f"{enter}; head -c1 /dev/zero 2>&1; for n in 1 2 3 4 5 6 7 8; do sleep 5 & done"

    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    real.remove("8/1/0")

    assert "Operation not permitted" in said.stdout
    assert "annot fork" in said.stderr


@pytest.mark.slow
def test_processes_of_a_sealed_task_are_found_in_its_cgroup_alone(real: Cgroups) -> None:
    told = real.make("9/1/0", TaskLimits(memory_bytes=64 << 20))
    task = {"token": "9/1/0", "cgroup": told, "uid": 65534}
    others = {"ROTA_TASK_TOKEN": "9/1/0", "PATH": os.environ["PATH"]}
    with (
        subprocess.Popen(["sleep", "60"], start_new_session=True) as inside,
        subprocess.Popen(["sleep", "60"], start_new_session=True) as leader,
        subprocess.Popen(["sleep", "60"], start_new_session=True, env=others) as outside,
    ):
        for path in told["enter"]:
            Path(path).write_text(str(inside.pid))
        first = started(leader.pid)
        sealed, open_ = processes_of(task, leader.pid, first), processes_of({**task, "uid": None}, leader.pid, first)
        assert {pid for pid, _ in sealed.find()} == {inside.pid, leader.pid}
        assert {pid for pid, _ in open_.find()} == {inside.pid, leader.pid, outside.pid}
        sealed.end()
        assert (inside.wait(5), leader.wait(5), outside.poll()) == (-9, -9, None)
        real.remove("9/1/0")
        assert {pid for pid, _ in sealed.find()} == {outside.pid}  # without a cgroup, all processes are looked at
        outside.kill()
