"""Workers that can't be started, and workers whose manager is gone."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

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
