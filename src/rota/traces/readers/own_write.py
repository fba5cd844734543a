"""Writing Rota's own format; the extension says which encoding."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from rota.core.errors import RotaError
from rota.traces.readers.own_schema import COLUMNS, JSON_COLUMNS, SECONDS, STEPS, Record, to_record
from rota.traces.workload import Workload


def write_trace(workload: Workload, path: Path) -> None:
    """Write a workload as `.parquet`, `.csv` or `.jsonl`; `.csv.gz` and `.jsonl.gz` are compressed.

    What the format cannot carry is the cluster, and where the workload came from.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    is_gzip = suffixes[-1:] == [".gz"]
    kind = "".join(suffixes[:-1][-1:] if is_gzip else suffixes[-1:])
    encode = ENCODERS.get(kind)
    if encode is None or (is_gzip and kind == ".parquet"):
        raise RotaError(f"{path}: the extension {path.suffix!r} is unknown; use .parquet, .csv or .jsonl")
    data = encode(_records(workload))
    if is_gzip:
        import gzip

        data = gzip.compress(data, mtime=0)
    try:
        path.write_bytes(data)
    except OSError as err:
        raise RotaError(f"{path}: it cannot be written: {err.strerror or err}") from err


def as_csv(workload: Workload) -> bytes:
    """A workload as the bytes of a CSV file."""
    return ENCODERS[".csv"](_records(workload))


def _records(workload: Workload) -> list[Record]:
    unit = STEPS if workload.counts_steps else SECONDS
    return [to_record(submission, unit) for submission in workload.submissions]


def _flat(record: Record) -> Record:
    """Nested values as JSON text."""
    return {name: _dumps(value) if name in JSON_COLUMNS else value for name, value in record.items()}


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _used(records: list[Record]) -> list[str]:
    """Columns that at least one record fills, in the order of the schema."""
    filled: set[str] = set()
    for record in records:
        filled.update(record)
    return [name for name in COLUMNS if name in filled]


def _csv(records: list[Record]) -> bytes:
    text = io.StringIO(newline="")
    names = _used(records)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for record in records:
        flat = _flat(record)
        writer.writerow([_csv_cell(flat.get(name)) for name in names])
    return text.getvalue().encode()


def _csv_cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def _jsonl(records: list[Record]) -> bytes:
    return "".join(f"{_dumps(record)}\n" for record in records).encode()


def _parquet(records: list[Record]) -> bytes:
    import polars

    types = {str: polars.String, float: polars.Float64, int: polars.Int64, bool: polars.Boolean}
    flat = [_flat(record) for record in records]
    frame = polars.DataFrame(
        [
            polars.Series(name, [record.get(name) for record in flat], dtype=types[COLUMNS[name]])
            for name in _used(records)
        ]
    )
    data = io.BytesIO()
    frame.write_parquet(data)
    return data.getvalue()


ENCODERS: Mapping[str, Callable[[list[Record]], bytes]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".jsonl": _jsonl,
}
"""What turns records into bytes, by extension."""
