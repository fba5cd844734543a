"""Process ids that were given to another process are never signalled."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from rota.drivers.local.cgroup import NoCgroups, TaskLimits
from rota.drivers.local.cgroup_search import find
from rota.drivers.local.task import TaskHandle
from rota.drivers.local.task_runner.processes import TaskProcesses, boot, send, started

SETUP = """
import os, signal, subprocess, sys, time
from pathlib import Path
from rota.drivers.local.task_runner.processes import TaskProcesses, in_session, send, started

def begin(*words, **env):
    return subprocess.Popen(words, start_new_session=True, env={"PATH": os.environ["PATH"], **env})

def take_over(pid, *words, **env):
    '''A process that has the id of one that has ended.'''
    for _ in range(50):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        other = begin(*words, **env)
        if other.pid == pid:
            return other
        other.kill()
        other.wait()
    sys.exit("the id was not given again")

def outlives(process):
    time.sleep(0.05)
    return process.poll() is None and Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"

victim = begin("sleep", "60")
start = started(victim.pid)
task = TaskProcesses(victim.pid, start, "a/1/1/0")
"""


def in_namespace(script: str) -> None:
    """Run a script as the first process of a process namespace, whose next id it can choose."""
    if os.geteuid() != 0:
        pytest.skip("only root can choose the next process id")
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", SETUP + textwrap.dedent(script)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    if "unshare failed" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no process namespace can be made here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


@pytest.mark.attack(
    "gets the id of a task that has ended, as the leader of a new session", stopped_by="the start time is compared"
)
def test_end_of_a_task_spares_the_process_that_has_its_id_now() -> None:
    in_namespace("""
        assert task.find() == [(victim.pid, start)]
        victim.kill(); victim.wait()
        time.sleep(0.02)
        other = take_over(victim.pid, "sleep", "60")
        assert task.find() == []
        task.end()
        assert outlives(other)
    """)


@pytest.mark.attack(
    "gets the id of a task that is asked to stop", stopped_by="a signal to a group goes through a checked descriptor"
)
def test_stop_and_suspension_spare_the_process_that_has_the_id_now() -> None:
    in_namespace("""
        victim.kill(); victim.wait()
        time.sleep(0.02)
        other = take_over(victim.pid, "sleep", "60")
        task.signal_group(signal.SIGTERM)
        task.signal_group(signal.SIGSTOP)
        task.hold()
        task.go_on()
        assert not send(victim.pid, start, signal.SIGKILL)
        assert outlives(other)
    """)


@pytest.mark.attack(
    "leaves a daemon in a session that has the number of a task's", stopped_by="a session counts by its known members"
)
def test_session_whose_number_was_reused_is_not_the_task_s() -> None:
    in_namespace("""
        victim.kill(); victim.wait()
        time.sleep(0.02)
        leader = take_over(victim.pid, "sh", "-c", "sleep 60 & exec sleep 0.2")
        leader.wait()
        (daemon, daemon_start), = in_session(victim.pid)
        task.end()
        assert started(daemon) == daemon_start
        assert Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    """)


@pytest.mark.attack(
    "hides a process from its task: no token in its environment, and its leader has ended",
    stopped_by="the session's members are noted before the leader is reaped",
)
def test_what_the_task_left_in_its_session_is_still_ended() -> None:
    in_namespace("""
        leader = begin("sh", "-c", "env -i sleep 60 & exec sleep 0.2")
        own = TaskProcesses(leader.pid, started(leader.pid), "a/1/1/0")
        os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT)
        own.remember(in_session(leader.pid))
        leader.wait()
        (daemon, _), = own.find()
        own.end()
        assert not in_session(leader.pid)
        assert outlives(victim)
    """)


def handle(folder: Path, **state: Any) -> TaskHandle:
    """A task whose supervisor is said to be some process."""
    made = TaskHandle(slot=None, folder=folder, token="a/1/1/0")  # type: ignore[arg-type]  # only its files matter
    (folder / "claim").write_text(json.dumps(state))
    (folder / "state.json").write_text(json.dumps({"phase": "running", **state}))
    return made


@pytest.mark.attack(
    "gets the id of a supervisor while the manager is down", stopped_by="the claim holds the supervisor's start time"
)
def test_restarted_manager_does_not_take_another_process_for_a_supervisor(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        task = handle(tmp_path, supervisor=other.pid, supervisor_start=started(other.pid) - 1, boot=boot())
        task.find()
        assert task.pidfd == -1
        task.order_stop("SIGTERM", 0.0)
        assert other.poll() is None
        other.kill()


@pytest.mark.attack(
    "gets the id and the start time of a supervisor of an earlier boot",
    stopped_by="claims and states hold the boot's id",
)
def test_ids_of_an_earlier_boot_mean_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        start = started(other.pid)
        same = {"supervisor": other.pid, "supervisor_start": start, "recorder": other.pid, "recorder_start": start}
        task = handle(tmp_path, **same, pid=other.pid, pid_start=start, boot="an earlier one")
        task.refresh()
        task.find()
        assert task.pidfd == -1
        assert not task.recorder_lives
        asyncio.run(task.end())
        assert other.poll() is None
        now = handle(tmp_path, **same, pid=other.pid, pid_start=start, boot=boot())
        now.refresh()
        asyncio.run(now.end())
        assert other.wait(5) == -9


@pytest.mark.attack(
    "leaves a task's cgroup between the list of its members and the kill", stopped_by="membership is checked again"
)
def test_only_members_of_the_cgroup_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = find(tmp_path)
    if isinstance(limits, NoCgroups):
        pytest.skip(f"no cgroups can be made here: {limits.why}")
    told = limits.make("a/1/1/0", TaskLimits(memory_bytes=64 << 20))
    with subprocess.Popen(["sleep", "60"]) as inside, subprocess.Popen(["sleep", "60"]) as outside:
        for path in told["enter"]:
            Path(path).write_text(str(inside.pid))
        import rota.drivers.local.cgroup as module

        real, looks = module._members, iter([True])
        stale = [outside.pid]
        monkeypatch.setattr(
            module, "_members", lambda folder: stale + real(folder) if next(looks, None) else real(folder)
        )
        limits.remove("a/1/1/0")
        limits.sweep([])
        assert inside.wait(5) == -9
        assert outside.poll() is None
        outside.kill()


def test_a_process_that_ended_is_not_signalled() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        start = started(process.pid)
        assert send(process.pid, start, 0)
        process.kill()
        process.wait()
        assert not send(process.pid, start, 0)
        assert TaskProcesses(process.pid, start, "").find() == []
