"""A process that has imported Rota once, and forks the `rota` processes that tests start.

Most of what a short-lived process of Rota costs is the import of its modules. What is forked here is a process of its
own all the same: with its own arguments, variables, folder and descriptors, and killed like any other. Only `forked.py`
talks to this program: each request has a connection of its own, over which the end of its process is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import io
import json
import os
import selectors
import signal
import socket
import sys
import warnings
from typing import Any

from forked import ask
from rota.cli.commands import COMMANDS
from rota.cli.main import run
from rota.live.workers import worker_process
from rota.store import clock

Json = dict[str, Any]
MOST_BYTES = 1 << 18
PRELOADED = (
    "rota.api.serve",
    "rota.api.serve_cluster",
    "rota.api.slurm.serve_slurm",
    "rota.live.workers.forecast_worker",
    "rota.live.estimates.learning",
)
"""What commands import while they run."""


class ForkServer:
    """Forks a process for each request, and tells its end."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._running: dict[int, socket.socket] = {}
        self._woken, self._wakes = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for each in (self._woken, self._wakes):
            each.setblocking(False)
        for source in (sys.stdin.fileno(), listening, self._woken):
            self._selector.register(source, selectors.EVENT_READ)

    def serve(self) -> Json | None:
        """Serve until the test process is gone; in a forked process, return what it is to do."""
        signal.set_wakeup_fd(self._wakes.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    with contextlib.suppress(BlockingIOError):
                        self._woken.recv(4096)
                    self._tell_ends()
                elif key.fileobj is self._listening:
                    asked = self._answer(self._listening.accept()[0])
                    if asked is not None:
                        return asked
                else:
                    return None

    def _answer(self, connection: socket.socket) -> Json | None:
        data, descriptors, _, _ = socket.recv_fds(connection, MOST_BYTES, 3)
        if not data:
            connection.close()
            return None
        pid = os.fork()
        if pid:
            self._running[pid] = connection
            connection.send(str(pid).encode())
        else:
            self._leave(connection)
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
        for descriptor in descriptors:
            os.close(descriptor)
        return None if pid else json.loads(data)

    def _leave(self, connection: socket.socket) -> None:
        """In the forked process: keep nothing of the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for each in (self._listening, self._woken, self._wakes, connection, *self._running.values()):
            each.close()
        self._running.clear()

    def _tell_ends(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                with self._running.pop(ended[0]) as connection, contextlib.suppress(OSError):
                    connection.send(str(ended[1]).encode())


def become(asked: Json) -> None:
    """Take the place of an interpreter that was just started."""
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    if asked["session"]:
        os.setsid()
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _writer(1, "strict", unbuffered)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writer(2, "backslashreplace", unbuffered)  # type: ignore[misc]
    sys.path[0] = ""
    importlib.reload(clock)  # it begins with the process
    worker_process.WorkerProcess._start = _start_worker  # type: ignore[method-assign, assignment]
    if module := asked["module"]:
        sys.argv = ["-c"]
        importlib.import_module(module).main()
    else:
        sys.argv = ["-c", *asked["args"]]
        exec(asked["prelude"], {})
        run()


def _writer(number: int, errors: str, unbuffered: bool) -> io.TextIOWrapper:
    lines = number == 2 or unbuffered or os.isatty(number)
    raw = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
    return io.TextIOWrapper(raw, errors=errors, line_buffering=lines, write_through=unbuffered)


class _ForkedWorker:
    """What the manager needs of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self.stdin: asyncio.StreamWriter
        self.stdout: asyncio.StreamReader
        self.returncode: int | None = None
        self._connection = connection
        self._ended = asyncio.Event()
        connection.setblocking(False)
        asyncio.get_running_loop().add_reader(connection.fileno(), self._take_end)

    def _take_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._connection.fileno())
        with self._connection as connection:
            self.returncode = os.waitstatus_to_exitcode(int(connection.recv(64) or signal.SIGKILL))
        self.stdin.close()
        self._ended.set()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode


async def _start_worker(worker: worker_process.WorkerProcess) -> Any:
    """Start a manager's worker process as the manager itself was started."""
    theirs_in, ours_in = os.pipe()
    ours_out, theirs_out = os.pipe()
    env = {**os.environ, clock.VARIABLE: repr(clock.offset_s())}
    pid, connection = ask(
        sys.orig_argv[-1],
        {"module": worker._module, "args": [], "env": env, "cwd": os.getcwd(), "session": True},
        (theirs_in, theirs_out, 2),
    )
    os.close(theirs_in)
    os.close(theirs_out)
    made = _ForkedWorker(pid, connection)
    loop = asyncio.get_running_loop()
    made.stdout = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(made.stdout), io.FileIO(ours_out))
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, io.FileIO(ours_in, "w"))
    made.stdin = asyncio.StreamWriter(transport, protocol, None, loop)
    return made


def main() -> None:
    for module in (*(entry.target.partition(":")[0] for entry in COMMANDS), *PRELOADED):
        importlib.import_module(module)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(sys.argv[1])
    listening.listen(64)
    gc.collect()
    gc.freeze()  # or collecting garbage would copy every page
    asked = ForkServer(listening).serve()
    if asked is not None:
        become(asked)


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # NumPy's threads do not mind forks
    main()
