"""What a client asks a session host to open, checked, and the start of a command beside the task."""

from __future__ import annotations

import json
import os
import re

from rota.drivers.local.task_runner.interactive.carry import carry, carry_service
from rota.drivers.local.task_runner.interactive.ssh_server import MOST_KEYS, are_keys, server_words
from rota.drivers.local.task_runner.interactive.stdio import COLUMNS, ROWS, Stdio
from rota.drivers.local.task_runner.recorder import become

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from rota.drivers.local.task_runner.files import Json

_TERM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
SERVICE = re.compile(r"[a-z][a-z0-9-]{0,30}")
"""The name of a service of a job."""
MODES = ("attach", "exec", "forward", "ssh", "list")
MOST_WORDS = 4096
MOST_PORT = 65535


class CannotOpen(Exception):
    """Why something can't be opened, in one line for the user."""


def open_order(payload: bytes) -> dict[str, Any]:
    """Return what to open; raise `CannotOpen` for what is no such order."""
    order = json.loads(payload)
    if not isinstance(order, dict) or order.get("mode") not in MODES:
        raise CannotOpen(f"mode: it must be one of {', '.join(MODES)}")
    since = order.get("since")
    if since is not None and (not isinstance(since, int) or since < 0):
        raise CannotOpen("since: it must be an offset")
    if order["mode"] == "forward":
        _check_place(order)
    if order["mode"] == "ssh":
        if not are_keys(keys := order.get("keys", [])):
            raise CannotOpen(f"keys: it must be a list of at most {MOST_KEYS} public keys, each its kind and content")
        order |= {"argv": server_words(keys), "tty": False}
    if order["mode"] == "exec":
        argv = order.get("argv") or default_shell()
        if not isinstance(argv, list) or len(argv) > MOST_WORDS or not all(isinstance(word, str) for word in argv):
            raise CannotOpen("argv: it must be a list of words")
        if any("\0" in word for word in argv) or not argv[0]:
            raise CannotOpen("argv: a word holds a NUL character, or the first one is empty")
        order["argv"] = argv
    return order


def _check_place(order: dict[str, Any]) -> None:
    """Raise `CannotOpen` unless an order names a port, or a service by its name."""
    service = order.get("service")
    if service is not None:
        if not isinstance(service, str) or SERVICE.fullmatch(service) is None:
            raise CannotOpen("service: it must be a name of small letters, digits and dashes")
    elif not (type(order.get("port")) is int and 1 <= order["port"] <= MOST_PORT):
        raise CannotOpen(f"port: it must be from 1 to {MOST_PORT}")


def default_shell() -> list[str]:
    """The shell for commands that name none, as a login has it."""
    return ["/bin/sh", "-c", 'command -v bash >/dev/null 2>&1 && exec bash || exec "${SHELL:-/bin/sh}"']


def as_size(value: object) -> tuple[int, int]:
    """Return rows and columns."""
    if not isinstance(value, list) or len(value) != 2 or not all(type(each) is int for each in value):
        raise CannotOpen("size: it must be rows and columns")
    return value[0], value[1]


def begin_command(task: Json, order: dict[str, Any], beside: tuple[int, int]) -> tuple[Stdio, int]:
    """Fork a command that runs where the task runs, as its user and with its variables; return its streams and id."""
    rows, columns = as_size(order.get("size") or [ROWS, COLUMNS])
    stdio = Stdio(tty=bool(order.get("tty")), rows=rows, columns=columns)
    term = order.get("term")
    env = dict(task["env"])
    if stdio.tty:
        env["TERM"] = term if isinstance(term, str) and _TERM.fullmatch(term) else "xterm"
    return stdio, _fork({**task, "argv": order["argv"], "env": env}, stdio, beside)


def begin_forward(task: Json, order: dict[str, Any], beside: tuple[int, int]) -> tuple[Stdio, int]:
    """Fork a process that connects to a port or service where the task runs, as its user; return its streams and id."""
    stdio = Stdio(tty=False)
    service = order.get("service")
    if service is None:
        return stdio, _fork(task, stdio, beside, lambda: carry(order["port"], own=bool(order.get("own"))))
    folder = task["env"].get("ROTA_RUN_DIR", "")
    return stdio, _fork(task, stdio, beside, lambda: carry_service(folder, service))


def _fork(task: Json, stdio: Stdio, beside: tuple[int, int], work: Callable[[], int] | None = None) -> int:
    confined, confines = os.pipe()
    try:
        pid = os.fork()
        if pid == 0:
            become(task, stdio.its, confines, beside, work)
    except OSError:
        stdio.close_ours()
        raise
    finally:
        stdio.close_its()
        os.close(confined)
        os.close(confines)
    for end in stdio.ours():
        os.set_blocking(end, False)
    return pid
