"""Forecasts of a twin against Slurm's own, on a real Slurm; and its accounting replayed under other policies.

    .venv/bin/python bench/slurm_forecasts.py --jobs 200 --seed 1

Random jobs of six kinds go to four emulated nodes of four GPUs. Their time limits are one to four times too long, in
whole minutes, as users give them. When Slurm first says when a waiting job starts (`squeue --start`), the twin is asked
at the same moment. In the end both are compared with the true starts, and the accounting is replayed by `rota sim`. It
takes about 20 minutes, most of them asleep.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from e2e.slurm.bed import Shape, SlurmBed
from e2e.slurm.twin import Twin
from managers import ROTA
from rota.core.errors import RotaError

Json = dict[str, Any]
KINDS_S = {"debug": 6.0, "eval": 12.0, "prepare": 20.0, "train": 35.0, "tune": 50.0, "large": 70.0}
"""Median run times by kind of job."""
SPREAD = 0.3
LOAD = 1.3
NODES, GPUS = 4, 4
ASK_S = 3.0


class RandomJob(NamedTuple):
    """A job to submit."""

    at_s: float
    kind: str
    options: tuple[str, ...]
    run_s: float


class Said(NamedTuple):
    """What was said of a job's start at one moment."""

    at_s: float
    slurm_s: float
    expected_s: float
    earliest_s: float
    latest_s: float


def workload(jobs: int, rng: random.Random) -> list[RandomJob]:
    """Jobs that arrive at random, at a rate that keeps a queue."""
    found, at_s = [], 0.0
    sizes = [(1, ("--gres=gpu:1",)), (2, ("--gres=gpu:2",)), (4, ("--gres=gpu:4",)), (8, ("--gres=gpu:4", "-N2"))]
    chosen = [rng.choices(sizes, [50, 25, 15, 10])[0] for _ in range(jobs)]
    kinds = [rng.choice(list(KINDS_S)) for _ in range(jobs)]
    runs_s = [KINDS_S[kind] * math.exp(rng.gauss(0.0, SPREAD)) for kind in kinds]
    mean_work = statistics.fmean(gpus * run_s for (gpus, _), run_s in zip(chosen, runs_s, strict=True))
    gap_s = mean_work / (NODES * GPUS * LOAD)
    for (_, options), kind, run_s in zip(chosen, kinds, runs_s, strict=True):
        limit = max(math.ceil(run_s * rng.uniform(1.0, 4.0) / 60.0), 1)
        found.append(RandomJob(at_s, kind, (*options, f"--time={limit}", f"--job-name={kind}"), run_s))
        at_s += rng.expovariate(1.0 / gap_s)
    return found


def observe(bed: SlurmBed, twin: Twin, jobs: list[RandomJob]) -> dict[str, Said]:
    """Submit the jobs at their times, and ask both about each job that waits, once."""
    begun, waiting, said = time.time(), list(jobs), dict[str, Said]()
    while True:
        while waiting and time.time() - begun >= waiting[0].at_s:
            job = waiting.pop(0)
            bed.submit(f"sleep {job.run_s:.2f}", *job.options)
        for name, start_s in slurm_starts(bed).items():
            if name not in said and (found := ask(twin, name, start_s)) is not None:
                said[name] = found
        if not waiting and not bed.do("squeue", "-h"):
            return said
        due_s = waiting[0].at_s - (time.time() - begun) if waiting else ASK_S
        time.sleep(min(max(due_s, 0.05), ASK_S))


def slurm_starts(bed: SlurmBed) -> dict[str, float]:
    """When Slurm says that waiting jobs start."""
    found = {}
    for line in bed.do("squeue", "-h", "--start", "-o", "%i %S").splitlines():
        name, when = line.split()
        if when != "N/A":
            found[name] = datetime.fromisoformat(when).timestamp()
    return found


def ask(twin: Twin, name: str, slurm_s: float) -> Said | None:
    """The twin's forecast; None if it does not know the job yet, or knows that it has started."""
    try:
        answer = twin.client.why(name)
    except RotaError:
        return None
    expected = answer["expected"]
    if answer["state"] != "waiting" or not expected or not expected["usual"]:
        return None
    low_s, usual_s, high_s = (
        datetime.fromisoformat(expected[name]).timestamp() if expected[name] else math.inf
        for name in ("earliest", "usual", "latest")
    )
    return Said(time.time(), slurm_s, usual_s, low_s, high_s)


