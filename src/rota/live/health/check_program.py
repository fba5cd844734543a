"""Runs one program that checks a node: bounded in time and output, and together with all that it starts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from rota.drivers.local.task_runner.processes import TaskProcesses, started
from rota.health.checks.result import MOST_BYTES, CheckResult, broken_check, decode_result

MOST_OUTPUT = 16 << 20
"""A check that prints more bytes is ended."""
LEFT_S = 1.0
"""What a check left running may hold its output open for this long after it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckProgram:
    """A program that checks a node."""

    name: str
    command: tuple[str, ...]
    is_own: bool = False
    """Whether it is one of Rota's checks."""


class _OutputEnd(asyncio.Protocol):
    """The end of what a program prints; `closed` is done when nothing can follow, `flooded` when it is too much."""

    def __init__(self) -> None:
        self.kept = bytearray()
        self._seen = 0
        loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.flooded: asyncio.Future[None] = loop.create_future()

    def data_received(self, data: bytes) -> None:
        """Keep the last part."""
        self.kept += data
        del self.kept[:-MOST_BYTES]
        self._seen += len(data)
        if self._seen > MOST_OUTPUT and not self.flooded.done():
            self.flooded.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing follows."""
        if not self.closed.done():
            self.closed.set_result(None)


async def run_program(program: CheckProgram, env: Mapping[str, str], timeout_s: float) -> CheckResult:
    """Return what a program found; one that can't be run, takes too long or prints too much is a broken check."""
    token = secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        try:
            ends, pipes = await _open_pipes(stack)
            process = await asyncio.create_subprocess_exec(
                *program.command,
                env={**env, "ROTA_TASK_TOKEN": token},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=pipes[0],
                stderr=pipes[1],
                start_new_session=True,
            )
        except OSError as error:  # also for want of descriptors, which says nothing about the node
            return broken_check(program.name, f"it can't be run: {error.strerror}")
        for pipe in pipes:
            pipe.close()
        everything = TaskProcesses(process.pid, started(process.pid), token)
        why = await _wait(process, everything, ends, timeout_s)
        if why is not None:
            return broken_check(program.name, why)
        return decode_result(program.name, process.returncode or 0, *(bytes(end.kept) for end in ends))


async def _open_pipes(stack: contextlib.ExitStack) -> tuple[list[_OutputEnd], list[IO[bytes]]]:
    """Open a pipe for each output of a program: our ends, and those for the program."""
    ends: list[_OutputEnd] = []
    pipes: list[IO[bytes]] = []
    for _ in range(2):
        read, write = os.pipe()
        pipes.append(stack.enter_context(os.fdopen(write, "wb")))
        transport, end = await asyncio.get_running_loop().connect_read_pipe(_OutputEnd, os.fdopen(read, "rb"))
        stack.callback(transport.close)
        ends.append(end)
    return ends, pipes


async def _wait(
    process: asyncio.subprocess.Process, everything: TaskProcesses, ends: list[_OutputEnd], timeout_s: float
) -> str | None:
    """Wait for the end of a program, and end what it leaves; return why it had to be ended, if it had to."""
    ended = asyncio.ensure_future(process.wait())
    try:
        until: list[asyncio.Future[Any]] = [ended, *(end.flooded for end in ends)]
        await asyncio.wait(until, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            _, still_open = await asyncio.wait([end.closed for end in ends], timeout=LEFT_S)
            if still_open:
                await asyncio.to_thread(everything.end)
            return None
        if any(end.flooded.done() for end in ends):
            return f"it printed more than {MOST_OUTPUT >> 20} MiB"
        return f"it took longer than {timeout_s:g} s"
    finally:
        if not ended.done():
            await asyncio.to_thread(everything.end)
            await ended
