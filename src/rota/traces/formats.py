"""The table of trace formats: how each is recognised, and its reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rota.core.errors import RotaError, did_you_mean
from rota.plugins import find_plugin, names_of
from rota.traces.assemble import collection_paused
from rota.traces.readers import (
    alibaba,
    blox,
    gavel,
    helios,
    journal,
    own,
    pai,
    philly,
    philly_json,
    slurm,
    tiresias,
)
from rota.traces.readers.any_csv import parse_columns, read_columns
from rota.traces.readers.user import READERS, read_with
from rota.traces.source import TraceSource, open_source
from rota.traces.table import names_in
from rota.traces.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """A format by name, with what recognises it (by content, never by file name) and what reads it."""

    name: str
    description: str
    detects: Callable[[TraceSource], bool]
    read: Callable[[TraceSource], Workload]
    beside: tuple[str, ...] = ()
    """Names of further files that are read with one that lies beside them."""


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
        name="pai2020",
        description="Alibaba PAI of 2020, list with durations (pai_job_duration_estimate*.csv)",
        detects=pai.detects_estimate,
        read=pai.read_estimate,
    ),
    TraceFormat(
        name="pai2020-raw",
        description="Alibaba PAI of 2020, raw tables (pai_task_table.csv with those beside it)",
        detects=pai.detects_tasks,
        read=pai.read_tasks,
        beside=pai.BESIDE,
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

    As the format of any other CSV, its columns may be named: `submit=ts,duration=run_time,gpus=n`. A wrong line raises
    `RotaError` as `FILE:LINE: reason`; with `skip_bad_lines` it is counted instead.
    """
    if format is not None and "=" in format and ".py" not in format:
        return read_columns(path, parse_columns(format), skip_bad_lines=skip_bad_lines)
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
        f"{source.path}: the trace format is not recognised{_nearest(source)}; name it with --format, one of "
        f"{', '.join(FORMATS)}, or its columns: --columns submit=...,duration=...,gpus=..."
    )


def tables_beside(path: Path) -> list[Path]:
    """The files that are read with a trace because they lie beside it."""
    near = {path.with_name(name) for entry in FORMATS.values() for name in entry.beside} - {path}
    if not any(each.is_file() for each in near):
        return []
    try:
        names = detect(open_source(path)).beside
    except RotaError:  # it is no trace of a known format
        return []
    return [each for name in names if (each := path.with_name(name)).is_file()]


_NEEDS: Mapping[str, frozenset[str]] = {
    "rota": frozenset({"id", "submit_s", "work"}),
    "philly": frozenset(philly.COLUMNS),
    "tiresias": frozenset(tiresias.COLUMNS),
    "blox": frozenset(blox.COLUMNS),
    "alibaba2023": frozenset(alibaba.COLUMNS),
    "pai2020": frozenset(pai.ESTIMATE_COLUMNS),
    "pai2020-raw": frozenset(pai.TASK_COLUMNS),
    "helios": frozenset(helios.COLUMNS),
    "slurm": frozenset({"JobID", "Submit", "State", "ElapsedRaw"}),
}
"""The columns that a format is recognised by."""


def _nearest(source: TraceSource) -> str:
    """The format with most of the columns that the file has, and those that it lacks."""
    has = {name for mark in ",|\t;" for name in names_in(source.first_line, mark)}
    shares = {name: len(needs & has) / len(needs) for name, needs in _NEEDS.items()}
    best = max(shares, key=lambda name: shares[name])
    if not shares[best]:
        return ""
    lacking = ", ".join(sorted(_NEEDS[best] - has))
    return f"; nearest is {best}, which also needs {lacking}" if lacking else f"; nearest is {best}"
