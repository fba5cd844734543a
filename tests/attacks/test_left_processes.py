"""Processes that look as if they had ended are still the task's."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.drivers.local.task_runner.processes import TaskProcesses, in_session, start_time, started

TOKEN = "a/1/1/0"
FIRST_THREAD_LEAVES = """
import ctypes, signal, threading, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
libc = ctypes.CDLL(None)

def goes_on():
    with open("/proc/self/stat") as own:
        while own.read().rpartition(")")[2].split()[0] != "Z":
            own.seek(0)
            time.sleep(0.001)
    print("left", flush=True)
    time.sleep(60)

threading.Thread(target=goes_on).start()
libc.syscall(60, 0)
"""
"""`exit` of one thread alone, which no handler of Python sees."""
SLOW_TO_EXIT = """
import fcntl, mmap, sys, time

lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
memory = mmap.mmap(-1, 1 << 29)
for at in range(0, len(memory), 4096):
    memory[at] = 1
print("locked", flush=True)
time.sleep(60)
"""
"""The kernel frees its memory before it closes its files."""


def begin(script: str, *words: str) -> subprocess.Popen[bytes]:
    """A process of the task that does something; returned when it has said that it did."""
    env = {**os.environ, "ROTA_TASK_TOKEN": TOKEN}
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words], stdout=subprocess.PIPE, start_new_session=True, env=env
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


@pytest.fixture
def without_first_thread() -> Iterator[subprocess.Popen[bytes]]:
    if os.uname().machine != "x86_64":
        pytest.skip("the number of the system call is that of x86-64")
    with begin(FIRST_THREAD_LEAVES) as process:
        yield process
        process.kill()


@pytest.mark.attack(
    "hides a process behind the end of its first thread", stopped_by="a process ends with its last thread"
)
@pytest.mark.parametrize("by", ["token", "session", "id"])
def test_a_process_goes_on_without_its_first_thread(without_first_thread: subprocess.Popen[bytes], by: str) -> None:
    pid = without_first_thread.pid
    own = TaskProcesses(pid if by != "token" else 0, started(pid), TOKEN if by == "token" else "")
    if by == "session":
        own = TaskProcesses(pid, 0, "")
        own.remember(in_session(pid))
    assert own.find() == [(pid, started(pid))]
    own.hold()
    own.go_on()
    own.end()
    assert own.find() == []
    assert without_first_thread.wait(5) == -signal.SIGKILL


def test_the_end_is_that_of_the_last_thread(without_first_thread: subprocess.Popen[bytes]) -> None:
    pid = without_first_thread.pid
    assert start_time(pid) == started(pid) != 0
    without_first_thread.kill()
    without_first_thread.wait(5)
    assert start_time(pid) == 0


def test_killed_processes_are_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with begin(SLOW_TO_EXIT, str(path)) as process:
        TaskProcesses(0, 0, TOKEN).end()
        with open(path, "a", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert process.wait(5) == -signal.SIGKILL
