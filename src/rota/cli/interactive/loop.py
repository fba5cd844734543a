"""A session at the user's terminal or between pipes: one loop over what is typed and what is said."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rota.cli.interactive import terminal_mode
from rota.cli.interactive.terminal_mode import HELP, Escapes
from rota.cli.terminal import echo
from rota.core.errors import RotaError, Unavailable
from rota.core.neutral_text import neutral
from rota.drivers.local.task_runner.interactive.frames import (
    DETACH,
    END_OF_INPUT,
    ERROR_OUTPUT,
    EXIT,
    FAILURE,
    HANG_UP,
    INPUT,
    NOTE,
    OPEN,
    OUTPUT,
    RECEIVED,
    SIGNAL,
    SIZE,
)
from rota.sdk.client import Client
from rota.sdk.websocket import ClientSocket, SocketClosed

CHUNK = 32768
MOST_UNCONFIRMED = 512 << 10
"""Input that may be on its way; it is kept, to be sent again if the connection is lost."""
COMES_BACK_S = 60.0
TRY_AGAIN_S = 0.3
FAILED, LOST, INTERRUPTED = 1, 255, 130
REVOKED = 4401
TWICE_S = 1.0
"""Two Ctrl-C within this time end a job whose input is no terminal."""


@dataclass(kw_only=True)
class SessionPlan:
    """What a command wants of its session."""

    job_id: str
    mode: str = "attach"
    task: int = 0
    tty: bool = False
    argv: list[str] = field(default_factory=list)
    session: str = ""
    since: int | None = None
    tail: int | None = None
    watch: bool = False
    has_input: bool = True
    is_own: bool = False
    """Whether the job was submitted for this session, and Ctrl-C before its start cancels it."""


class SessionLoop:
    """A session of this process."""

    def __init__(self, connect: Callable[[], Client], plan: SessionPlan) -> None:
        self._connect = connect
        self._plan = plan
        self._key = secrets.token_hex(8)
        self._socket: ClientSocket | None = None
        self._at = plan.since
        self._unconfirmed = bytearray()
        self._confirmed = 0
        self._is_open = False
        self._has_input_end = not plan.has_input
        self._escapes = Escapes() if plan.tty else None
        self._interrupted_s = 0.0
        self._wake, self._woken = os.pipe()
        self._left = False
        self._status: int | None = None

    def run(self) -> int:
        """Take part in the session until it is over; return the exit status."""
        os.set_blocking(self._woken, False)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        held = [signal.SIGWINCH, signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
        before = {number: signal.signal(number, lambda *_: None) for number in held}
        try:
            self._open()
            with terminal_mode.raw() if self._plan.tty else contextlib.nullcontext():
                while self._status is None:
                    self._turn()
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            if self._socket is not None:
                self._socket.close()
        return self._status

    # -- the connection --------------------------------------------------------------------------

    def _open(self) -> None:
        plan = self._plan
        asked: dict[str, object] = {"mode": plan.mode, "task": plan.task}
        if plan.session or self._at is not None:
            asked["session"] = plan.session
        if plan.mode == "attach" and self._at in (None, 0):
            asked.pop("session", None)
        self._is_open = False
        self._socket = self._connect().session(plan.job_id, **asked)
        order: dict[str, Any] = {"argv": plan.argv, "tty": plan.tty, "key": self._key, "since": self._at}
        order |= {"received": self._confirmed or None, "session": plan.session or None, "watch": plan.watch}
        if plan.tail is not None and self._at is None:
            order["tail"] = plan.tail
        if plan.tty:
            order |= {"size": terminal_mode.size(), "term": os.environ.get("TERM", "xterm")}
        self._socket.send(OPEN + json.dumps(order).encode())

    def _come_back(self, code: int | None) -> None:
        """After the connection was lost: find the manager again, which may be another process by now."""
        if code == REVOKED:
            self._say("the session has ended: the token is no longer valid")
            self._status = LOST
            return
        is_new = self._plan.mode == "exec" and not self._plan.session
        deadline = time.monotonic() + COMES_BACK_S
        if is_new:
            self._say("the connection to the manager is lost, and the command with it")
            self._status = LOST
            return
        self._say("the connection to the manager is lost; trying to come back (Ctrl-C gives up)")
        while time.monotonic() < deadline:
            if select.select([self._wake], [], [], TRY_AGAIN_S)[0] and signal.SIGINT in os.read(self._wake, 64):
                break
            with contextlib.suppress(Unavailable, SocketClosed):
                try:
                    self._open()
                except RotaError as error:
                    if isinstance(error, Unavailable):
                        raise
                    self._say(str(error))
                    self._status = LOST
                return
        self._say(f"the manager is gone; {self._way_back()}")
        self._status = LOST

    def _way_back(self) -> str:
        if self._plan.mode == "exec" and not self._plan.session:
            return f"job {self._plan.job_id} goes on; the command beside it is not come back to"
        again = f" --session {self._plan.session}" if self._plan.mode == "exec" else ""
        return f"job {self._plan.job_id} goes on; come back with `rota attach {self._plan.job_id}{again}`"

    # -- one turn --------------------------------------------------------------------------------

    def _turn(self) -> None:
        assert self._socket is not None
        waits: list[Any] = [self._wake, self._socket]
        if self._is_open and not self._has_input_end and len(self._unconfirmed) < MOST_UNCONFIRMED:
            waits.append(0)
        ready = [self._socket] if self._socket.has_more else select.select(waits, [], [])[0]
        try:
            if self._wake in ready:
                for number in os.read(self._wake, 64):
                    self._signalled(number)
            if self._socket in ready:
                for message in self._socket.receive():
                    self._hear(message[:1], message[1:])
            if 0 in ready and self._status is None:
                self._typed(os.read(0, CHUNK))
        except SocketClosed as closed:
            if self._status is None:
                self._come_back(closed.code)

    def _send(self, kind: bytes, payload: bytes = b"") -> None:
        if self._socket is not None and self._is_open:
            self._socket.send(kind + payload)

    def _typed(self, typed: bytes) -> None:
        if self._escapes is not None and typed:
            typed, asked = self._escapes.read(typed)
            if asked == "help":
                os.write(1, HELP)
            elif asked == "leave":
                self._leave()
                return
            if not typed:
                return
        if typed:
            self._unconfirmed += typed
            self._send(INPUT, typed)
        else:
            self._has_input_end = True
            self._send(END_OF_INPUT)

    def _leave(self) -> None:
        self._send(DETACH)
        self._say(self._way_back())
        self._status = 0

    def _signalled(self, number: int) -> None:
        if number == signal.SIGWINCH:
            if self._plan.tty:
                self._send(SIZE, json.dumps(terminal_mode.size()).encode())
        elif number == signal.SIGINT:
            self._interrupted()
        elif number in (signal.SIGTERM, signal.SIGHUP):
            self._send(HANG_UP if self._plan.mode == "exec" else DETACH)
            self._status = 128 + number

    def _interrupted(self) -> None:
        """Ctrl-C without a terminal of the session's own: it is the job's; a second one soon ends the job."""
        now = time.monotonic()
        is_second, self._interrupted_s = now - self._interrupted_s < TWICE_S, now
        if self._plan.watch:
            self._leave()
        elif self._is_open and not is_second:
            self._send(SIGNAL, b"INT")
        elif self._plan.is_own:
            self._connect().act(self._plan.job_id, "cancel")
            self._say(f"job {self._plan.job_id} cancelled")
            self._status = INTERRUPTED
        else:
            self._send(HANG_UP)
            self._status = INTERRUPTED

    # -- what is heard ---------------------------------------------------------------------------

    def _hear(self, kind: bytes, payload: bytes) -> None:
        if kind in (OUTPUT, ERROR_OUTPUT):
            self._at = (self._at or 0) + len(payload)
            _write(1 if kind == OUTPUT else 2, payload)
        elif kind == RECEIVED:
            self._confirm(int(payload))
        elif kind == NOTE:
            self._say(payload.decode(errors="replace"))
        elif kind == OPEN:
            self._opened(json.loads(payload))
        elif kind == FAILURE:
            self._say(payload.decode(errors="replace"))
            self._status = FAILED
        elif kind == EXIT:
            self._status = self._ended(json.loads(payload))

    def _opened(self, told: dict[str, Any]) -> None:
        if told.get("skipped"):
            self._say(f"{told['skipped']} bytes of output were skipped; see `rota logs {self._plan.job_id}`")
        self._at, self._is_open = int(told["offset"]), True
        if self._plan.mode == "exec":
            self._plan.session = str(told["session"])
        self._confirm(int(told["received"]))
        if self._unconfirmed:
            for at in range(0, len(self._unconfirmed), CHUNK):
                self._send(INPUT, bytes(self._unconfirmed[at : at + CHUNK]))
        if self._has_input_end:
            self._send(END_OF_INPUT)

    def _confirm(self, total: int) -> None:
        """Forget input that has arrived; with a new attempt of the job, the count begins again."""
        if total >= self._confirmed:
            del self._unconfirmed[: total - self._confirmed]
        else:
            self._unconfirmed.clear()
        self._confirmed = total

    def _ended(self, told: dict[str, Any]) -> int:
        state = told.get("state")
        if state is None or state == "succeeded":
            return int(told.get("code") or 0)
        if told.get("message") and (state != "failed" or not told.get("code")):
            self._say(f"job {self._plan.job_id} {state}: {told['message']}")
        elif state == "cancelled":
            self._say(f"job {self._plan.job_id} was cancelled")
        return int(told.get("code") or (103 if state == "cancelled" else FAILED))

    def _say(self, text: str) -> None:
        """Tell the user something of ours, on a line of its own."""
        if self._plan.tty:
            os.write(2, f"\r\n[rota: {neutral(text)}]\r\n".encode())
        else:
            echo(f"rota: {text}", err=True)


def _write(end: int, output: bytes) -> None:
    """Write all of it; a reader that has left ends this process as it ends others."""
    try:
        while output:
            output = output[os.write(end, output) :]
    except BlockingIOError:  # another process made our terminal non-blocking
        select.select([], [end], [])
        _write(end, output)
