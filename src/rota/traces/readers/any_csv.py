"""Any CSV with one job per line: the user names its columns, as `submit=ts,duration=run_time,gpus=n`."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.job import DEFAULT_TENANT, WHOLE, DeviceType, Role
from rota.traces.assemble import Shape, gang, plain_job, shape_of
from rota.traces.builder import Entry, TraceBuilder
from rota.traces.fields import amount, bad, moment_s, number
from rota.traces.source import TraceSource, open_source
from rota.traces.table import HeaderColumns, Parse, read_table
from rota.traces.workload import Outcome, Workload

KNOWN = {
    "submit": "when it is submitted: seconds, or a date and time",
    "duration": "how long it runs, in seconds",
    "start": "when it started; with `end`, in place of `duration`",
    "end": "when it ended",
    "gpus": "its GPUs; below 1 a part of one; 1 if not named",
    "id": "its id; the number of its line if not named",
    "tenant": "its tenant or group",
    "user": "its user",
    "name": "its name",
    "model": "the model that it trains",
    "type": "the device type that it needs",
    "state": "how it ended: completed, failed, cancelled and the like",
}
"""What a column can be, with a line about it."""
_FAILED = ("fail", "error", "timeout", "oom", "node_fail")
_CANCELLED = ("cancel", "kill", "abort", "preempt")
_DELIMITERS = ",;\t|"


def parse_columns(text: str) -> dict[str, str]:
    """The columns from `submit=ts,duration=run_time`."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, column = part.partition("=")
        name = name.strip()
        if not equals or not column.strip():
            raise RotaError(f"--columns {text}: {part!r} is not NAME=COLUMN, such as submit=ts")
        if name in found:
            raise RotaError(f"--columns {text}: {name} is given twice")
        found[name] = column.strip()
    return found


def read_columns(path: Path, columns: Mapping[str, str], *, skip_bad_lines: bool = False) -> Workload:
    """Read any CSV by the columns named; time starts at the first submission."""
    _refuse(columns)
    source = open_source(path, skip_bad_lines=skip_bad_lines)
    delimiter = _delimiter(source)
    intake = read_table(source, lambda header, intake: _parser(header, intake, columns), delimiter=delimiter)
    return intake.workload("columns", from_zero=True)


def _refuse(columns: Mapping[str, str]) -> None:
    for name in columns:
        if name not in KNOWN:
            raise RotaError(f"--columns: unknown name {name!r}; {did_you_mean(name, KNOWN)}")
    if "submit" not in columns:
        raise RotaError("--columns: submit is missing; name the column of submission times, as submit=COLUMN")
    if "duration" not in columns and not {"start", "end"} <= columns.keys():
        raise RotaError("--columns: duration is missing; name its column, or those of start and end")


def _delimiter(source: TraceSource) -> str:
    line = source.first_line
    try:
        return csv.Sniffer().sniff(line, _DELIMITERS).delimiter
    except csv.Error:
        return max(_DELIMITERS, key=line.count)


def _parser(header: HeaderColumns, intake: TraceBuilder, columns: Mapping[str, str]) -> Parse:
    at = {name: header[column] for name, column in columns.items()}
    shapes: dict[tuple[str, str], Shape] = {}

    def parse(row: list[str], index: int) -> Entry | None:
        def text(name: str) -> str:
            return row[at[name]].strip() if name in at else ""

        submit_s = _time_s("submit", text("submit"))
        if "duration" in at:
            work = amount(columns["duration"], text("duration"))
        else:
            if not text("start") or not text("end"):
                intake.left_out += 1
                return None
            work = _time_s("end", text("end")) - _time_s("start", text("start"))
            if work < 0:
                raise bad(columns["end"], text("end"), "a time after the start")
        key = text("gpus") if "gpus" in at else "1", text("type")
        job = plain_job(
            text("id") or str(index),
            shapes.get(key) or shapes.setdefault(key, _shape(*key)),
            work,
            tenant=text("tenant") or DEFAULT_TENANT,
            user=text("user"),
            name=text("name"),
            model=text("model") or None,
        )
        return submit_s, job, outcome_of(text("state")), 1.0

    return parse


def _time_s(name: str, text: str) -> float:
    try:
        float(text)
    except ValueError:
        pass
    else:
        return number(name, text)
    for form in ("%Y/%m/%d %H:%M:%S", "%d/%m/%Y %H:%M:%S"):
        try:
            return (datetime.strptime(text, form) - datetime(1970, 1, 1)).total_seconds()
        except ValueError:
            continue
    return moment_s(name, text)


def _shape(gpus: str, kind: str) -> Shape:
    count = amount("gpus", gpus or "0")
    if count >= 1 and not count.is_integer():
        raise bad("gpus", gpus, "a whole number, or a part of one GPU")
    types = (DeviceType(kind),) if kind else ()
    if not types and count >= 1:
        return gang(int(count))
    if count >= 1:
        return shape_of(Role(count=int(count), device_milli=WHOLE, device_types=types))
    return shape_of(Role(device_milli=round(count * WHOLE), device_types=types if count else ()))


def outcome_of(state: str) -> Outcome:
    """How a job ended, by the usual words; anything else is a success."""
    word = state.lower()
    if any(part in word for part in _CANCELLED):
        return Outcome.CANCELLED
    return Outcome.FAILED if any(part in word for part in _FAILED) else Outcome.SUCCEEDED
