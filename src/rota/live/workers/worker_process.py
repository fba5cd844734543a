"""A process that answers questions without blocking the loop: one line of JSON each way."""

from __future__ import annotations

import asyncio
import json
import os
import select
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy.exc import DBAPIError

from rota.core.errors import BuiltInFault, RotaError, Unavailable
from rota.live.workers.fair_turns import MANAGER, FairTurns
from rota.store import clock

Json = dict[str, Any]
NICE = 5
"""Niceness of the process."""


class WorkerProcess:
    """Client of a worker. The process is started with the first question, and ends with its standard input."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._turns = FairTurns()
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, question: Json, asker: str = MANAGER) -> Json:
        """Return the answer of the process; raise its errors. Askers are served in rotation."""
        async with self._turns.turn(asker):
            answer = await self._ask(json.dumps(question))
        if "error" in answer:
            raise RotaError(answer["error"])
        return answer

    async def _ask(self, question: str) -> Json:
        process = self._process
        if process is None or process.returncode is not None or process.stdin is None or process.stdin.is_closing():
            _kill(process)
            process = self._process = await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{question}\n".encode())
        try:
            line = await process.stdout.readline()
        except asyncio.CancelledError:
            _kill(process)  # the next caller must not get this answer
            raise
        if not line:
            raise Unavailable("the worker process ended before it answered; try again")
        answer: Json = json.loads(line)
        return answer

    async def _start(self) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                f"from {self._module} import main; main()",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, clock.VARIABLE: repr(clock.offset_s())},
            )
        except OSError as error:  # no descriptors or no memory are left
            raise Unavailable(f"a worker process can't be started now: {error.strerror or error}; try again") from error

    async def retire(self) -> None:
        """Stop the worker after the open questions; at once where that is cancelled."""
        try:
            async with self._turns.turn(MANAGER):
                await self.close()
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop the worker."""
        if self._process is not None and self._process.returncode is None:
            _kill(self._process)
            await self._process.wait()


def _kill(process: asyncio.subprocess.Process | None) -> None:
    """End a worker, which may have ended already: `close` may come while its answer is awaited."""
    if process is not None and process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()


def answer_all(answer: Callable[[Json], Json]) -> None:
    """Answer questions until there are no more."""
    os.nice(NICE)
    threading.Thread(target=_end_with_manager, daemon=True).start()
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except (BuiltInFault, RotaError) as error:
            reply = {"error": str(error)}
        except DBAPIError as error:
            reply = {"error": f"the database can't be read now: {' '.join(str(error.orig).split())}"}
        try:
            sys.stdout.write(f"{json.dumps(reply)}\n")
            sys.stdout.flush()
        except BrokenPipeError:  # the manager is gone
            os._exit(0)


def _end_with_manager() -> None:
    """End this process when no manager reads its answers any more, however long the present one would take."""
    answers = select.poll()
    answers.register(sys.stdout.fileno(), 0)  # errors only: the other end of the pipe is closed
    answers.poll()
    os._exit(0)
