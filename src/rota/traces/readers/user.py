"""Trace readers of users: a function from a file's lines to records with the columns of Rota's own format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from rota.plugins import Plugin, PluginKind
from rota.traces.readers.own import known_columns, read_rows
from rota.traces.readers.own_schema import Record
from rota.traces.source import TraceSource
from rota.traces.workload import Workload

READERS = PluginKind(what="trace reader", group="rota.readers")
_END = object()


def read_with(reader: Plugin, source: TraceSource) -> Workload:
    """Read a file by a user's function; records are numbered from 1."""
    with source.text() as lines:
        return read_rows(source, _rows(reader, lines), reader.name)


def _rows(reader: Plugin, lines: Iterable[str]) -> Iterator[tuple[int, Record | str]]:
    found = reader.call(lines)
    if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
        raise reader.fault(f"it returned {type(found).__name__}; it must return or yield records, one for each job")
    records = iter(found)
    number = 0
    while True:
        with reader.faults_named():
            record = next(records, _END)
        if record is _END:
            return
        number += 1
        yield number, _record(reader, record)


def _record(reader: Plugin, record: object) -> Record | str:
    """The record, or why it is refused."""
    if not isinstance(record, Mapping):
        return f"{reader.spec} yielded {record!r:.60}; expected a mapping of columns to values"
    checked = known_columns(cast(Record, {str(name): value for name, value in record.items()}))
    return f"{reader.spec}: {checked}" if isinstance(checked, str) else checked
