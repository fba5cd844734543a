"""Terminals in which nothing happens: warned after a while, and ended if that changes nothing."""

from __future__ import annotations

import contextlib
import os
import signal

from rota.drivers.local.task_runner.clock import now_s
from rota.drivers.local.task_runner.files import read, write
from rota.drivers.local.task_runner.processes import send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rota.drivers.local.task_runner.files import Json
    from rota.drivers.local.task_runner.interactive.session import HostSession

ENDED, WARNING = "idle.json", "idle-warning.json"
"""Files in the task's folder: that it is to be ended and why, for its supervisor; the warning, for the manager."""
NEVER = float("inf")
LOOK_S = 5.0


class IdleTerminals:
    """Applies the limit to the terminals of a task; one in which something happens after the warning is forgiven.

    The task's own is idle only if all sessions beside it are, those without a terminal as well.
    """

    def __init__(self, order: Json | None) -> None:
        given = order or {}
        self._main_s = float(given.get("main_after_s") or NEVER)
        self._beside_s = float(given.get("after_s") or NEVER)
        self._warn_s = float(given.get("warn_s") or 0.0)
        self._warned: dict[str, float] = {}
        self._ended: set[str] = set()
        self._active_s = 0.0
        self._looked_s = 0.0

    @property
    def is_on(self) -> bool:
        """Whether there is a limit at all."""
        return min(self._main_s, self._beside_s) < NEVER

    def next_s(self, sessions: Sequence[HostSession]) -> float:
        """Return when to look again."""
        if not self.is_on:
            return NEVER
        return min((self._due(each, self._since(each, sessions)) for each in sessions), default=NEVER)

    def look(self, sessions: Sequence[HostSession], now: float) -> Iterator[tuple[HostSession, str, bool]]:
        """Yield the terminals about which something is due, with words for them and whether they end now."""
        if not self.is_on:
            return
        self._forgive_rest(sessions, now)
        for session in sessions:
            since = self._since(session, sessions)
            if self._due(session, since) > now:
                continue
            after_s = self._after(session)
            what = "job" if session.is_main else "session"
            if session.name in self._warned:
                self._ended.add(session.name)
                yield session, f"this {what} ends: no input and no output for {_words(after_s)}", True
            else:
                self._warned[session.name] = now
                left = _words(self._warn(after_s))
                yield session, f"no input and no output for long; this {what} ends in {left} unless that changes", False

    def _after(self, session: HostSession) -> float:
        if not session.stdio.tty or session.exit is not None or session.name in self._ended:
            return NEVER
        return self._main_s if session.is_main else self._beside_s

    def _warn(self, after_s: float) -> float:
        return min(self._warn_s, after_s / 2)

    def _since(self, session: HostSession, sessions: Sequence[HostSession]) -> float:
        """Return since when nothing has happened."""
        if not session.is_main:
            return session.active_s
        self._active_s = max(self._active_s, *(each.active_s for each in sessions))
        return self._active_s

    def _due(self, session: HostSession, since: float) -> float:
        """Return when the next step about a session is due: the warning, then its end, never at once after it."""
        after_s = self._after(session)
        if after_s == NEVER:
            return NEVER
        warned = self._warned.get(session.name)
        if warned is not None and warned < since:
            del self._warned[session.name]
            warned = None
        if warned is None:
            return since + after_s - self._warn(after_s)
        return max(since + after_s, warned + self._warn(after_s))

    def _forgive_rest(self, sessions: Sequence[HostSession], now: float) -> None:
        """Count no time in which the task is suspended."""
        if now - self._looked_s < min(LOOK_S, self._main_s / 8, self._beside_s / 8):
            return
        self._looked_s = now
        with contextlib.suppress(OSError, ValueError):
            if read("state.json").get("rests_since_s") is not None:
                for each in sessions:
                    each.active_s = now


def tell_warning(text: str) -> None:
    """Leave the warning about the task's own terminal for the manager."""
    with contextlib.suppress(OSError):
        write(WARNING, {"at_s": now_s(), "code": "idle", "text": text})


def order_end(text: str) -> None:
    """Have the supervisor end the task."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        write(ENDED, {"text": text})
        state = read("state.json")
        send(int(state["supervisor"]), int(state["supervisor_start"]), signal.SIGUSR1)


def ordered_end() -> str:
    """Return why the task is to be ended; empty if it is not."""
    if not os.path.exists(ENDED):
        return ""
    with contextlib.suppress(OSError, ValueError):
        return str(read(ENDED)["text"])
    return ""


def _words(seconds: float) -> str:
    for unit_s, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.3g} {unit}"
    return f"{seconds:.3g} s"
