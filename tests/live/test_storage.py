"""Batches on their way to the database when the loop is cancelled or the file is taken away."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from rota.live.loop.storage import CantStore, Storage
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


def test_file_that_was_replaced_is_called_so_even_if_a_reader_sees_it_first(tmp_path: Path) -> None:
    """A new connection makes an empty file in place of the one that is gone, in which no table is."""
    path = tmp_path / "rota.db"
    engine = open_database(path)
    records = Records(engine)
    records.begin_segment({"policy": "fifo"})
    storage = Storage(records)
    path.rename(tmp_path / "elsewhere.db")
    engine.dispose()
    with pytest.raises(DBAPIError, match="no such table") as told:
        records.answer("key")
    storage.fails(told.value)
    assert "was removed or replaced while it was in use" in (storage.trouble or "")
    records.close()


def test_nothing_is_accepted_after_the_file_is_gone(tmp_path: Path) -> None:
    """Not even before the next look: what a connection of the old file writes is lost."""
    path = tmp_path / "rota.db"
    records = Records(open_database(path))
    records.begin_segment({"policy": "fifo"})
    storage = Storage(records)
    storage.refuse_if_troubled()
    path.rename(tmp_path / "elsewhere.db")
    assert not asyncio.run(storage.store(WriteBatch(steps=[{"n": 0, "body": "{}"}])))
    assert storage.is_behind
    with pytest.raises(CantStore, match="was removed or replaced"):
        storage.refuse_if_troubled()
    records.close()
