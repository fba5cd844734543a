"""Batches on their way to the database when the loop is cancelled."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from rota.live.loop.storage import Storage
from rota.store.database import open_database
from rota.store.records import Records, WriteBatch


@pytest.mark.parametrize("batches", [1, 2])
def test_cancelled_write_leaves_no_lock_behind(tmp_path: Path, batches: int) -> None:
    records = Records(open_database(tmp_path / "rota.db"))
    records.begin_segment({"policy": "fifo"})
    storage = Storage(records)
    writer_may_go_on = threading.Event()

    async def cancelled_while_the_writer_is_busy() -> None:
        loop = asyncio.get_running_loop()
        busy = loop.run_in_executor(storage._writer, writer_may_go_on.wait)
        made = [WriteBatch(steps=[{"n": number, "body": '{"t": 1}'}]) for number in range(batches)]
        writing = asyncio.create_task(storage._write(made, False))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        writing.cancel()
        loop.call_later(0.05, writer_may_go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await writing
        await busy

    asyncio.run(cancelled_while_the_writer_is_busy())
    assert records.begin_segment({"policy": "las"}) == batches
    records.close()
