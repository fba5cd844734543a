"""Job files of the Tiresias simulator (Gu et al., NSDI 2019): seconds from 0, whole durations."""

from __future__ import annotations

from rota.traces.assemble import GangCache, plain_job
from rota.traces.builder import Entry, TraceBuilder
from rota.traces.fields import amount
from rota.traces.source import TraceSource
from rota.traces.table import HeaderColumns, Parse, has_columns, job_id, read_table
from rota.traces.workload import Outcome, Workload

COLUMNS = ("job_id", "num_gpu", "submit_time", "duration")


def detects(source: TraceSource) -> bool:
    """Whether the header has a model name beside the columns that Blox has too."""
    return has_columns(source.first_line, (*COLUMNS, "model_name"))


def read(source: TraceSource) -> Workload:
    """Read a job file; submit times stay as they are, and work is in seconds whatever the model."""
    return read_table(source, _parser).workload("tiresias")


def _parser(columns: HeaderColumns, _: TraceBuilder) -> Parse:
    id_at, num_gpu, submit_time, duration = (columns[name] for name in COLUMNS)
    model = columns["model_name"]
    gangs = GangCache("num_gpu")

    def parse(row: list[str], _: int) -> Entry:
        name = row[model]
        job = plain_job(
            job_id("job_id", row[id_at]),
            gangs[row[num_gpu]],
            float(int(amount("duration", row[duration]))),
            model=name,
        )
        return amount("submit_time", row[submit_time]), job, Outcome.SUCCEEDED, 1.0

    return parse
