"""What `sacct --parsable2` prints: one header, fields separated by '|', a row per job and per job step.

Steps are not jobs and are passed over. A job that never started, or has not ended, is left out.
"""

from __future__ import annotations

from sys import intern

from rota.core.model.job import DEFAULT_TENANT
from rota.scenario.partitions import JOB_LABEL
from rota.traces.assemble import Shape, plain_job
from rota.traces.builder import Entry, TraceBuilder
from rota.traces.fields import bad, moment_s
from rota.traces.readers.slurm_fields import ABSENT, elapsed_s, resources_shape
from rota.traces.source import TraceSource
from rota.traces.table import HeaderColumns, Parse, has_columns, job_id, read_table
from rota.traces.workload import Outcome, Workload

COLUMNS = ("JobID", "Submit", "Start", "State")
RESOURCES = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")
HOST = ("NNodes", "NCPUS", "ReqMem")
OUTCOMES = {
    "COMPLETED": Outcome.SUCCEEDED,
    "CANCELLED": Outcome.CANCELLED,
    "PREEMPTED": Outcome.CANCELLED,
    "REVOKED": Outcome.CANCELLED,
    "FAILED": Outcome.FAILED,
    "TIMEOUT": Outcome.FAILED,
    "DEADLINE": Outcome.FAILED,
    "NODE_FAIL": Outcome.FAILED,
    "BOOT_FAIL": Outcome.FAILED,
    "OUT_OF_MEMORY": Outcome.FAILED,
}
UNFINISHED = frozenset({"PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", "COMPLETING"})


def detects(source: TraceSource) -> bool:
    """Whether the header has Slurm's names between bars."""
    return has_columns(source.first_line, ("JobID", "Submit"), "|")


def read(source: TraceSource) -> Workload:
    """Read accounting records; time starts at the first submission. The account is the tenant."""
    intake = read_table(source, _parser, delimiter="|", quoted=False)
    return intake.workload("slurm", from_zero=True)


def _parser(columns: HeaderColumns, intake: TraceBuilder) -> Parse:
    id_at, submit, start, state = (columns[name] for name in COLUMNS)
    columns.first_of(*RESOURCES)
    columns.first_of("ElapsedRaw", "Elapsed", "End")
    resources = [at for at in map(columns.get, RESOURCES) if at is not None]
    host = [columns.get(name) for name in HOST]
    raw, elapsed, end = columns.get("ElapsedRaw"), columns.get("Elapsed"), columns.get("End")
    user, account = columns.get("User"), columns.get("Account")
    limit, name = columns.get("Timelimit"), columns.get("JobName")
    shapes: dict[tuple[str, ...], Shape] = {}
    partition = columns.get("Partition")
    labels: dict[str, tuple[tuple[str, str], ...]] = {"": ()}

    def parse(row: list[str], _: int) -> Entry | None:
        if "." in row[id_at]:
            return None
        ended = row[state].split(" ", 1)[0].rstrip("+")
        if ended in UNFINISHED or row[start] in ABSENT:
            intake.left_out += 1
            return None
        if ended not in OUTCOMES:
            raise bad("State", row[state], f"one of {', '.join([*OUTCOMES, *sorted(UNFINISHED)])}")
        key = (
            next((row[at] for at in resources if row[at]), ""),
            *["" if at is None else row[at] for at in host],
        )
        shape = shapes.get(key) or shapes.setdefault(key, resources_shape(*key))
        work = _ran_s(row, start, raw, elapsed, end)
        job = plain_job(
            job_id("JobID", row[id_at]),
            shape,
            work,
            tenant=DEFAULT_TENANT if account is None else intern(row[account]) or DEFAULT_TENANT,
            user="" if user is None else intern(row[user]),
            name="" if name is None else row[name],
            estimate_s=None if limit is None else elapsed_s("Timelimit", row[limit]),
            labels=() if partition is None else labels.setdefault(row[partition], ((JOB_LABEL, row[partition]),)),
        )
        return moment_s("Submit", row[submit]), job, OUTCOMES[ended], 1.0

    return parse


def _ran_s(row: list[str], start: int, raw: int | None, elapsed: int | None, end: int | None) -> float:
    """How long the job ran, from the first of ElapsedRaw, Elapsed and End that says it."""
    for name, at in (("ElapsedRaw", raw), ("Elapsed", elapsed)):
        ran_s = None if at is None else elapsed_s(name, row[at])
        if ran_s is not None:
            return ran_s
    if end is None:
        raise bad("Elapsed", "", "a duration such as 1-02:30:00")
    ran_s = moment_s("End", row[end]) - moment_s("Start", row[start])
    if ran_s < 0:
        raise bad("End", row[end], f"a time after Start {row[start]}")
    return ran_s
