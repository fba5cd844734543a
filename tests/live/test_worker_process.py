"""Workers that can't be started, and workers whose manager is gone."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from rota.core.errors import Unavailable
from rota.live.loop import storage
from rota.live.workers.worker_process import WorkerProcess


def test_worker_that_can_not_be_started_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*words: Any, **given: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fails)

    with pytest.raises(Unavailable, match="can't be started now: Too many open files; try again"):
        asyncio.run(WorkerProcess("rota.live.workers.forecast_worker").ask({}))


def test_upkeep_without_descriptors_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    async def upkeep() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(storage, "UPKEEP_S", 0.0)
    asyncio.run(storage.through_outages(upkeep))

    assert len(tries) == 3


BUSY = """
import sys
from rota.live.workers.worker_process import answer_all

def answer(question):
    print("begun", file=sys.stderr, flush=True)
    while True:
        pass

answer_all(answer)
"""


def test_busy_worker_ends_with_its_manager() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=pipe, stdout=pipe, stderr=pipe) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stderr is not None
        worker.stdin.write(b"{}\n")
        worker.stdin.flush()
        assert worker.stderr.readline() == b"begun\n"

        worker.stdout.close()
        worker.stdin.close()

        try:
            assert worker.wait(timeout=30) == 0
        finally:
            worker.kill()


@pytest.mark.parametrize("cancelled_after", [1, 2, 3])
def test_worker_ends_though_nothing_waits_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cancelled_after: int
) -> None:
    """Another worker has taken its place, and the manager stops before the first has ended."""
    (tmp_path / "echo.py").write_text(
        "from rota.live.workers.worker_process import answer_all as m\nmain = lambda: m(dict)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async def course() -> int | None:
        worker = WorkerProcess("echo")
        await worker.ask({})
        retiring = asyncio.create_task(worker.retire())
        for _ in range(cancelled_after):
            await asyncio.sleep(0)
        retiring.cancel()
        with suppress(asyncio.CancelledError):
            await retiring
        assert worker._process is not None
        return worker._process.returncode

    assert asyncio.run(course()) is not None


KEEPS_ITS_PIPE = """
import os, signal, subprocess
from rota.live.workers.worker_process import answer_all

def answer(question):
    subprocess.Popen(["sleep", "60"])
    os.kill(os.getpid(), signal.SIGKILL)

def main():
    answer_all(lambda question: answer(question) if question else {})
"""


def test_question_to_a_worker_that_has_ended_may_be_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a term closes the worker and cancels the open question before it has seen the end of the answers."""
    (tmp_path / "keeping.py").write_text(KEEPS_ITS_PIPE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async def course() -> None:
        worker = WorkerProcess("keeping")
        await worker.ask({})
        first = worker._process
        assert first is not None
        try:
            asking = asyncio.create_task(worker.ask({"last": True}))
            await first.wait()
            assert not asking.done()
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking
            assert await worker.ask({}) == {}
            await worker.close()
        finally:
            os.killpg(first.pid, signal.SIGKILL)
            assert first.stdout is not None
            await first.stdout.read()  # to its end, or the loop would be closed with an open pipe

    uvloop.run(course())
