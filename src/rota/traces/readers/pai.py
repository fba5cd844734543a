"""Alibaba's PAI trace of 2020 (Weng et al., NSDI 2022): tasks of instances that hold parts of GPUs.

`pai_job_duration_estimate*.csv`, the list of the published simulator, has one job per line. The raw tables have no
header and are joined: `pai_task_table.csv` is read, `pai_job_table.csv` beside it adds submissions and users, and
`pai_group_tag_table.csv` what users asked for: the types of tasks are those on which they ran.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rota.core.errors import RotaError
from rota.core.model.job import DEFAULT_TENANT, WHOLE, DeviceType, Role
from rota.traces.assemble import Shape, plain_job, shape_of
from rota.traces.builder import Entry, TraceBuilder
from rota.traces.fields import amount, bad, whole
from rota.traces.source import TraceSource, open_source
from rota.traces.table import HeaderColumns, Parse, has_columns, job_id, read_table
from rota.traces.workload import Outcome, Workload

ESTIMATE_COLUMNS = ("job_id", "num_gpu", "num_cpu", "submit_time", "duration")
TASK_COLUMNS = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
JOB_TABLE, JOB_FIELDS = "pai_job_table.csv", 6
"""job_name, inst_id, user, status, start_time, end_time."""
TAG_TABLE, TAG_FIELDS = "pai_group_tag_table.csv", 5
"""inst_id, user, gpu_type_spec, group, workload."""
BESIDE = (JOB_TABLE, TAG_TABLE)
"""The tables that are read with that of tasks if they lie beside it."""
STATUSES = {
    "Terminated": Outcome.SUCCEEDED,
    "Failed": Outcome.FAILED,
    "Interrupted": Outcome.CANCELLED,
    "Running": None,
    "Waiting": None,
}
PERCENT = 100.0
GIB = 2**30
MOST = 1_000_000
"""GPUs, CPUs or GiB of a task above which a line is wrong."""
_ANY = frozenset({"", "MISC", "None", "nan", "CPU"})
"""Types that say nothing about which GPU will do."""


def detects_estimate(source: TraceSource) -> bool:
    """Whether the header is that of the list of jobs."""
    return has_columns(source.first_line, ESTIMATE_COLUMNS)


def read_estimate(source: TraceSource) -> Workload:
    """Read `pai_job_duration_estimate*.csv`; `num_gpu` and `num_cpu` are of each of `num_inst` instances."""
    return read_table(source, _estimate_parser).workload("pai2020", from_zero=True)


def _estimate_parser(columns: HeaderColumns, _: TraceBuilder) -> Parse:
    id_at, num_gpu, num_cpu, submit, duration = (columns[name] for name in ESTIMATE_COLUMNS)
    count, memory = columns.get("num_inst"), columns.get("plan_mem")
    user, group, kind = columns.get("user"), columns.get("group"), columns.get("gpu_type")
    guess = columns.get("group_gpu_dur")
    if guess is None:
        guess = columns.get("group_dur")
    shapes: dict[tuple[str, ...], Shape] = {}

    def parse(row: list[str], _: int) -> Entry:
        def text(at: int | None) -> str:
            return "" if at is None else row[at]

        key = text(count), row[num_gpu], row[num_cpu], text(memory), text(kind)
        shape = shapes.get(key)
        if shape is None:
            gpus, cpus = amount("num_gpu", row[num_gpu] or "0"), amount("num_cpu", row[num_cpu] or "0")
            shape = shapes[key] = _shape(text(count), gpus, cpus, text(memory), text(kind))
        job = plain_job(
            job_id("job_id", row[id_at]),
            shape,
            amount("duration", row[duration]),
            tenant=text(user) or DEFAULT_TENANT,
            user=text(user),
            name=text(group),
            estimate_s=amount("group_gpu_dur", text(guess)) if text(guess) else None,
        )
        return amount("submit_time", row[submit]), job, Outcome.SUCCEEDED, 1.0

    return parse


def detects_tasks(source: TraceSource) -> bool:
    """Whether the first line has the fields of `pai_task_table.csv`, as published without a header or with its own."""
    fields = source.first_line.split(",")
    return tuple(fields) == TASK_COLUMNS or (len(fields) == len(TASK_COLUMNS) and fields[3] in STATUSES)


def read_tasks(source: TraceSource) -> Workload:
    """Read `pai_task_table.csv`, joined with the tables beside it; a job of several tasks has a role for each."""
    intake = TraceBuilder(source)
    known = _known_jobs(source.path)
    by_job: dict[str, list[tuple[int, list[str]]]] = {}
    for number, row in _rows(source):
        if len(row) != len(TASK_COLUMNS):
            intake.reject(number, f"it has {len(row)} fields; a task has {len(TASK_COLUMNS)}")
        elif row[0] != TASK_COLUMNS[0]:
            by_job.setdefault(row[0], []).append((number, row))
    for name, tasks in by_job.items():
        first = tasks[0][0]
        try:
            entry = _job(name, [row for _, row in tasks], known.get(name))
        except RotaError as error:
            intake.reject(first, error)
            continue
        if entry is None:
            intake.left_out += 1
            continue
        intake.entries.append(entry)
        intake.lines.append(first)
    return intake.workload("pai2020-raw", from_zero=True)


def _rows(source: TraceSource) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not blank, with their numbers."""
    with source.text() as lines:
        rows = csv.reader(lines)
        try:
            for row in rows:
                if row:
                    yield rows.line_num, row
        except csv.Error as error:
            raise RotaError(f"{source.path}:{rows.line_num}: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownJob:
    """What the other tables say of a job."""

    submit_s: float
    user: str
    group: str = ""
    workload: str = ""
    asked_type: str | None = None
    """The device type that its user asked for, empty for any; None without a table that says so."""


def _known_jobs(tasks: Path) -> dict[str, _KnownJob]:
    """The jobs of the table of jobs by name, with their tags, as far as these tables lie beside that of tasks."""
    tags = {row[0]: row[2:] for _, row in _table(tasks.with_name(TAG_TABLE), TAG_FIELDS)}
    found: dict[str, _KnownJob] = {}
    path = tasks.with_name(JOB_TABLE)
    for number, (name, instance, user, _, start, _) in _table(path, JOB_FIELDS):
        if name == TASK_COLUMNS[0] or not start:
            continue
        try:
            submit_s = amount("start_time", start)
        except RotaError as error:
            raise RotaError(f"{path}:{number}: {error}") from None
        if instance in tags:
            kind, group, workload = tags[instance]
            found[name] = _KnownJob(submit_s=submit_s, user=user, group=group, workload=workload, asked_type=kind)
        else:
            found[name] = _KnownJob(submit_s=submit_s, user=user)
    return found


def _table(path: Path, fields: int) -> Iterator[tuple[int, list[str]]]:
    """The lines of a table that have its number of fields; none if it is not there."""
    if path.exists():
        yield from ((number, row) for number, row in _rows(open_source(path)) if len(row) == fields)


def _job(name: str, tasks: list[list[str]], known: _KnownJob | None) -> Entry | None:
    """A job of its tasks; None if it has no whole run."""
    outcomes = []
    for row in tasks:
        if row[3] not in STATUSES:
            raise bad("status", row[3], f"one of {', '.join(STATUSES)}")
        outcomes.append(STATUSES[row[3]])
    if None in outcomes or any(not row[4] or not row[5] for row in tasks):
        return None
    if not name:
        raise bad("job_name", name, "a name")
    starts = [amount("start_time", row[4]) for row in tasks]
    ends = [amount("end_time", row[5]) for row in tasks]
    if max(ends) < min(starts):
        raise bad("end_time", tasks[0][5], "a time after the start")
    roles: list[Role] = []
    for number, (_, task, count, _, _, _, cpu, memory, gpu, kind) in enumerate(tasks):
        gpus, cpus = amount("plan_gpu", gpu or "0") / PERCENT, amount("plan_cpu", cpu or "0") / PERCENT
        asked = kind if known is None or known.asked_type is None else known.asked_type
        (role,), _ = _shape(count, gpus, cpus, memory, asked)
        roles.append(_named(role, task or f"task{number}", [each.name for each in roles]))
    work = max(ends) - min(starts)
    outcome = next((o for o in (Outcome.FAILED, Outcome.CANCELLED) if o in outcomes), Outcome.SUCCEEDED)
    shape = shape_of(*roles)
    if known is None:
        return min(starts), plain_job(name, shape, work, name=tasks[0][1]), outcome, 1.0
    job = plain_job(
        name, shape, work, tenant=known.user or DEFAULT_TENANT, user=known.user, name=known.group or tasks[0][1]
    )
    if known.workload:
        job = replace(job, labels=(("workload", known.workload),))
    return known.submit_s, job, outcome, 1.0


def _named(role: Role, name: str, taken: list[str]) -> Role:
    unique = name if name not in taken else f"{name}{len(taken)}"
    return replace(role, name=unique)


def _shape(count: str, gpus: float, cpus: float, memory: str, kind: str) -> Shape:
    """Instances of a task, with what each of them asks for; more than one GPU is rounded up to whole ones."""
    memory_gib = amount("plan_mem", memory or "0")
    for field, value in (("plan_gpu", gpus), ("plan_cpu", cpus), ("plan_mem", memory_gib)):
        if value > MOST:
            raise bad(field, f"{value:g}", f"at most {MOST:,}")
    milli = round(gpus * WHOLE)
    if milli > WHOLE:
        milli = -(-milli // WHOLE) * WHOLE
    types = () if kind in _ANY or not milli else (DeviceType(kind),)
    return shape_of(
        Role(
            count=max(whole("num_inst", count or "1"), 1),
            device_milli=milli,
            device_types=types,
            cpu_milli=round(cpus * WHOLE),
            memory_bytes=int(memory_gib * GIB),
        )
    )
