"""Reading Rota's own format, from Parquet, CSV or JSON lines; see `own_schema` for the columns."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

from rota.core.errors import RotaError
from rota.core.model.job import (
    DEFAULT_TENANT,
    WHOLE,
    Checkpoint,
    Elastic,
    Job,
    JobId,
    Level,
    Locality,
    Role,
    TenantId,
)
from rota.core.model.labels import fault_in_apart
from rota.perf.speed.sharing_labels import fault_in_labels
from rota.traces.assemble import gang, plain_job, shape_of
from rota.traces.builder import Entry, TraceBuilder
from rota.traces.fields import BadLine, bad, whole
from rota.traces.readers.own_schema import COLUMNS, NEEDED, PARSERS, SECONDS, STEPS, Record, meant, parse_roles
from rota.traces.source import TraceSource
from rota.traces.table import has_columns
from rota.traces.workload import Outcome, Workload

_JOB_FIELDS = (
    "name",
    "user",
    "priority",
    "work",
    "estimate_s",
    "deadline_s",
    "time_limit_s",
    "max_restarts",
    "model",
    "exclusive",
    "preemptible",
    "preempts",
    "depends_on",
    "labels",
    "array",
    "array_limit",
)
"""Columns that are a job's fields as they stand."""

_COMPANIONS = (
    ("locality_hard", "locality"),
    ("relax_after_s", "locality"),
    ("elastic_min", "elastic_max"),
    ("elastic_max", "elastic_min"),
    ("array", "array_limit"),
    ("array_limit", "array"),
    ("checkpoint_grace_s", "checkpoint_interval_s"),
    ("checkpoint_suspend_s", "checkpoint_interval_s"),
    ("checkpoint_resume_s", "checkpoint_interval_s"),
)
"""Columns that mean nothing without another one."""


def detects(source: TraceSource) -> bool:
    """Whether the file is Parquet, or its first line names an id and `submit_s`."""
    if source.is_parquet:
        return True
    line = source.first_line
    if line.lstrip().startswith("{"):
        return all(f'"{name}"' in line for name in NEEDED)
    return has_columns(line, NEEDED)


def read(source: TraceSource) -> Workload:
    """Read any of the three encodings; times stay as they are in the file."""
    if source.is_parquet:
        rows = _parquet_rows(source)
    elif source.head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        rows = _json_rows(source)
    else:
        rows = _csv_rows(source)
    return read_rows(source, rows, "rota")


def read_rows(source: TraceSource, rows: Iterable[tuple[int, Record | str]], format: str) -> Workload:
    """A workload from records of Rota's columns, each with its line; a record that can't be read is its own reason."""
    intake = TraceBuilder(source)
    units = _take(rows, intake)
    if len(units) > 1:
        raise RotaError(
            f"{source.path}: work_unit is {SECONDS} in some rows and {STEPS} in others; a trace has one unit"
        )
    return intake.workload(format, counts_steps=units == {STEPS})


def _take(rows: Iterable[tuple[int, Record | str]], intake: TraceBuilder) -> set[str]:
    """Turn records into entries; a record that could not be read is its own reason."""
    roles_of: dict[str, tuple[Role, ...]] = {}
    units: set[str] = set()
    for line, record in rows:
        try:
            if isinstance(record, str):
                raise BadLine(record)
            values = _values(record, roles_of)
            entry = _entry(values)
        except RotaError as err:
            intake.reject(line, err)
            continue
        units.add(cast(str, values.get("work_unit", SECONDS)))
        intake.entries.append(entry)
        intake.lines.append(line)
    return units


def _values(record: Record, roles_of: dict[str, tuple[Role, ...]]) -> dict[str, object]:
    """The fields that have a value, parsed; roles of one text are parsed once."""
    values: dict[str, object] = {}
    for name, cell in record.items():
        if cell is None or cell == "":
            continue
        if name == "roles":
            text = cell if isinstance(cell, str) else repr(cell)
            values[name] = roles_of.get(text) or roles_of.setdefault(text, parse_roles(cell))
        else:
            values[name] = PARSERS[name](name, cell)
    for name in NEEDED:
        if name not in values:
            raise bad(name, None, "a value")
    for name, needed in _COMPANIONS:
        if name in values and needed not in values:
            raise bad(needed, None, f"a value, as {name} has one")
    return values


_PLAIN = frozenset(
    {"id", "submit_s", "tenant", "user", "name", "gpus", "work", "work_unit", "outcome", "ends_at", "labels"}
    | {"model", "roles"}
)
"""Columns of jobs that can be put together the short way."""


def _entry(values: dict[str, object]) -> Entry:
    roles = _roles(values)
    is_plain = "work" in values and len(roles) == 1 and _PLAIN.issuperset(values)
    job = _plain(values, roles) if is_plain else _any(values, roles)
    if job.labels:
        fault = fault_in_apart(job.labels) or fault_in_labels(job.labels, roles[0].device_milli)
        if fault is not None:
            raise BadLine(f"job {job.id}: {fault}")
    outcome = cast(Outcome, values.get("outcome", Outcome.SUCCEEDED))
    return cast(float, values["submit_s"]), job, outcome, cast(float, values.get("ends_at", 1.0))


