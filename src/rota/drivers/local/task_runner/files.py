"""The files through which a task's supervisor and the manager communicate."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time

from rota.drivers.local.task_runner.processes import boot, start_time

TYPE_CHECKING = False
"""As `typing` has it, which would take a tenth of a supervisor's start to import."""
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Json = dict[str, Any]

CHUNK = 65536
NUDGE_S = 0.5
SPARE_BYTES = 4096
TELL = "tell"
"""The pipe through which a task reports to its supervisor."""
AT_RUNG = "rung"
"""The cause of an order to stop that a supervisor gives, not the manager: its trial is at a rung."""


def await_folder() -> bytes:
    """Return what the manager sends; empty if it has exited. Detach the standard input then."""
    received = b""
    while not received.endswith(b"\n"):
        more = os.read(0, CHUNK)
        if not more:
            return b""
        received += more
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return received.rstrip(b"\n")


def make_pipe(name: str, uid: int | None, gid: int | None) -> int:
    """A pipe that a task may write to, and the end of it to read from."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name)
    os.mkfifo(name, 0o600)
    if uid is not None and gid is not None:
        os.chown(name, uid, gid)
    return os.open(name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def news_of_work(words: Sequence[bytes]) -> Json:
    """What a task that is stopped says of its work: that it is done all the same, or that there is more after all."""
    said = [word == b"done" for word in words if word in (b"done", b"more")]
    return {"done": said[-1]} if said else {}


def claim() -> bool:
    """Claim the task; return whether this process is the one that runs it."""
    mine = f"claim.{os.getpid()}"
    write(mine, {"supervisor": os.getpid(), "supervisor_start": start_time(os.getpid()), "boot": boot()})
    try:
        os.link(mine, "claim")
    except FileExistsError:
        return False
    finally:
        os.unlink(mine)
    return True


def nudge(pipe: str, token: str) -> None:
    """Notify the manager through its pipe of a change; one that does not run will read the files later."""
    try:
        end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # the manager does not run
        return
    deadline = time.monotonic() + NUDGE_S
    try:
        while time.monotonic() < deadline:
            try:
                os.write(end, f"{token}\n".encode())
            except BlockingIOError:  # it has not kept up with reading
                time.sleep(0.01)
            else:
                return
    except BrokenPipeError:
        return
    finally:
        os.close(end)


def read(name: str) -> Json:
    """A file's values."""
    with open(name, encoding="utf-8") as file:
        value: Json = json.load(file)
        return value


def write_when_possible(name: str, value: Json) -> None:
    """Write a file that must not get lost: while the disk is full, wait. If the folder was removed, skip it."""
    while True:
        try:
            write(name, value)
        except FileNotFoundError:
            return
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(f".{name}.{os.getpid()}")
            with contextlib.suppress(OSError):
                _write_into_spare(name, value)
                return
            time.sleep(0.2)
        else:
            return


def spare(names: Sequence[str]) -> None:
    """Keep some space for files that have to be written even if the disk is full by then."""
    for name in names:
        with contextlib.suppress(OSError):
            file = os.open(f".{name}.spare", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(file, 0, SPARE_BYTES)
            finally:
                os.close(file)


def drop_spares(names: Sequence[str]) -> None:
    """Give up the space that was kept."""
    for name in names:
        with contextlib.suppress(OSError):
            os.unlink(f".{name}.spare")


def _write_into_spare(name: str, value: Json) -> None:
    """Write a file atomically into the space that was kept for it; raise an `OSError` if there is none."""
    text = json.dumps(value).encode()
    if len(text) > SPARE_BYTES:
        raise OSError(errno.ENOSPC, "no space is kept for so much")
    file = os.open(f".{name}.spare", os.O_RDWR | os.O_CLOEXEC)
    try:
        os.pwrite(file, text, 0)
        os.ftruncate(file, len(text))
    finally:
        os.close(file)
    os.replace(f".{name}.spare", name)


def write(name: str, value: Json) -> None:
    """Write a file atomically; with the final state, also so that it survives a crash of the machine."""
    draft = f".{name}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        json.dump(value, file)
        file.flush()
        if value.get("phase") == "ended":
            os.fsync(file.fileno())
    os.replace(draft, name)
