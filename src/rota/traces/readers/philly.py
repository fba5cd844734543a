"""Microsoft's Philly trace as one flat CSV (Jeon et al., USENIX ATC 2019; flattened by Pollux and Sia).

Rows are not in order of time. The virtual cluster is the tenant; there are no job ids and no outcomes.
"""

from __future__ import annotations

from sys import intern

from rota.traces.assemble import GangCache, plain_job
from rota.traces.builder import Entry, TraceBuilder
from rota.traces.fields import amount, moment_s
from rota.traces.source import TraceSource
from rota.traces.table import HeaderColumns, Parse, has_columns, read_table
from rota.traces.workload import Outcome, Workload

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")


def detects(source: TraceSource) -> bool:
    """Whether the header is the flat Philly one."""
    return has_columns(source.first_line, COLUMNS)


def read(source: TraceSource) -> Workload:
    """Read the flat CSV; time starts at the first submission."""
    return read_table(source, _parser).workload("philly", from_zero=True)


def _parser(columns: HeaderColumns, _: TraceBuilder) -> Parse:
    timestamp, duration, num_gpus, cluster = (columns[name] for name in COLUMNS)
    gangs = GangCache("num_gpus")
    succeeded = Outcome.SUCCEEDED

    def parse(row: list[str], index: int) -> Entry:
        work = amount("duration", row[duration])
        job = plain_job(str(index), gangs[row[num_gpus]], work, tenant=intern(row[cluster]))
        return moment_s("timestamp", row[timestamp]), job, succeeded, 1.0

    return parse
