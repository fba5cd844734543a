"""The search index where its file can't be written: nothing is lost, and it goes on later."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from rota.live.data.search_index import SearchIndex
from rota.store.records import Records


@dataclass(frozen=True, kw_only=True)
class JobRow:
    """The columns of a job's row that are indexed."""

    id: str
    seq: int
    name: str
    tenant: str = "default"
    owner: str = "ada"
    state: str = "running"
    version: int = 1
    attempt: int = 0
    message: str = ""
    spec: str = "{}"


@dataclass
class Rows:
    """Stands in for the records: rows by id."""

    rows: list[JobRow] = field(default_factory=list)

    def after(self, seq: int, limit: int) -> list[JobRow]:
        return [row for row in self.rows if row.seq > seq][:limit]

    def some(self, job_ids: Collection[str]) -> list[JobRow]:
        return [row for row in self.rows if row.id in job_ids]


@pytest.fixture
def rows() -> Rows:
    return Rows([JobRow(id="1", seq=1, name="first")])


def index(folder: Path, rows: Rows) -> SearchIndex:
    return SearchIndex(folder, cast("Records", rows))


def full(index: SearchIndex) -> Any:
    """Let the file of the index grow no more, as on a full disk."""
    return index._opened().execute("pragma max_page_count = 1")


def test_job_that_could_not_be_indexed_is_indexed_later(tmp_path: Path, rows: Rows) -> None:
    searched = index(tmp_path, rows)
    searched.refresh()
    rows.rows.append(JobRow(id="2", seq=2, name="second", message="x" * 100_000))
    full(searched)

    with pytest.raises(OSError, match="the search index can't be written"):
        searched.refresh()
    searched.refresh()

    assert searched.matching("second", None, 9) == ["2"]
    assert searched.matching("first", None, 9) == ["1"]


def test_change_that_could_not_be_indexed_is_indexed_later(tmp_path: Path, rows: Rows) -> None:
    searched = index(tmp_path, rows)
    searched.refresh()
    rows.rows[0] = JobRow(id="1", seq=1, name="renamed", version=2, message="x" * 100_000)
    full(searched)

    with pytest.raises(OSError, match="the search index can't be written"):
        searched.refresh()
    searched.refresh()

    assert searched.matching("renamed", None, 9) == ["1"]


def test_file_that_is_damaged_meanwhile_is_made_again(tmp_path: Path, rows: Rows) -> None:
    searched = index(tmp_path, rows)
    searched.refresh()
    searched._opened().execute("pragma wal_checkpoint(truncate)")
    path = tmp_path / "search.db"
    path.write_bytes(path.read_bytes()[:100] + b"x" * (path.stat().st_size - 100))
    index_of_the_next_manager = index(tmp_path, rows)

    for _ in range(2):
        try:
            index_of_the_next_manager.refresh()
        except OSError:
            continue

    assert index_of_the_next_manager.matching("first", None, 9) == ["1"]
