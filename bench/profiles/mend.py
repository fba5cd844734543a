"""Take out of the measured table what earlier trainings of the same process had left in the device's memory.

    python bench/profiles/mend.py src/rota/perf/measured/h200-alone.csv --processes 0 112 212

Counting operations (`Training.white_box`) kept its graph alive: parameters, their gradients and what two samples keep
for the way back stayed on the device when a training was over. All of that is counted in the table, so that what lay
there before each training is known; run on a CPU, the same code leaves exactly these tensors (seen for 17 of the 20
models; of a GAN, the generator's).
The allocator rounds blocks up, which comes to ROUNDING_MB a training: the one number here that is fitted, on ten pairs
of runs of the same configuration in the same process. It writes the columns `leaked_mb` and `gpu_memory_mb`.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import statistics
from pathlib import Path

MB = 2**20
ROUNDING_MB = 6.7
GAN_WEIGHTS, GAN_KEPT = 0.53, 0.25
"""The generator's part of a GAN's parameters, and of what is kept."""

Row = dict[str, str]


def left_mb(row: Row) -> float:
    """What a training leaves behind."""
    weights = 2 * 4 * float(row["params"]) / MB
    kept = 2 * float(row["activation_bytes_per_sample"]) / MB
    if row["family"] == "gan":
        weights, kept = GAN_WEIGHTS * weights, GAN_KEPT * kept
    return weights + kept + ROUNDING_MB


def mend(rows: list[Row], begins: list[int]) -> None:
    for first, last in itertools.pairwise([*begins, len(rows)]):
        lies_mb = 0.0
        for row in rows[first:last]:
            row["leaked_mb"] = f"{lies_mb:.1f}"
            row["gpu_memory_mb"] = f"{float(row['allocated_mb']) - lies_mb:.1f}"
            lies_mb += left_mb(row)


def disagreements(rows: list[Row]) -> list[float]:
    """How far runs of the same configuration are apart, in MiB, from their mean."""
    by_key: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("model", "batch", "size", "precision", "optimizer"))
        by_key.setdefault(key, []).append(float(row["gpu_memory_mb"]))
    return [abs(each - statistics.fmean(same)) for same in by_key.values() if len(same) > 1 for each in same]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--processes", type=int, nargs="+", required=True, help="the row where each process began")
    asked = parser.parse_args()
    with asked.table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    mend(rows, asked.processes)
    with asked.table.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    apart = disagreements(rows)
    print(f"{len(apart)} repeats lie {statistics.fmean(apart):.0f} MiB from their mean, at most {max(apart):.0f}")


if __name__ == "__main__":
    main()
