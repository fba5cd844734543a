"""The table of trace formats: how each is recognised, and its reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rota.core.errors import RotaError, did_you_mean
from rota.plugins import find_plugin, names_of
from rota.traces.assemble import collection_paused
from rota.traces.readers import alibaba, blox, gavel, helios, journal, own, philly, philly_json, slurm, tiresias
from rota.traces.readers.user import READERS, read_with
from rota.traces.source import TraceSource, open_source
from rota.traces.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """A format by name, with what recognises it (by content, never by file name) and what reads it."""

    name: str
    description: str
    detects: Callable[[TraceSource], bool]
    read: Callable[[TraceSource], Workload]


_ALL = (
    TraceFormat(
        name="rota",
        description="Rota's own columns: Parquet, CSV or JSON lines",
        detects=own.detects,
        read=own.read,
    ),
    TraceFormat(
        name="philly",
        description="Microsoft Philly as a flat CSV (timestamp,duration,num_gpus,gpu_time,cluster)",
        detects=philly.detects,
        read=philly.read,
    ),
    TraceFormat(
        name="philly-json",
        description="Microsoft Philly as published (cluster_job_log)",
        detects=philly_json.detects,
        read=philly_json.read,
    ),
    TraceFormat(
        name="gavel",
        description="Gavel, tab-separated, 10 columns or the older 7; work in steps",
        detects=gavel.detects,
        read=gavel.read,
    ),
    TraceFormat(
        name="tiresias",
        description="Tiresias job file (job_id,num_gpu,submit_time,...,model_name,duration,...)",
        detects=tiresias.detects,
        read=tiresias.read,
    ),
    TraceFormat(
        name="blox",
        description="Blox job list (job_id,num_gpu,submit_time,duration)",
        detects=blox.detects,
        read=blox.read,
    ),
    TraceFormat(
        name="alibaba2023",
        description="Alibaba GPU trace of 2023, pod list (openb_pod_list*.csv)",
        detects=alibaba.detects,
        read=alibaba.read,
    ),
    TraceFormat(
        name="helios",
        description="SenseTime Helios (cluster_log.csv)",
        detects=helios.detects,
        read=helios.read,
    ),
    TraceFormat(
        name="slurm",
        description="Slurm accounting, as printed by sacct --parsable2",
        detects=slurm.detects,
        read=slurm.read,
    ),
    TraceFormat(
        name="journal",
        description="a journal of Rota's, live or simulated: its jobs again",
        detects=journal.detects,
        read=journal.read,
    ),
)

FORMATS: Mapping[str, TraceFormat] = {entry.name: entry for entry in _ALL}
"""All formats by name, in the order in which they are tried."""


def read_trace(path: Path, *, format: str | None = None, skip_bad_lines: bool = False) -> Workload:
    """Read a trace; the format is recognised by the file's content unless it is named, or `FILE.py:FUNCTION` reads it.

    A wrong line raises `RotaError` as `FILE:LINE: reason`; with `skip_bad_lines` it is counted instead.
    """
    reader = None
    if format is not None and format not in FORMATS:
        reader = find_plugin(READERS, format)
        if reader is None:
            raise RotaError(f"unknown trace format {format!r}; {did_you_mean(format, [*FORMATS, *names_of(READERS)])}")
    source = open_source(path, skip_bad_lines=skip_bad_lines)
    if reader is not None:
        return read_with(reader, source)
    chosen = FORMATS[format] if format is not None else detect(source)
    with collection_paused():
        return chosen.read(source)


def detect(source: TraceSource) -> TraceFormat:
    """The first format that knows the file by its beginning."""
    for entry in FORMATS.values():
        if entry.detects(source):
            return entry
    raise RotaError(
        f"{source.path}: the trace format is not recognised; name it with --format, one of {', '.join(FORMATS)}"
    )
