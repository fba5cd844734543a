"""Forecasts and simulations against what happened, on live managers.

Each row is a real `rota up` on 8 emulated devices (2 nodes of 4) with real processes that sleep: jobs of random length,
size and priority arrive at random, half of them save their progress when they are stopped, the others start over. The
first jobs are the past from which the manager learns; the last ones follow so that the stream does not end with those
that are measured. Of those between it is measured how many starts fell into the 90% range that was given at submission,
the error of its median as a part of the wait, and the completion times of a simulation of the same jobs against the
real ones. `declared` jobs have an estimate that is off by a random factor; those from
`history` have none, but names that ran before. Rows run side by side, as sleeping costs nothing.

usage: bench/truth.py [--out DIR] [--rows N,N] [--jobs N] [--past N] [--after N] [--scale S] [--parallel N] [--seed N]
       bench/truth.py --gpu [--out DIR]          real trainings with PyTorch on the first GPU, within 8 minutes
       bench/truth.py --kubernetes [--out DIR]   hollow nodes of a real API server
       bench/truth.py --traces [--out DIR]       public traces of $ROTA_DATA, replayed in the simulator as if live
       bench/truth.py --floor [--out DIR]        the jobs of the live rows in the simulator, with assumptions known
       bench/truth.py --page [--out DIR]         write the tables of docs/explain/truth.md from the results; several
                                                 files of a kind, floor-1.json and floor-2.json, are put together
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "bench"))

from truth_rows.live import DEFAULT_ROWS, LONGEST_S, LiveRow, measure_row
from truth_rows.table import print_table, write_page

Json = dict[str, Any]
DEFAULT_OUT = ROOT / "out" / "truth"


def main() -> None:
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.page:
        write_page(options.out, ROOT / "docs" / "explain" / "truth.md")
        return
    if options.gpu:
        from truth_rows.gpu import measure_gpu

        limit_s = options.limit or 440.0
        rows = measure_gpu(options.seed, limit_s=limit_s, wanted=wanted_rows(options), keep=options.keep)
        finish("gpu", rows, options.out)
        return
    if options.kubernetes:
        from truth_rows.kubernetes import measure_kubernetes

        finish(
            "kubernetes",
            measure_kubernetes(options.jobs, options.past, options.after, options.scale, options.seed),
            options.out,
        )
        return
    if options.traces or options.floor:
        replay(options)
        return
    finish("live", live_rows(options), options.out)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="the folder of the results")
    parser.add_argument("--rows", default="", help="only these rows, by number from 1")
    parser.add_argument("--jobs", type=int, default=64, help="measured jobs of a row")
    parser.add_argument("--past", type=int, default=32, help="jobs before them")
    parser.add_argument("--after", type=int, default=16, help="jobs after them, which are not measured")
    parser.add_argument("--keep", type=Path, help="a folder for the databases of the managers")
    parser.add_argument("--scale", type=float, default=1.0, help="stretches all times")
    parser.add_argument("--parallel", type=int, default=4, help="rows at a time, or processes that replay")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, help="seconds after which a row is measured as it is; 440 with --gpu")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--kubernetes", action="store_true")
    parser.add_argument("--traces", action="store_true")
    parser.add_argument("--floor", action="store_true")
    parser.add_argument("--runs", type=int, default=16, help="forward runs of a replayed forecast")
    parser.add_argument("--seeds", type=int, default=2, help="replayed workloads of each row of --floor")
    parser.add_argument("--page", action="store_true")
    return parser.parse_args()


def replay(options: argparse.Namespace) -> None:
    """Replay in the simulator, and write the rows as JSON, each as soon as it is there."""
    from truth_rows.replayed import floor_rows, trace_rows

    if options.traces:
        write_rows("traces", trace_rows(options.runs, options.parallel), options.out)
    if options.floor:
        seeds = range(options.seed + 1000, options.seed + 1000 + options.seeds)
        write_rows("floor", floor_rows(options.runs, seeds, options.parallel, wanted_rows(options)), options.out)


def write_rows(name: str, rows: Iterator[Json], out: Path) -> None:
    """Print replayed rows, and write them as JSON."""
    found: list[Json] = []
    for row in rows:
        found.append(row)
        (out / f"{name}.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
        print({key: value for key, value in row.items() if key != "singles"}, flush=True)


def wanted_rows(options: argparse.Namespace) -> set[int]:
    """Return the numbers of the wanted rows; none means all."""
    return {int(number) for number in options.rows.split(",") if number}


def live_rows(options: argparse.Namespace) -> list[Json]:
    """Measure the rows, several at a time."""
    wanted = wanted_rows(options)
    limit_s = options.limit or LONGEST_S
    rows = [
        LiveRow(
            policy=policy,
            source=source,
            jobs=options.jobs,
            past=options.past,
            after=options.after,
            scale=options.scale,
            seed=options.seed + number,
        )
        for number, (policy, source) in enumerate(DEFAULT_ROWS, start=1)
        if not wanted or number in wanted
    ]
    with (
        tempfile.TemporaryDirectory(prefix="rota-truth-") as folder,
        ThreadPoolExecutor(max_workers=options.parallel) as pool,
    ):
        return list(pool.map(lambda row: measure_row(row, Path(folder), limit_s=limit_s, keep=options.keep), rows))


def finish(name: str, rows: list[Json], out: Path) -> None:
    """Print the table, and write the rows as JSON; a row that was measured again replaces the old one."""
    file = out / f"{name}.json"
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    fresh = {(row["policy"], row["source"]) for row in rows}
    kept = [row for row in before if (row["policy"], row["source"]) not in fresh]
    file.write_text(json.dumps([*kept, *rows], indent=1), encoding="utf-8")
    print_table(name, rows)


if __name__ == "__main__":
    main()
