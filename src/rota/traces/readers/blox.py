"""Job lists for the Blox simulator (Agarwal et al., EuroSys 2024): four columns, seconds from 0."""

from __future__ import annotations

from rota.traces.assemble import GangCache, plain_job
from rota.traces.builder import Entry, TraceBuilder
from rota.traces.fields import amount
from rota.traces.source import TraceSource
from rota.traces.table import HeaderColumns, Parse, job_id, names_in, read_table
from rota.traces.workload import Outcome, Workload

COLUMNS = ("job_id", "num_gpu", "submit_time", "duration")


def detects(source: TraceSource) -> bool:
    """Whether the header is just the four columns."""
    return names_in(source.first_line) == frozenset(COLUMNS)


def read(source: TraceSource) -> Workload:
    """Read the list; submit times stay as they are."""
    return read_table(source, _parser).workload("blox")


def _parser(columns: HeaderColumns, _: TraceBuilder) -> Parse:
    id_at, num_gpu, submit_time, duration = (columns[name] for name in COLUMNS)
    gangs = GangCache("num_gpu")

    def parse(row: list[str], _: int) -> Entry:
        work = amount("duration", row[duration])
        job = plain_job(job_id("job_id", row[id_at]), gangs[row[num_gpu]], work)
        return amount("submit_time", row[submit_time]), job, Outcome.SUCCEEDED, 1.0

    return parse
