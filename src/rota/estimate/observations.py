"""Past runs: what each was requested to do, and what it took. One row of a table for one run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rota.core.errors import RotaError, did_you_mean

if TYPE_CHECKING:
    import polars as pl

Floats = npt.NDArray[np.float64]
Value = str | float

LABELS: Mapping[str, str] = {
    "gpus": "GPUs in use",
    "gpu_memory_mb": "peak GPU memory, MiB",
    "gpu_util_mean": "GPU utilisation, %",
    "gpu_util_std": "its standard deviation",
    "cpu_cores": "CPUs in use",
    "host_memory_mb": "host memory, MiB",
    "pcie_read_mb_s": "read over the bus, MiB/s",
    "pcie_sent_mb_s": "sent over the bus, MiB/s",
    "net_received_mb_s": "received from the network, MiB/s",
    "net_sent_mb_s": "sent to the network, MiB/s",
    "step_s": "a step, s",
    "load_s": "loading, s",
    "train_s": "training, s",
    "save_s": "saving, s",
    "duration_s": "the whole run, s",
}
"""What can be estimated, by column name."""

COUNTED = ("params", "activation_bytes_per_sample", "flops_per_sample", "input_bytes_per_sample")
"""Columns known without a run, where they were counted."""

OTHER_RESULTS = frozenset({"steps", "step_mean_s", "saved_mb", "reserved_mb", "allocated_mb"})
"""Columns that only a run shows and that are not estimated."""

GROUPS = ("family", "model", "name", "program")
"""Columns that define the kind of a run, the widest first."""

WHOSE = ("tenant", "user")
"""Columns with the owner of a run: an unknown owner is no reason to doubt an estimate."""

BUILT_IN: Mapping[str, str] = {"h200": "h200-alone.csv"}
"""Tables that come with Rota, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One run: what was known before it, and what it took, where measured."""

    attributes: Mapping[str, Value]
    labels: Mapping[str, float]

    @property
    def key(self) -> tuple[tuple[str, Value], ...]:
        """Equal for runs of the same configuration."""
        return tuple(sorted((name, value) for name, value in self.attributes.items() if name not in COUNTED))

    @property
    def kind(self) -> str:
        """The kind of this run."""
        return next((f"{name}={self.attributes[name]}" for name in GROUPS if name in self.attributes), "")


def read_observations(path: Path) -> list[Observation]:
    """Read the runs of a CSV or Parquet table; columns that are not labels are attributes."""
    import polars as pl

    if str(path) in BUILT_IN:
        path = Path(str(files("rota.perf.profiles") / "measured" / BUILT_IN[str(path)]))
    if not path.is_file():
        raise RotaError(f"{path}: there is no such file")
    try:
        table = pl.read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)
    except pl.exceptions.PolarsError as error:
        raise RotaError(f"{path}: can't be read as a table: {str(error).splitlines()[0]}") from error
    if not set(table.columns) & LABELS.keys():
        raise RotaError(f"{path}: no column to learn; add at least one of {', '.join(LABELS)}")
    if not table.height:
        raise RotaError(f"{path}: no rows")
    for name in (name for name in LABELS if name in table.columns):
        table = table.with_columns(pl.Series(name, _numbers(path, name, table[name].to_list()), pl.Float64))
    return [observation(row) for row in table.iter_rows(named=True)]


def _read_csv(path: Path) -> pl.DataFrame:
    """Read labels as text, so that one invalid cell does not change the type of the column."""
    import polars as pl

    names = pl.read_csv(path, n_rows=0).columns
    return pl.read_csv(
        path, infer_schema_length=None, schema_overrides={name: pl.String for name in names if name in LABELS}
    )


def _numbers(path: Path, name: str, cells: Sequence[object]) -> list[float | None]:
    """Return the numbers of a label's cells; refuse text; an empty cell or `nan` was not measured."""
    found: list[float | None] = []
    for row, cell in enumerate(cells, start=1):
        try:
            found.append(None if cell is None else float(str(cell)))
        except ValueError:
            raise RotaError(f"{path}: row {row}: {name} is {cell!r}; expected a number") from None
    return found


def observation(row: Mapping[str, object]) -> Observation:
    """Return a row of a table as a run."""
    attributes: dict[str, Value] = {}
    labels: dict[str, float] = {}
    for name, value in row.items():
        if value is None or name in OTHER_RESULTS:
            continue
        if name in LABELS:
            if isinstance(value, int | float) and math.isfinite(value) and value >= 0:
                labels[name] = float(value)
        else:
            attributes[name] = float(value) if isinstance(value, int | float) else str(value)
    return Observation(attributes=attributes, labels=labels)


def with_label(runs: Iterable[Observation], label: str) -> list[Observation]:
    """Return the runs in which a label was measured and is above 0: errors are relative to it."""
    return [run for run in runs if run.labels.get(label, 0.0) > 0]


def known_label(name: str) -> str:
    """Return the label, refuse an unknown name."""
    if name not in LABELS:
        raise RotaError(f"unknown label {name!r}; {did_you_mean(name, LABELS)}")
    return name


class Encoder:
    """Encoding of attributes: a column for each number (its logarithm where it has one) and for each common value."""

    MOST_WORDS = 40

    def __init__(self, runs: Sequence[Observation]) -> None:
        names = sorted({name for run in runs for name in run.attributes})
        self._numbers = [
            name for name in names if all(isinstance(run.attributes.get(name, 0.0), float) for run in runs)
        ]
        self._words: list[tuple[str, Value]] = []
        for name in names:
            if name not in self._numbers:
                counts: dict[Value, int] = {}
                for run in runs:
                    if name in run.attributes:
                        counts[run.attributes[name]] = counts.get(run.attributes[name], 0) + 1
                common = sorted(counts, key=lambda word: (-counts[word], str(word)))[: self.MOST_WORDS]
                self._words.extend((name, word) for word in common)

    def encode(self, runs: Sequence[Observation]) -> Floats:
        """Return a row for each run, with -1 for missing attributes."""
        rows = [
            [_number(run.attributes.get(name)) for name in self._numbers]
            + [float(run.attributes.get(name) == word) for name, word in self._words]
            for run in runs
        ]
        return np.array(rows, dtype=np.float64).reshape(len(runs), len(self._numbers) + len(self._words))


def _number(value: Value | None) -> float:
    if not isinstance(value, float):
        return -1.0
    return math.log1p(value) if value >= 0 else value
