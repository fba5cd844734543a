"""SenseTime's Helios traces (Hu et al., SC 2021): Slurm jobs with users, virtual clusters and outcomes.

A job names its nodes: devices that divide evenly are a task per node, others a gang of one-device tasks.
"""

from __future__ import annotations

from sys import intern

from rota.traces.assemble import Shape, plain_job, spread_over_nodes
from rota.traces.builder import Entry, TraceBuilder
from rota.traces.fields import amount, bad, moment_s, whole
from rota.traces.source import TraceSource
from rota.traces.table import HeaderColumns, Parse, has_columns, job_id, read_table
from rota.traces.workload import Outcome, Workload

SHAPE_COLUMNS = ("gpu_num", "cpu_num", "node_num")
COLUMNS = ("job_id", "user", "vc", *SHAPE_COLUMNS, "state", "submit_time", "duration")
OUTCOMES = {
    "COMPLETED": Outcome.SUCCEEDED,
    "CANCELLED": Outcome.CANCELLED,
    "FAILED": Outcome.FAILED,
    "TIMEOUT": Outcome.FAILED,
    "NODE_FAIL": Outcome.FAILED,
    "SUSPENDED": Outcome.CANCELLED,
}


def detects(source: TraceSource) -> bool:
    """Whether the header is that of `cluster_log.csv`."""
    return has_columns(source.first_line, COLUMNS)


def read(source: TraceSource) -> Workload:
    """Read a cluster log; time starts at the first submission. A job that never started is left out."""
    return read_table(source, _parser).workload("helios", from_zero=True)


def _parser(columns: HeaderColumns, intake: TraceBuilder) -> Parse:
    id_at, user, vc, gpu_num, cpu_num, node_num, state, submit, duration = (columns[name] for name in COLUMNS)
    start, jobname = columns.get("start_time"), columns.get("jobname")
    shapes: dict[tuple[str, str, str], Shape] = {}

    def parse(row: list[str], _: int) -> Entry | None:
        outcome = OUTCOMES.get(row[state])
        if outcome is None:
            raise bad("state", row[state], f"one of {', '.join(OUTCOMES)}")
        submit_s = moment_s("submit_time", row[submit])
        if start is not None and row[start] in ("", "None", "Unknown"):
            intake.left_out += 1
            return None
        key = row[gpu_num], row[cpu_num], row[node_num]
        job = plain_job(
            job_id("job_id", row[id_at]),
            shapes.get(key) or shapes.setdefault(key, _shape(*key)),
            amount("duration", row[duration]),
            tenant=intern(row[vc]),
            user=intern(row[user]),
            name="" if jobname is None else row[jobname],
        )
        return submit_s, job, outcome, 1.0

    return parse


def _shape(gpus: str, cpus: str, nodes: str) -> Shape:
    return spread_over_nodes(
        whole("gpu_num", gpus),
        whole("node_num", nodes, at_least=1),
        cpu_milli=whole("cpu_num", cpus) * 1000,
    )
