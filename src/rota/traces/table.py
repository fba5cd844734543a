"""Files with a header and one job per line, whatever separates the fields."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeAlias

from rota.core.errors import RotaError
from rota.traces.builder import Entry, TraceBuilder
from rota.traces.fields import BadLine, bad
from rota.traces.source import TraceSource

Parse: TypeAlias = Callable[[list[str], int], Entry | None]
"""A row and its index from 0 become an entry; None for a row that is no job, or one without a run."""


class RowReader(Protocol):
    """What the `csv` module reads rows with."""

    @property
    def line_num(self) -> int:
        """Lines read so far."""

    def __iter__(self) -> Iterator[list[str]]: ...


class HeaderColumns:
    """The place of each column of a file."""

    def __init__(self, header: list[str], *, where: str) -> None:
        self._where = where
        self._place = {name.strip(): index for index, name in enumerate(header)}
        self.width = len(header)

    def __getitem__(self, name: str) -> int:
        """The place of a column that must be there."""
        if name not in self._place:
            raise RotaError(f"{self._where}: the column {name!r} is missing; it has {', '.join(self._place)}")
        return self._place[name]

    def get(self, name: str) -> int | None:
        """The place of a column that may be there."""
        return self._place.get(name)

    def first_of(self, *names: str) -> int:
        """The place of the first of several alternative columns that is there."""
        for name in names:
            if name in self._place:
                return self._place[name]
        raise RotaError(
            f"{self._where}: one of the columns {', '.join(names)} is needed; it has {', '.join(self._place)}"
        )


def read_table(
    source: TraceSource,
    parser: Callable[[HeaderColumns, TraceBuilder], Parse],
    *,
    delimiter: str = ",",
    quoted: bool = True,
) -> TraceBuilder:
    """Read all rows; `parser` looks at the columns once and returns what parses a row."""
    intake = TraceBuilder(source)
    with source.text() as lines:
        rows = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
        try:
            header = next(row for row in rows if row)
            columns = HeaderColumns(header, where=f"{source.path}:{rows.line_num}")
            _take_rows(rows, columns.width, parser(columns, intake), intake)
        except csv.Error as err:
            raise RotaError(f"{source.path}:{rows.line_num}: {err}") from None
    return intake


def _take_rows(rows: RowReader, width: int, parse: Parse, intake: TraceBuilder) -> None:
    add_entry = intake.entries.append
    add_line = intake.lines.append
    index = 0
    for row in rows:
        if not row:
            continue
        try:
            if len(row) != width:
                raise BadLine(f"it has {len(row)} fields; the header has {width}")
            entry = parse(row, index)
        except RotaError as err:
            intake.reject(rows.line_num, err)
        else:
            if entry is not None:
                add_entry(entry)
                add_line(rows.line_num)
        index += 1


def job_id(field: str, text: str) -> str:
    """An id as the file has it, which must be there."""
    if not text:
        raise bad(field, text, "an id")
    return text


def names_in(line: str, delimiter: str = ",") -> frozenset[str]:
    """The column names of a header line."""
    return frozenset(name.strip().strip('"') for name in line.split(delimiter))


def has_columns(line: str, names: Iterable[str], delimiter: str = ",") -> bool:
    """Whether a header line names all of these columns."""
    return names_in(line, delimiter).issuperset(names)
