"""The folder of an experiment's results: rows are appended as runs end, and survive a kill at any moment.

`rows.jsonl` grows by one line per finished run, synced before the next. A line that was cut off is dropped when the
folder is opened again. The jobs of a run are in a file of their own, renamed into place before its row is written, so
that a row always has them. `results.parquet` is made of the rows at the end.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.core.errors import RotaError
from rota.experiments.run_point import PointResult

if TYPE_CHECKING:
    import polars

ROWS = "rows.jsonl"
PARQUET = "results.parquet"
JOBS = "jobs"
LOCK = ".lock"
_FOREIGN = "it holds other files; name a new folder with --out"


_END = b"PAR1"
"""The last bytes of a Parquet file."""


class ResultsFolder:
    """An open folder of results; one process at a time has it open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: dict[str, dict[str, Any]] = {}

    @property
    def rows(self) -> Mapping[str, Mapping[str, Any]]:
        """The rows of finished runs by their key."""
        return self._rows

    def append(self, result: PointResult, provenance: Mapping[str, Any]) -> None:
        """Add a finished run, durably: first its jobs, then its row."""
        self._write_jobs(result)
        row = {**result.row, **provenance}
        line = json.dumps(_without_nan(row), allow_nan=False) + "\n"
        with (self.path / ROWS).open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._rows[result.key] = row

    def _write_jobs(self, result: PointResult) -> None:
        import polars as pl

        folder = self.path / JOBS
        folder.mkdir(exist_ok=True)
        columns = [pl.Series(name, values, strict=False) for name, values in result.jobs.items()]
        waiting = folder / f".{result.key}.parquet"
        pl.DataFrame(columns).write_parquet(waiting)
        waiting.replace(folder / f"{result.key}.parquet")

    def jobs(self, key: str) -> polars.DataFrame:
        """The measured jobs of a run."""
        import polars as pl

        return pl.read_parquet(self.path / JOBS / f"{key}.parquet")

    def read(self) -> None:
        """Read the rows that are there, and cut off an incomplete last line."""
        file = self.path / ROWS
        if not file.exists():
            return
        raw = file.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) < len(raw):
            with file.open("r+b") as opened:
                opened.truncate(len(whole))
                os.fsync(opened.fileno())
        for number, line in enumerate(whole.decode("utf-8").splitlines(), start=1):
            try:
                row = json.loads(line)
                key = row["key"]
            except (ValueError, KeyError, TypeError):
                raise RotaError(
                    f"{file}:{number}: it is not a row of results; remove the line, or use a new --out"
                ) from None
            if _is_whole(self.path / JOBS / f"{key}.parquet"):
                self._rows[key] = row

    def write_parquet(self, rows: Sequence[Mapping[str, Any]], provenance: Mapping[str, Any]) -> polars.DataFrame:
        """Write rows as one table, with the provenance as metadata, and return it."""
        table = table_of(rows)
        waiting = self.path / f".{PARQUET}"
        metadata = {f"rota.{name}": str(value) for name, value in provenance.items()}
        table.write_parquet(waiting, metadata=metadata)
        waiting.replace(self.path / PARQUET)
        return table


def table_of(rows: Sequence[Mapping[str, Any]]) -> polars.DataFrame:
    """Rows as a table; a column has one type whatever the first rows hold."""
    import polars as pl

    return pl.DataFrame([dict(row) for row in rows], infer_schema_length=None)


def claim_folder(path: Path) -> None:
    """Make a folder for results, or find that it is one; refuse a folder that holds something else."""
    if path.exists() and not path.is_dir():
        raise RotaError(f"--out {path}: it exists and is not a folder")
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()) and not (path / LOCK).exists():
        raise RotaError(f"--out {path}: {_FOREIGN}")
    (path / LOCK).touch()


@contextmanager
def open_results(path: Path) -> Iterator[ResultsFolder]:
    """Open a folder for an experiment; refuse one that another process has open, or that holds something else."""
    claim_folder(path)
    with (path / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RotaError(
                f"--out {path}: another experiment writes into it now; wait, or name another folder"
            ) from None
        folder = ResultsFolder(path)
        folder.read()
        yield folder


def _is_whole(path: Path) -> bool:
    """Whether a Parquet file is there and has an end."""
    try:
        with path.open("rb") as file:
            file.seek(-len(_END), os.SEEK_END)
            return file.read() == _END
    except OSError:  # it is not there, or shorter than that
        return False


def _without_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }
