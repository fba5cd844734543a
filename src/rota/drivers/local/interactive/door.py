"""The way from the manager to the session host of a task."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from rota.core.errors import RotaError
from rota.drivers.local.task_runner.interactive.host import SOCKET, STREAMS
from rota.drivers.local.task_runner.processes import boot, send, start_time
from rota.drivers.local.task_runner.sessions import WANTED
from rota.store.run_folder import Json, read_json

OPENS_S = 10.0
"""How long a session host may take to come up."""
TRY_S = 0.02


class NoHost(RotaError):
    """There is no session host for a task, and there will be none."""


async def connect(folder: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection to the session host of the task of a folder, which is started if there is none.

    Raises `NoHost` if the task does not run.
    """
    deadline = asyncio.get_running_loop().time() + OPENS_S
    asked = False
    while True:
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError, ConnectionResetError):
            return await _open(folder)
        state = read_json(folder / "state.json") or {}
        if not _runs(state):
            raise NoHost("its task does not run")
        if not asked:
            (folder / WANTED).touch()
            asked = send(int(state["supervisor"]), int(state["supervisor_start"]), signal.SIGUSR1)
        if asyncio.get_running_loop().time() > deadline:
            raise NoHost("its supervisor does not answer; the machine may be busy; try again")
        await asyncio.sleep(TRY_S)


async def _open(folder: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect by a short name: a path longer than 107 bytes can't be one of a socket."""
    there = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{there}/{SOCKET}")
    finally:
        os.close(there)


def _runs(state: Json) -> bool:
    supervisor = int(state.get("supervisor", 0))
    return (
        state.get("phase") == "running"
        and state.get("boot") == boot()
        and start_time(supervisor) == state.get("supervisor_start")
    )


def error_parts(folder: Path) -> list[tuple[int, int]]:
    """Return which parts of the output of an ended task were errors, as offsets, where its streams were pipes."""
    found = read_json(folder / STREAMS) or {}
    return [(int(begin), int(end)) for begin, end in found.get("errors", ())]
