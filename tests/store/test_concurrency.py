"""Concurrent writers of a database: the second waits, and none is refused."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from rota.store.database import open_database
from rota.store.records import Records

HEADER = {"snapshot": {"now_s": 0.0}}


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda records: records.begin_segment(HEADER), id="a stretch of the journal begins"),
        pytest.param(lambda records: records.drop_before(1.0, answers_before_s=1.0), id="what is old goes"),
    ],
)
def test_write_in_the_middle_of_another_is_waited_for(tmp_path: Path, work: Callable[[Records], Any]) -> None:
    path = tmp_path / "rota.db"
    engine = open_database(path)
    records = Records(engine)
    other = sqlite3.connect(path, timeout=0.0, isolation_level=None, check_same_thread=False)

    def interfere(*_: Any) -> None:
        with contextlib.suppress(sqlite3.OperationalError):  # it is this one's turn to wait
            other.execute("INSERT INTO settings (key, value) VALUES ('mark', '1') ON CONFLICT DO NOTHING")
            other.execute("DELETE FROM settings WHERE key = 'mark'")

    event.listen(engine, "after_cursor_execute", interfere)
    try:
        work(records)
    finally:
        event.remove(engine, "after_cursor_execute", interfere)
        other.close()
        records.close()
