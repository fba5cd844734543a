"""How commands print: rows as a table, JSON or CSV on stdout, progress on stderr.

People get rounded numbers and aligned columns; programs get every field with full precision. A table
that is piped is plain text and never cuts a value off.
"""

from __future__ import annotations

import csv
import json
import math
import numbers
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, TextIO, assert_never

import typer

from rota.cli.terminal import echo
from rota.core.errors import RotaError
from rota.core.neutral_text import neutral, neutral_json

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

SHOW_PROGRESS_AFTER_S = 2.0
NOTHING = "-"
"""The text of a table where there is no value."""


class OutputFormat(Enum):
    """The forms in which a command can print its rows."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    CSV = "csv"


OutputOption = Annotated[OutputFormat, typer.Option("--output", "-o", help="How to print the result.")]
"""The `-o` option, the same for every command: `output: OutputOption = OutputFormat.TABLE`."""


FiguresOption = Annotated[
    Path | None, typer.Option(help="Write the report's figures here as PDF and SVG, for papers.", metavar="DIR")
]
"""The `--figures` option of commands that draw."""


MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        help="FILE.py:FUNCTION, a metric of your own from a run's history; may be given several times.",
        metavar="FILE.py:FUNCTION",
    ),
]
"""The `--metric` option of commands that measure runs."""


def refuse_figures(folder: Path) -> None:
    """Refuse early a folder that figures can't be written into."""
    from rota.report.paper import refuse_without_matplotlib

    if folder.exists() and not folder.is_dir():
        raise RotaError(f"--figures {folder}: it exists and is not a folder")
    refuse_without_matplotlib()


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table: its field, its title and its format."""

    key: str
    title: str = ""
    show: Callable[[Any], str] = str
    right: bool = False
    wide: bool = False
    """Whether only a wide table has it."""
    if_known: bool = False
    """Whether a table has it only if some row has a value."""

    def cell(self, row: Mapping[str, object]) -> str:
        """The row's value as text, without control characters of terminals."""
        value = row.get(self.key)
        return neutral(NOTHING if value is None else self.show(value))


def emit(
    rows: Sequence[Mapping[str, object]], columns: Sequence[Column], output: OutputFormat, *, nothing: str = ""
) -> None:
    """Print rows on stdout: the columns as a table, or every field of the rows as JSON or CSV.

    `nothing` is for people who see a table without rows: a line on stderr with the next step.
    """
    if nothing and not rows and output in (OutputFormat.TABLE, OutputFormat.WIDE):
        echo(f"note: {nothing}", err=True)
    match output:
        case OutputFormat.TABLE:
            _write_table(rows, [column for column in _shown(rows, columns) if not column.wide], sys.stdout)
        case OutputFormat.WIDE:
            _write_table(rows, _shown(rows, columns), sys.stdout)
        case OutputFormat.JSON:
            shown = json.dumps([plain(row) for row in rows], indent=2, ensure_ascii=False, allow_nan=False)
            sys.stdout.write(neutral_json(shown) + "\n")
        case OutputFormat.CSV:
            _write_csv(rows, columns, sys.stdout)
        case _:
            assert_never(output)


def emit_one(row: Mapping[str, object], columns: Sequence[Column], output: OutputFormat) -> None:
    """Print the one answer of a command on stdout: as JSON it is an object, not a list."""
    if output is OutputFormat.JSON:
        shown = json.dumps(plain(row), indent=2, ensure_ascii=False, allow_nan=False)
        sys.stdout.write(neutral_json(shown) + "\n")
    else:
        emit([row], columns, output)


def _shown(rows: Sequence[Mapping[str, object]], columns: Sequence[Column]) -> list[Column]:
    return [column for column in columns if not column.if_known or any(row.get(column.key) is not None for row in rows)]


def plain(value: object) -> object:
    """The value as JSON: numbers that are not finite become null, moments ISO 8601 in UTC."""
    match value:
        case None | bool() | str():
            return value
        case Enum():
            return plain(value.value)
        case numbers.Integral():
            return int(value)
        case numbers.Real():
            return float(value) if math.isfinite(value) else None
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case PurePath():
            return str(value)
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case Sequence():
            return [plain(item) for item in value]
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form: {value!r}")


def _write_csv(rows: Sequence[Mapping[str, object]], columns: Sequence[Column], out: TextIO) -> None:
    keys = dict.fromkeys(key for row in rows for key in row) or dict.fromkeys(col.key for col in columns)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([neutral(key) for key in keys])
    for row in rows:
        writer.writerow([_csv_field(plain(row.get(key))) for key in keys])


def _csv_field(value: object) -> object:
    if isinstance(value, str):
        return neutral(value)
    return neutral_json(json.dumps(value, ensure_ascii=False)) if isinstance(value, bool | dict | list) else value


def _write_table(rows: Sequence[Mapping[str, object]], columns: Sequence[Column], out: TextIO) -> None:
    from rich.console import Console

    if out.isatty():
        drawn = table(rows, columns, lines=True)
        Console(file=out, markup=False, emoji=False, highlight=False).print(drawn)
        return
    console = Console(file=out, force_terminal=False, color_system=None, markup=False, emoji=False, highlight=False)
    drawn = table(rows, columns, lines=False)
    console.width = max(1, console.measure(drawn, options=console.options.update(width=1 << 30)).maximum)
    for line in console.render_lines(drawn, pad=False):
        out.write("".join(segment.text for segment in line).rstrip() + "\n")


def table(rows: Sequence[Mapping[str, object]], columns: Sequence[Column], *, lines: bool) -> Table:
    """Rows as Rich's table; `lines` is for terminals."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD if lines else None, pad_edge=False, header_style="bold" if lines else "")
    for column in columns:
        made.add_column(
            neutral(column.title or column.key),
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=not lines,
        )
    for row in rows:
        made.add_row(*(column.cell(row) for column in columns))
    return made


class ProgressBar:
    """A progress bar; shown only on a terminal, and only if the work takes long."""

    def __init__(self, title: str, total: float | None, show_after_s: float) -> None:
        self._title = title
        self._total = total
        self._done = 0.0
        self._lock = threading.Lock()
        self._bar: Progress | None = None
        self._timer = threading.Timer(show_after_s, self._show)
        self._timer.daemon = True

    def advance(self, by: float = 1.0) -> None:
        """Add to what is done."""
        self.update(self._done + by)

    def update(self, done: float, *, title: str | None = None, total: float | None = None) -> None:
        """Set what is done in all; the title and the total may change."""
        with self._lock:
            self._done = done
            self._title = title or self._title
            self._total = self._total if total is None else total
            if self._bar is not None:
                task = self._bar.task_ids[0]
                self._bar.update(task, completed=done, description=self._title, total=self._total)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        with self._lock:
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
                console=Console(file=sys.stderr),
                transient=True,
            )
            task = self._bar.add_task(self._title, total=self._total)
            self._bar.update(task, completed=self._done)
            self._bar.start()

    def _start(self) -> None:
        if sys.stderr.isatty():
            self._timer.start()

    def _stop(self) -> None:
        self._timer.cancel()
        if self._timer.is_alive():
            self._timer.join()
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def progress(
    title: str, total: float | None = None, *, show_after_s: float = SHOW_PROGRESS_AFTER_S
) -> Iterator[ProgressBar]:
    """A progress bar on stderr for the work inside; none when it is short or stderr is no terminal."""
    bar = ProgressBar(title, total, show_after_s)
    bar._start()
    try:
        yield bar
    finally:
        bar._stop()
