"""The table of jobs as files: one row per job, as Parquet and as CSV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rota.core.state.history import History, JobRow
from rota.report.metrics import finish_time_fairness

if TYPE_CHECKING:
    import polars

_TEXT = frozenset({"id", "name", "tenant", "user", "state"})
_WHOLE = frozenset({"tasks", "priority", "preemptions", "restarts", "suspensions", "moves"})


def write_jobs(history: History, folder: Path) -> tuple[Path, Path]:
    """Write `jobs.parquet` and `jobs.csv` into an existing folder, and return their paths."""
    table = jobs_table(history)
    parquet, csv = folder / "jobs.parquet", folder / "jobs.csv"
    table.write_parquet(parquet)
    table.write_csv(csv)
    return parquet, csv


def jobs_table(history: History) -> polars.DataFrame:
    """The fields of `JobRow`, then `jct_s` and `finish_time_fairness`; null where a job has no such value."""
    import polars as pl

    jobs = history.jobs
    columns = {}
    for name in JobRow._fields:
        values = [getattr(row, name) for row in jobs]
        kind = pl.String if name in _TEXT else pl.Int64 if name in _WHOLE else pl.Float64
        columns[name] = pl.Series(name, values, dtype=kind)
    jct_s = [None if row.end_s is None else row.end_s - row.submit_s for row in jobs]
    columns["jct_s"] = pl.Series("jct_s", jct_s, dtype=pl.Float64)
    ratios = [None if np.isnan(ratio) else float(ratio) for ratio in finish_time_fairness(history)]
    columns["finish_time_fairness"] = pl.Series("finish_time_fairness", ratios, dtype=pl.Float64)
    return pl.DataFrame(list(columns.values()))
