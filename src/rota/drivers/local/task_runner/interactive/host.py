"""The session host: a process beside the task that keeps terminals and serves the manager's connections to them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import time

from rota.drivers.local.task_runner.files import write
from rota.drivers.local.task_runner.interactive.client import HostClient
from rota.drivers.local.task_runner.interactive.frames import (
    DETACH,
    END_OF_INPUT,
    HANG_UP,
    INPUT,
    OPEN,
    OUTPUT,
    RECEIVED,
    SIGNAL,
    SIZE,
    FrameFault,
)
from rota.drivers.local.task_runner.interactive.idle import IdleTerminals, order_end, tell_warning
from rota.drivers.local.task_runner.interactive.opening import (
    CannotOpen,
    as_size,
    begin_command,
    begin_forward,
    open_order,
)
from rota.drivers.local.task_runner.interactive.session import MOST_INPUT, HostSession
from rota.drivers.local.task_runner.processes import started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rota.drivers.local.task_runner.files import Json
    from rota.drivers.local.task_runner.interactive.stdio import Stdio

SOCKET, STREAMS = "sessions.sock", "streams.json"
MOST_SESSIONS = 128
MOST_CLIENTS = 512
END_S = 0.4
"""How long the output of programs is waited for that outlive their session's first process."""
LINGER_S = 60.0
"""How long clients may take to fetch the rest after the task's end."""
FORGET_S = 600.0
"""How long a command beside the task goes on without a client."""
MAIN = "main"