def _plain(values: dict[str, Any], roles: tuple[Role, ...]) -> Job:
    return plain_job(
        values["id"],
        shape_of(*roles),
        values["work"],
        tenant=values.get("tenant", DEFAULT_TENANT),
        user=values.get("user", ""),
        name=values.get("name", ""),
        model=values.get("model"),
        labels=values.get("labels", ()),
    )


def _any(values: dict[str, object], roles: tuple[Role, ...]) -> Job:
    return Job(
        id=JobId(cast(str, values["id"])),
        roles=roles,
        tenant=TenantId(cast(str, values.get("tenant", DEFAULT_TENANT))),
        locality=_locality(values),
        elastic=_elastic(values),
        checkpoint=_checkpoint(values),
        **{name: values[name] for name in _JOB_FIELDS if name in values},  # type: ignore[arg-type]  # by PARSERS
    )


def _roles(values: dict[str, object]) -> tuple[Role, ...]:
    """The roles, or the short form: so many GPUs are a gang of one-GPU tasks, below one a share of a GPU."""
    roles = cast("tuple[Role, ...] | None", values.get("roles"))
    gpus = cast("float | None", values.get("gpus"))
    if roles is None:
        return _short_form(1.0 if gpus is None else gpus)
    held = sum(role.count * role.device_milli for role in roles)
    if gpus is not None and round(gpus * WHOLE) != held:
        raise BadLine(f"gpus is {gpus:g}, but the roles hold {held / WHOLE:g}; leave one of the two out")
    return roles


def _short_form(gpus: float) -> tuple[Role, ...]:
    if gpus < 1:
        return (Role(device_milli=round(gpus * WHOLE)),)
    return gang(whole("gpus", gpus))[0]


def _locality(values: dict[str, object]) -> Locality | None:
    if "locality" not in values:
        return None
    return Locality(
        level=cast(Level, values["locality"]),
        hard=cast(bool, values.get("locality_hard", False)),
        relax_after_s=cast(float, values.get("relax_after_s", float("inf"))),
    )


def _elastic(values: dict[str, object]) -> Elastic | None:
    if "elastic_min" not in values:
        return None
    return Elastic(min_tasks=cast(int, values["elastic_min"]), max_tasks=cast(int, values["elastic_max"]))


def _checkpoint(values: dict[str, object]) -> Checkpoint | None:
    if "checkpoint_interval_s" not in values:
        return None
    return Checkpoint(
        interval_s=cast(float, values["checkpoint_interval_s"]),
        grace_s=cast(float, values.get("checkpoint_grace_s", Checkpoint().grace_s)),
        suspend_s=cast("float | None", values.get("checkpoint_suspend_s")),
        resume_s=cast("float | None", values.get("checkpoint_resume_s")),
    )


def _check_names(names: Iterable[str], where: str) -> None:
    found = list(names)
    for name in found:
        if name not in COLUMNS:
            raise RotaError(f"{where}: unknown column {name!r}; {meant(name)}")
    for name in NEEDED:
        if name not in found:
            raise RotaError(f"{where}: the column {name!r} is missing; it has {', '.join(found)}")


def _csv_rows(source: TraceSource) -> Iterator[tuple[int, Record | str]]:
    with source.text() as lines:
        rows = csv.reader(lines)
        try:
            header = next(row for row in rows if row)
            _check_names(header, f"{source.path}:{rows.line_num}")
            for row in rows:
                if len(row) == len(header):
                    yield rows.line_num, cast(Record, dict(zip(header, row, strict=True)))
                elif row:
                    yield rows.line_num, f"it has {len(row)} fields; the header has {len(header)}"
        except csv.Error as err:
            raise RotaError(f"{source.path}:{rows.line_num}: {err}") from None


def _json_rows(source: TraceSource) -> Iterator[tuple[int, Record | str]]:
    with source.text() as lines:
        for line, text in enumerate(lines, start=1):
            if text.strip():
                yield line, _json_record(text)


def _json_record(text: str) -> Record | str:
    try:
        record = json.loads(text)
    except json.JSONDecodeError as err:
        return f"it is not JSON: {err.msg} at column {err.colno}"
    if not isinstance(record, dict):
        return "expected a JSON object"
    return known_columns(record)


def known_columns(record: Record) -> Record | str:
    """The record, or why it is refused: it has a column that does not exist."""
    for name in record:
        if name not in COLUMNS:
            return f"unknown field {name!r}; {meant(name)}"
    return record


def _parquet_rows(source: TraceSource) -> Iterator[tuple[int, Record | str]]:
    """Rows of a Parquet file, counted from 1; Polars is imported only here, as it takes a while."""
    import polars

    try:
        frame = polars.read_parquet(source.path)
    except (polars.exceptions.PolarsError, OSError) as err:
        reason = str(err).splitlines()[0]
        raise RotaError(f"{source.path}: it is not a whole Parquet file: {reason}") from None
    _check_names(frame.columns, str(source.path))
    used = [name for name in frame.columns if frame[name].null_count() < frame.height]
    for line, row in enumerate(frame.select(used).iter_rows(), start=1):
        yield line, dict(zip(used, row, strict=True))