def true_times(bed: SlurmBed) -> dict[str, tuple[float, float]]:
    """Submission and start of each job, as Slurm accounted them."""
    found = {}
    lines = bed.do("sacct", "-nPX", "-S", "now-1days", "--format=JobID,Submit,Start,State").splitlines()
    for line in lines:
        name, submit, start, _ = line.split("|")
        if start not in ("Unknown", "None"):
            found[name] = (datetime.fromisoformat(submit).timestamp(), datetime.fromisoformat(start).timestamp())
    return found


def report_forecasts(said: dict[str, Said], times: dict[str, tuple[float, float]]) -> None:
    """Compare both forecasts with the true starts."""
    pairs = [(each, times[name][1]) for name, each in said.items() if name in times]
    waits_s = [start_s - each.at_s for each, start_s in pairs]
    slurm_s = [abs(each.slurm_s - start_s) for each, start_s in pairs]
    rota_s = [abs(each.expected_s - start_s) for each, start_s in pairs]
    inside = [each.earliest_s - 1.0 <= start_s <= each.latest_s + 1.0 for each, start_s in pairs]  # Slurm says seconds
    print(f"\n{len(pairs)} forecasts; the jobs then waited {statistics.fmean(waits_s):.0f} s in the mean")
    print("| forecast | median error (s) | mean error (s) | of the mean wait |")
    print("|---|---|---|---|")
    for name, errors_s in (("`squeue --start`", slurm_s), ("Rota's twin", rota_s)):
        median_s, mean_s = statistics.median(errors_s), statistics.fmean(errors_s)
        print(f"| {name} | {median_s:.1f} | {mean_s:.1f} | {median_s / statistics.fmean(waits_s):.0%} |")
    print(f"\nthe range of 90% held {statistics.fmean(inside):.1%} of the starts")


def replay(bed: SlurmBed, folder: Path, times: dict[str, tuple[float, float]], policies: list[str]) -> None:
    """Replay the accounting under policies, and compare the mean wait with Slurm's."""
    trace, cluster = folder / "accounting.txt", folder / "cluster.yaml"
    conf = ("--slurm-conf", bed.env["SLURM_CONF"])

    def rota(*words: str) -> str:
        made = subprocess.run([*ROTA, *words], env=bed.env, capture_output=True, text=True, timeout=300)
        assert made.returncode == 0, made.stderr
        return made.stdout

    rota("slurm", "accounting", str(trace), "--since", "now-1days", *conf)
    cluster.write_text(rota("slurm", "cluster", *conf))
    chosen = [word for name in policies for word in ("--policy", name)]
    found = json.loads(rota("sim", "--trace", str(trace), "--cluster", str(cluster), *chosen, "-o", "json"))
    slurm_s = statistics.fmean(start_s - submit_s for submit_s, start_s in times.values())
    print(f"\nmean wait in Slurm: {slurm_s:.1f} s")
    print("| replayed under | mean wait (s) | against Slurm |")
    print("|---|---|---|")
    for row in found:
        print(f"| `{row['policy']}` | {row['avg_wait_s']:.1f} | {row['avg_wait_s'] / slurm_s - 1:+.1%} |")


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for the accounting and what was said")
    given = parser.parse_args()
    jobs = workload(given.jobs, random.Random(given.seed))
    print(f"{len(jobs)} jobs in {jobs[-1].at_s / 60:.1f} minutes", flush=True)
    bed = SlurmBed(Shape(nodes=NODES, gpus=GPUS, held=False), accounting=True).start()
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = given.keep or Path(name)
            folder.mkdir(parents=True, exist_ok=True)
            twin = Twin(bed, Path(name) / "twin", "observe").start()
            try:
                said = observe(bed, twin, jobs)
            finally:
                twin.stop()
            times = true_times(bed)
            (folder / "said.json").write_text(json.dumps([said, times]))
            report_forecasts(said, times)
            replay(bed, folder, times, ["easy", "fifo", "srtf", "fair-share", "las"])
    finally:
        bed.stop()


if __name__ == "__main__":
    main()
