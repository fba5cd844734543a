"""Processes of `rota` for tests: forked from one that has imported its modules, or started as users start them.

A forked process saves a second of CPU time and is otherwise like any other, but for what /proc says of its command line
and its first variables. `ROTA_TESTS_EXEC=1` starts all of them as users do, as programs outside of tests always do.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Completed = subprocess.CompletedProcess[str]
RUN = "from rota.cli.main import run; run()"
ROTA = [sys.executable, "-c", RUN]
INTERPRETER = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "OMP_", "OPENBLAS_", "MALLOC_")
"""Variables that a process must have from its start to follow them."""
FORKABLE = frozenset({"env", "cwd", "stdin", "stdout", "stderr", "text", "start_new_session"})
_START_S = 120.0


class _Server:
    """The server of this process; started when the first `rota` is."""

    def __init__(self) -> None:
        self.wanted = False
        self._address = ""

    def address(self) -> str:
        """Where it listens."""
        if not self._address:
            folder = tempfile.mkdtemp(prefix="rota-fork-")
            self._address = f"{folder}/socket"
            program = str(Path(__file__).with_name("fork_server.py"))
            lifeline, ours = os.pipe()
            process = subprocess.Popen([sys.executable, program, self._address], stdin=lifeline)
            os.close(lifeline)
            atexit.register(_end, process, ours, folder)
        return self._address


_SERVER = _Server()


def fork(*, wanted: bool) -> None:
    """Say whether processes from now on are forked; without a word they are not."""
    _SERVER.wanted = wanted and not os.environ.get("ROTA_TESTS_EXEC")


def _end(server: subprocess.Popen[bytes], lifeline: int, folder: str) -> None:
    os.close(lifeline)
    server.wait()
    shutil.rmtree(folder, ignore_errors=True)


def popen(args: Sequence[str], *, prelude: str = "", **options: Any) -> subprocess.Popen[Any]:
    """Start `rota` with arguments, after lines of Python; further options are those of `subprocess.Popen`."""
    command = [sys.executable, "-c", prelude + RUN, *args]
    if _SERVER.wanted and options.keys() <= FORKABLE and _alike(options.get("env")):
        return _Forked([prelude, *args], **options)
    return subprocess.Popen(command, **options)


def run(args: Sequence[str], *, input: str | None = None, timeout: float = 120.0, **options: Any) -> Completed:
    """Run `rota` with arguments to its end, and return a `subprocess.CompletedProcess` of text."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def ask(server: str, request: Json, descriptors: Sequence[int]) -> tuple[int, socket.socket]:
    """Have a process forked with these descriptors from 0 on; return its id, and over what its end will be told."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    deadline = time.monotonic() + _START_S
    while True:
        try:
            connection.connect(server)
            break
        except (FileNotFoundError, ConnectionRefusedError):  # it still imports
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    socket.send_fds(connection, [json.dumps(request).encode()], descriptors)
    return int(connection.recv(64)), connection


def _alike(env: Mapping[str, str] | None) -> bool:
    """Whether an interpreter with these variables would be like this one."""
    return env is None or _for_interpreter(env) == _for_interpreter(os.environ)


def _for_interpreter(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(INTERPRETER)}


class _Forked(subprocess.Popen[Any]):
    """A process that the server forks; it looks like one that was started from here."""

    _connection: socket.socket

    def _execute_child(self, args: Sequence[str], *given: Any) -> None:
        cwd, env, pipes, session = given[4], given[5], given[9:15], given[-2]
        request = {
            "prelude": args[0],
            "module": None,
            "args": args[1:],
            "env": dict(os.environ if env is None else env),
            "cwd": os.getcwd() if cwd is None else os.fspath(cwd),
            "session": session,
        }
        ends = [end if end != -1 else number for number, end in enumerate((pipes[0], pipes[3], pipes[5]))]
        try:
            self.pid, self._connection = ask(_SERVER.address(), request, ends)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None:
            self._wait_for(os.WNOHANG)
        return self.returncode

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if flags & os.WNOHANG and not select.select([self._connection], [], [], 0)[0]:
            return 0, 0
        with self._connection as connection:
            return self.pid, int(connection.recv(64))

    def _wait_for(self, flags: int) -> None:
        if self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(flags)
                    if pid:
                        self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
