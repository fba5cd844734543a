"""A worker that can't be started: the question fails for now, and what asked goes on."""

from __future__ import annotations

import asyncio
import errno
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
