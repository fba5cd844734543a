"""Speed of the simulator: jobs per CPU second, end to end, against figures measured for other simulators.

Each figure comes from a fresh `rota sim` process, start-up and trace reading included, measured as the user
and system time of that process. The marginal cost is the additional time of the longer trace per
additional job. Run: `python bench/simulator_speed.py` with ROTA_DATA set to the folder of real traces.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROTA = [str(Path(sys.executable).with_name("rota"))]
TIRESIAS_JOBS_PER_CPU_S = {"fifo": 300.0, "las": 190.0}
"""Measured for the authors' simulator on philly10000_tiresias.csv."""
FULL_TRACE_LIMIT_S = 60.0
ROTA_OVER_LAS = 1.3
"""How much more time Rota's own policy may take than `las`, over the full trace."""
MEMORY_LIMIT_MB = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One `rota sim` process."""

    jobs: int
    cpu_s: float
    memory_mb: float

    @property
    def jobs_per_cpu_s(self) -> float:
        return self.jobs / self.cpu_s


def simulate(trace: Path, cluster: str, policy: str) -> Run:
    """Run one policy over one trace in a separate process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [*ROTA, "sim", "--trace", str(trace), "--cluster", cluster, "--policy", policy, "-o", "json"]
    pid = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    out, _ = pid.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if pid.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {pid.returncode}")
    (row,) = json.loads(out)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(jobs=row["jobs"], cpu_s=cpu_s, memory_mb=after.ru_maxrss / 1024)


def against_tiresias(data: Path, repeats: int) -> bool:
    """Compare the 10,000-job trace with the published simulator, and print the marginal cost up to the full trace."""
    ok = True
    short, full = data / "tiresias" / "philly10000_tiresias.csv", data / "philly" / "philly.csv"
    print(
        "| policy | jobs | jobs/CPU-s | x Tiresias | full trace, CPU s | marginal us/job | x Tiresias, marginal | MB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    whole_s = {}
    for policy in ("fifo", "las", "srtf", "gittins", "rota"):
        runs = [simulate(short, "gpu=400/8", policy) for _ in range(repeats)]
        run = min(runs, key=lambda r: r.cpu_s)
        whole = simulate(full, "gpu=440/8", policy)
        whole_s[policy] = whole.cpu_s
        marginal_s = (whole.cpu_s - run.cpu_s) / (whole.jobs - run.jobs)
        peer = TIRESIAS_JOBS_PER_CPU_S.get(policy)
        times = f"{run.jobs_per_cpu_s / peer:.0f}" if peer else "-"
        marginal_times = f"{1 / marginal_s / peer:.0f}" if peer else "-"
        print(
            f"| {policy} | {run.jobs} | {run.jobs_per_cpu_s:.0f} | {times} | {whole.cpu_s:.1f} "
            f"| {marginal_s * 1e6:.0f} | {marginal_times} | {whole.memory_mb:.0f} |"
        )
        ok &= whole.cpu_s < FULL_TRACE_LIMIT_S and whole.memory_mb < MEMORY_LIMIT_MB
        ok &= peer is None or run.jobs_per_cpu_s >= 20 * peer
    over = whole_s["rota"] / whole_s["las"]
    print(f"\n`rota` takes {over:.2f} times as long as `las` on the full trace (at most {ROTA_OVER_LAS:g})")
    return ok and over <= ROTA_OVER_LAS


def growth(folder: Path) -> bool:
    """Print the cost per job from 10,000 to 100,000 generated jobs at equal load."""
    ok = True
    print("\n| policy | us/job at 10,000 | us/job at 100,000 | growth | MB |")
    print("|---|---|---|---|---|")
    traces = {}
    for jobs in (10_000, 100_000):
        traces[jobs] = folder / f"{jobs}.csv"
        generate = [
            *ROTA,
            "trace",
            "generate",
            "philly-like",
            str(traces[jobs]),
            "--jobs",
            str(jobs),
            "--seed",
            "1",
        ]
        subprocess.run(generate, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for policy in ("fifo", "srtf", "las", "gittins"):
        small = min((simulate(traces[10_000], "gpu=440/8", policy) for _ in range(2)), key=lambda r: r.cpu_s)
        large = simulate(traces[100_000], "gpu=440/8", policy)
        factor = (large.cpu_s / large.jobs) / (small.cpu_s / small.jobs)
        print(
            f"| {policy} | {small.cpu_s / small.jobs * 1e6:.0f} | {large.cpu_s / large.jobs * 1e6:.0f} "
            f"| {factor:.2f} | {large.memory_mb:.0f} |"
        )
        ok &= factor < 1.5 and large.memory_mb < MEMORY_LIMIT_MB
    return ok


def main() -> int:
    data = os.environ.get("ROTA_DATA")
    ok = True
    if data:
        ok &= against_tiresias(Path(data), repeats=3)
    else:
        print("ROTA_DATA is not set: the comparison on real traces is skipped")
    with tempfile.TemporaryDirectory() as folder:
        ok &= growth(Path(folder))
    print("\nall bounds hold" if ok else "\na bound is exceeded")
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
