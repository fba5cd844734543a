"""Any CSV with one job per line: the user names its columns, as `submit=ts,duration=run_time,gpus=n`.

A unit may follow a column, as `submit=ts:ms`, where its numbers are not in seconds, GPUs, CPUs or GiB.
"""

from __future__ import annotations

import csv
import re
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
    "cpus": "its CPUs, all together",
    "memory": "its memory, all together, in GiB",
    "state": "how it ended: completed, failed, cancelled and the like",
}
"""What a column can be, with a line about it."""
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PARTS = {"%": 0.01, "milli": 0.001}
UNITS: Mapping[str, Mapping[str, float]] = {
    **dict.fromkeys(("submit", "duration", "start", "end"), _TIMES),
    **dict.fromkeys(("gpus", "cpus"), _PARTS),
    "memory": {"B": 2.0**-30, "KiB": 2.0**-20, "MiB": 2.0**-10, "GiB": 1.0, "MB": 1e6 / 2**30, "GB": 1e9 / 2**30},
}
"""The units that may follow a column, and what each is in seconds, GPUs, CPUs or GiB."""
_DURATION = re.compile(r"(?:(\d+)(?:-| days?,? ))?(\d+):(\d\d):(\d\d(?:\.\d+)?)", re.ASCII)
GIB = 2**30
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


def read_columns(
    path: Path, columns: Mapping[str, str], *, skip_bad_lines: bool = False, needs_times: bool = True
) -> Workload:
    """Read any CSV by the columns named; time starts at the first submission.

    Without `needs_times`, a list of what jobs ask for is enough: all come at once, and their run time is 0.
    """
    _refuse(columns, needs_times)
    source = open_source(path, skip_bad_lines=skip_bad_lines)
    delimiter = _delimiter(source)
    intake = read_table(source, lambda header, intake: _parser(header, intake, columns), delimiter=delimiter)
    return intake.workload("columns", from_zero=True)


def _refuse(columns: Mapping[str, str], needs_times: bool) -> None:
    for name in columns:
        if name not in KNOWN:
            raise RotaError(f"--columns: unknown name {name!r}; {did_you_mean(name, KNOWN)}")
    if not needs_times:
        return
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


class _Columns:
    """The columns by what they are, with the unit of each."""

    def __init__(self, header: HeaderColumns, columns: Mapping[str, str]) -> None:
        self.names: dict[str, str] = {}
        self.units: dict[str, float] = {}
        for name, given in columns.items():
            self.names[name], self.units[name] = self._parted(header, name, given)
        self.at = {name: header[column] for name, column in self.names.items()}

    @staticmethod
    def _parted(header: HeaderColumns, name: str, given: str) -> tuple[str, float]:
        """A column and the factor of its unit; a column whose own name ends like a unit is meant by its whole name."""
        column, colon, unit = given.rpartition(":")
        if header.get(given) is not None or not colon:
            return given, 1.0
        known = UNITS.get(name, {})
        if unit in known:
            return column, known[unit]
        if known and header.get(column) is not None:
            raise RotaError(f"--columns {name}={given}: unknown unit {unit!r}; known: {', '.join(known)}")
        return given, 1.0

    def text(self, row: list[str], name: str) -> str:
        """The field of a row; empty where no column is named."""
        return row[self.at[name]].strip() if name in self.at else ""

    def amount(self, row: list[str], name: str) -> float:
        """A number of 0 or more in the unit of all; 0 for an empty field."""
        text = self.text(row, name)
        return amount(self.names[name], text) * self.units[name] if text else 0.0

    def moment_s(self, row: list[str], name: str) -> float:
        """A time of day, or a number of a unit."""
        return _time_s(name, self.text(row, name), self.units[name])

    def run_s(self, row: list[str]) -> float:
        """How long a job runs: a number, or hours, minutes and seconds."""
        text = self.text(row, "duration")
        found = _DURATION.fullmatch(text)
        if found is None:
            return amount(self.names["duration"], text) * self.units["duration"]
        days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _parser(header: HeaderColumns, intake: TraceBuilder, columns: Mapping[str, str]) -> Parse:
    of = _Columns(header, columns)
    shapes: dict[tuple[str, ...], Shape] = {}

    def parse(row: list[str], index: int) -> Entry | None:
        submit_s = of.moment_s(row, "submit") if "submit" in of.at else 0.0
        work = 0.0
        if "duration" in of.at:
            work = of.run_s(row)
        elif "start" in of.at and "end" in of.at:
            if not of.text(row, "start") or not of.text(row, "end"):
                intake.left_out += 1
                return None
            work = of.moment_s(row, "end") - of.moment_s(row, "start")
            if work < 0:
                raise bad(of.names["end"], of.text(row, "end"), "a time after the start")
        key = tuple(of.text(row, name) for name in ("gpus", "type", "cpus", "memory"))
        shape = shapes.get(key)
        if shape is None:
            shape = shapes[key] = _shape(of, row)
        job = plain_job(
            of.text(row, "id") or str(index),
            shape,
            work,
            tenant=of.text(row, "tenant") or DEFAULT_TENANT,
            user=of.text(row, "user"),
            name=of.text(row, "name"),
            model=of.text(row, "model") or None,
        )
        return submit_s, job, outcome_of(of.text(row, "state")), 1.0

    return parse


def _time_s(name: str, text: str, unit: float) -> float:
    try:
        float(text)
    except ValueError:
        pass
    else:
        return number(name, text) * unit
    for form in ("%Y/%m/%d %H:%M:%S", "%d/%m/%Y %H:%M:%S"):
        try:
            return (datetime.strptime(text, form) - datetime(1970, 1, 1)).total_seconds()
        except ValueError:
            continue
    return moment_s(name, text)


def _shape(of: _Columns, row: list[str]) -> Shape:
    """A task for each GPU, or one for a part of a GPU or none; CPUs and memory are divided among them."""
    count = of.amount(row, "gpus") if "gpus" in of.at else 1.0
    if count >= 1 and not count.is_integer():
        raise bad(of.names["gpus"], of.text(row, "gpus"), "a whole number, or a part of one GPU")
    cpus = of.amount(row, "cpus") if "cpus" in of.at else 0.0
    memory_gib = of.amount(row, "memory") if "memory" in of.at else 0.0
    kind = of.text(row, "type")
    if count >= 1 and not kind and not cpus and not memory_gib:
        return gang(int(count))
    tasks = max(int(count), 1)
    return shape_of(
        Role(
            count=tasks,
            device_milli=WHOLE if count >= 1 else round(count * WHOLE),
            device_types=(DeviceType(kind),) if kind and count else (),
            cpu_milli=round(cpus * 1000 / tasks),
            memory_bytes=round(memory_gib * GIB / tasks),
        )
    )


def outcome_of(state: str) -> Outcome:
    """How a job ended, by the usual words; anything else is a success."""
    word = state.lower()
    if any(part in word for part in _CANCELLED):
        return Outcome.CANCELLED
    return Outcome.FAILED if any(part in word for part in _FAILED) else Outcome.SUCCEEDED