class SessionHost:
    """All sessions of one task."""

    def __init__(self, task: Json, pid: int, start: int, stdio: Stdio | None, log: int) -> None:
        """`log` is where the output of an interactive task is written to be kept."""
        self._task = task
        self._pid, self._start = pid, start
        self._log = log
        self._sessions: dict[str, HostSession] = {}
        self._clients: dict[int, HostClient] = {}
        self._poller = select.poll()
        self._polled: dict[int, int] = {}
        self._number = 0
        self._idle = IdleTerminals(task.get("idle_sessions"))
        self._ended_at = float("inf")
        self._is_told_of_end = False
        if stdio is not None:
            for end in stdio.ours():
                os.set_blocking(end, False)
            self._sessions[MAIN] = HostSession(MAIN, stdio, pid, start, is_main=True)
        try:
            self._finished = os.pidfd_open(pid)
        except ProcessLookupError:  # a quick one has ended already
            self._finished = -1
            self._task_ended()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET)
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        before = os.umask(0o177)
        self._door.bind(SOCKET)
        os.umask(before)
        self._door.listen(64)

    def run(self) -> None:
        """Serve until the task has ended and all clients have got the rest."""
        while not self._is_done():
            self._poll_for(self._interest())
            for fd, event in self._poller.poll(self._wait_s() * 1000):
                self._handle(fd, event)
            self._look_after()
        with contextlib.suppress(OSError):
            os.unlink(SOCKET)

    # -- waiting ---------------------------------------------------------------------------------

    def _interest(self) -> dict[int, int]:
        now = time.monotonic()
        wanted = {self._door.fileno(): select.POLLIN}
        if self._ended_at == float("inf"):
            wanted[self._finished] = select.POLLIN
        for session in self._sessions.values():
            if session.exit is None and not session.is_main:
                wanted[session.pidfd] = select.POLLIN
            if session.wants_output(now):
                for end in session.outputs:
                    wanted[end] = select.POLLIN
            if session.waiting and session.input >= 0:
                wanted[session.input] = wanted.get(session.input, 0) | select.POLLOUT
        for fd, client in self._clients.items():
            has_room = client.session is None or len(client.session.waiting) < MOST_INPUT
            wanted[fd] = (select.POLLIN if has_room else 0) | (select.POLLOUT if client.has_unsent else 0)
        return wanted

    def _poll_for(self, wanted: dict[int, int]) -> None:
        for fd in self._polled.keys() - wanted.keys():
            with contextlib.suppress(KeyError, OSError):
                self._poller.unregister(fd)
        for fd, events in wanted.items():
            if self._polled.get(fd) != events:
                self._poller.register(fd, events)
        self._polled = wanted

    def _wait_s(self) -> float:
        now = time.monotonic()
        due = [session.over_at for session in self._sessions.values() if session.outputs]
        if self._ended_at != float("inf"):
            due.append(now + 0.2)
        due.append(self._idle.next_s(list(self._sessions.values())))
        return min(max(min(due, default=now + 5.0) - now, 0.0), 5.0)

    def _handle(self, fd: int, event: int) -> None:
        if fd == self._door.fileno():
            self._accept()
        elif fd == self._finished:
            self._task_ended()
        elif fd in self._clients:
            self._serve(self._clients[fd], event)
        else:
            for session in list(self._sessions.values()):
                if fd == session.pidfd and not session.is_main and session.exit is None:
                    self._reap(session)
                    return
                if fd in session.outputs or fd == session.input:
                    self._move(session, fd, event)
                    return

    def _move(self, session: HostSession, fd: int, event: int) -> None:
        if fd == session.input and event & (select.POLLOUT | select.POLLERR):
            session.write()
            for client in list(session.clients):
                client.confirm()
                self._pump(client)
        if fd in session.outputs and event & ~select.POLLOUT:
            output = session.read(fd)
            if output and session.is_main:
                self._keep(output)
            for client in list(session.clients):
                self._pump(client)
        if fd not in session.outputs:
            self._polled.pop(fd, None)
            with contextlib.suppress(KeyError, OSError):
                self._poller.unregister(fd)

    def _keep(self, output: bytes) -> None:
        """Hand the output of the task on to its supervisor, which keeps it."""
        try:
            while output:
                output = output[os.write(self._log, output) :]
        except OSError:  # the supervisor is gone, and the task will be ended
            return

    # -- clients ---------------------------------------------------------------------------------

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._door.accept()
                peer = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                if peer[1] not in (0, os.geteuid()) or len(self._clients) >= MOST_CLIENTS:
                    connection.close()
                    continue
                self._clients[connection.fileno()] = HostClient(connection)

    def _serve(self, client: HostClient, event: int) -> None:
        if event & ~select.POLLOUT:
            try:
                frames = client.receive()
                if frames is None:
                    self._drop(client)
                    return
                for kind, payload in frames:
                    self._obey(client, kind, payload)
            except (FrameFault, CannotOpen, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                client.fail(str(error) or type(error).__name__)
        self._pump(client)

    def _pump(self, client: HostClient) -> None:
        if not client.pump() or ((client.closes or client.has_all) and not client.has_unsent):
            self._drop(client)

    def _drop(self, client: HostClient) -> None:
        fd = client.connection.fileno()
        if self._clients.pop(fd, None) is None:
            return
        if self._polled.pop(fd, None) is not None:
            self._poller.unregister(fd)
        client.close()

    def _obey(self, client: HostClient, kind: bytes, payload: bytes) -> None:
        """Carry out what a client asks for."""
        session = client.session
        if kind == OPEN and session is None and not client.closes:
            self._open(client, open_order(payload))
        elif session is None or client.only_watches:
            return
        elif kind == INPUT:
            client.take(payload)
        elif kind == RECEIVED:
            client.has_passed_on(int(payload))
        elif kind == END_OF_INPUT:
            session.end_input()
        elif kind == SIZE:
            session.resize(*as_size(json.loads(payload)))
        elif kind == SIGNAL:
            session.signal(payload.decode("ascii", "replace"))
        elif kind in (HANG_UP, DETACH):
            client.left_on_purpose = client.closes = True
            if kind == HANG_UP and not session.is_main:
                self._hang_up(session)

    def _open(self, client: HostClient, order: dict[str, Any]) -> None:
        mode, key, since = order["mode"], str(order.get("key", "")), order.get("since")
        if mode == "list":
            client.tell(
                OPEN, json.dumps({"sessions": [self._about(each) for each in self._sessions.values()]}).encode()
            )
            client.closes = True
            return
        if mode in ("exec", "forward", "ssh"):
            session = self._begin(order)
        else:
            name = str(order.get("session") or MAIN)
            found = self._sessions.get(name)
            if found is None or found.is_forward:
                raise CannotOpen("the task has no terminal" if name == MAIN else f"there is no session {name[:40]!r}")
            session = found
            if size := order.get("size"):
                rows, columns = as_size(size)
                session.resize(rows + 1, columns)  # a change, so that programs draw their screen again
                session.resize(rows, columns)
            if (tail := order.get("tail")) is not None:
                since = max(session.ring.end - int(tail), session.ring.start)
        client.join(session, key, since, only_watches=bool(order.get("watch")))

    def _about(self, session: HostSession) -> dict[str, Any]:
        return {
            "session": session.name,
            "command": session.command,
            "tty": session.stdio.tty,
            "clients": len(session.clients),
            "idle_s": round(time.monotonic() - session.active_s, 1),
        }

    def _begin(self, order: dict[str, Any]) -> HostSession:
        """Begin a command beside the task, or a connection to one of its ports or to a server of SSH."""
        if self._ended_at != float("inf") or started(self._pid) != self._start:
            raise CannotOpen("the task has ended")
        if len(self._sessions) >= MOST_SESSIONS:
            raise CannotOpen(f"the task has {MOST_SESSIONS} sessions already; end some")
        mode, beside = order["mode"], (self._pid, self._start)
        if mode == "forward":
            stdio, pid = begin_forward(self._task, order, beside)
        else:
            stdio, pid = begin_command(self._task, order, beside)
        self._number += 1
        session = HostSession(str(self._number), stdio, pid, started(pid), is_forward=mode != "exec")
        session.command = " ".join(map(str, order["argv"]))[:200] if mode == "exec" else _place(order)
        self._sessions[session.name] = session
        return session

    # -- ends ------------------------------------------------------------------------------------

    def _hang_up(self, session: HostSession) -> None:
        session.hang_up()
        session.over_at = min(session.over_at, time.monotonic() + END_S)

    def _reap(self, session: HostSession) -> None:
        _, status = os.waitpid(session.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        session.exit = {"code": code if code >= 0 else 128 - code}
        session.over_at = time.monotonic() + END_S

    def _task_ended(self) -> None:
        """The task's first process has ended: so do the commands beside it."""
        now = self._ended_at = time.monotonic()
        for session in self._sessions.values():
            if session.is_main:
                session.exit, session.over_at = {}, now + END_S
            elif session.exit is None:
                self._hang_up(session)

    def _look_after(self) -> None:
        """Finish sessions that are over, and end those without a client for long."""
        now = time.monotonic()
        self._look_for_idle(now)
        for session in list(self._sessions.values()):
            is_lost = session.is_forward and not session.clients
            if session.exit is None and (is_lost or session.over_at <= now):
                session.kill()
                session.over_at = float("inf")
            if session.exit is not None and session.outputs and session.over_at <= now:
                while any(session.read(end) for end in list(session.outputs)):
                    pass
                session.outputs.clear()
            if session.is_over:
                self._finish(session, now)
            elif not session.is_main and session.lost_s is not None and now - session.lost_s > FORGET_S:
                self._hang_up(session)

    def _look_for_idle(self, now: float) -> None:
        """Warn idle terminals on their screens, and end those that stay idle."""
        for session, words, ends in self._idle.look(list(self._sessions.values()), now):
            said = f"\r\nrota: {words}\r\n".encode()
            session.ring.add(OUTPUT, said)
            if session.is_main:
                self._keep(said)
                if ends:
                    order_end(words.partition(": ")[2])
                else:
                    tell_warning(words)
            elif ends:
                self._hang_up(session)
            for client in list(session.clients):
                self._pump(client)

    def _finish(self, session: HostSession, now: float) -> None:
        if session.is_main and not self._is_told_of_end:
            self._is_told_of_end = True
            if session.errors:
                with contextlib.suppress(OSError):
                    write(STREAMS, {"errors": session.errors})
            os.close(self._log)
        for client in list(session.clients):
            self._pump(client)
        is_fetched = session.lost_s is not None and not session.clients
        linger_s = -1.0 if session.is_forward else LINGER_S
        if not session.is_main and is_fetched and now - (session.lost_s or now) > linger_s:
            session.close()
            del self._sessions[session.name]

    def _is_done(self) -> bool:
        if self._ended_at == float("inf"):
            return False
        if any(not session.is_over for session in self._sessions.values()):
            return False
        return not self._clients or time.monotonic() - self._ended_at > LINGER_S


def _place(order: dict[str, Any]) -> str:
    """Name what a connection leads to, for the list of sessions."""
    if order["mode"] == "ssh":
        return "ssh"
    return f"port {order['port']}" if order.get("service") is None else f"service {order['service']}"


def be_host(task: Json, pid: int, start: int, stdio: Stdio | None, log: int) -> None:
    """In a process that the supervisor has forked: be the session host of its task. Does not return."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        kept = {0, 1, 2, log, *(() if stdio is None else stdio.ours())}
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in kept:
                with contextlib.suppress(OSError):
                    os.close(int(name))
        SessionHost(task, pid, start, stdio, log).run()
    finally:
        os._exit(0)
