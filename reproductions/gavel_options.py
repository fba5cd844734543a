"""Rota's own options of the Gavel policies on three workloads: round length, shortest job first, forecasts, elastic
jobs, jobs on several types at once, pairs of different sizes.

Run: `ROTA_DATA=... python reproductions/gavel_options.py [TABLE...]`; without names, all tables.
Prints the tables of docs/reference/reproductions.md.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from rota.core.model.job import WHOLE, Elastic, Job, Role
from rota.drivers.simulator.study import Setting, simulate
from rota.files.cluster import read_cluster
from rota.perf.profiles.profile_files import read_profiles
from rota.perf.speed.model import Costs, SpeedModel
from rota.report.metrics import Metrics, measure
from rota.traces.formats import read_trace

WORKLOADS = {
    "long jobs, several devices (set A)": ("max_min_fairness.trace", "v100=8/4,p100=16/4,k80=24/4"),
    "single devices, steady (set D)": ("gen_single_120.trace", "v100=12/1,p100=12/1,k80=12/1"),
    "all at once": ("minimize_makespan.trace", "v100=8/4,p100=16/4,k80=24/4"),
}
EVEN, ODD = WORKLOADS["all at once"][1], "v100=3/1,p100=5/1,k80=7/1"
"""The usual cluster, which jobs of 1, 2, 4 and 8 devices fill without a remainder, and one with a remainder."""
LENGTHS = ("60", "120", "360", "900", "1800", "3600", "adaptive")
RESTART_S = 30.0
POLICIES = ("max_min_fairness_perf", "min_total_duration_perf")
CHOICES = ("false", "true")
ARRIVING = tuple(WORKLOADS)[:2]
"""The workloads in which jobs arrive one after the other."""
GANGS = tuple(name for name in WORKLOADS if "single" not in name)
"""The workloads with jobs of several devices."""
MOST_TASKS = 8
"""The most devices for which the published table has speeds."""


def run(
    folder: Path,
    workload: str,
    policy: str,
    make: Callable[[Job], Job] = lambda job: job,
    *,
    uneven: bool = False,
    on: str | None = None,
) -> Metrics:
    """Run one policy on one workload with a restart cost; `make` changes its jobs, `on` the cluster."""
    trace, cluster = WORKLOADS[workload]
    asked = read_trace(folder / trace, format="gavel")
    submissions = tuple(replace(each, job=make(each.job)) for each in asked.submissions)
    speed = SpeedModel(profiles=read_profiles(folder / "simulation_throughputs.json"), uneven=uneven)
    setting = Setting(cluster=read_cluster(on or cluster), speed=speed, costs=Costs(restart_s=RESTART_S))
    return measure(simulate(replace(asked, submissions=submissions), policy, setting).history)


def table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a Markdown table."""
    titles = list(titles)
    for line in (titles, ["---"] * len(titles), *rows):
        print(f"| {' | '.join(line)} |")
    print()


def rounds(folder: Path) -> None:
    """Compare round lengths."""
    for workload in WORKLOADS:
        print(f"{workload}:\n")
        rows = []
        for length in LENGTHS:
            found = run(folder, workload, f"gavel/max_min_fairness_perf:compat=none,round_s={length}")
            idle = 100 * (1 - found.gpu_allocation)
            each = (f"{found.avg_jct_s:.0f}", f"{found.makespan_s:.0f}", f"{idle:.1f}%", str(found.preemptions))
            rows.append([f"`{length}`", *each])
        table(["`round_s`", "average completion, s", "makespan, s", "idle", "preemptions"], rows)


def shortest(folder: Path) -> None:
    """Compare shortest job first with other objectives."""
    rows = []
    for workload in WORKLOADS:
        for policy in ("max_min_fairness_perf", "max_sum_throughput_perf", "shortest_job_first_perf"):
            found = run(folder, workload, f"gavel/{policy}:compat=none")
            rows.append([workload, f"`{policy}`", f"{found.avg_jct_s:.0f}", f"{found.makespan_s:.0f}"])
    table(["workload", "policy", "average completion, s", "makespan, s"], rows)


def forecast(folder: Path) -> None:
    """Compare shares with and without expected jobs."""
    rows = []
    for workload in ARRIVING:
        for policy in POLICIES:
            print(f"forecast: {workload}, {policy}", file=sys.stderr)
            found = [run(folder, workload, f"gavel/{policy}:compat=none,forecast={on}") for on in CHOICES]
            rows.append([workload, f"`{policy}`", *figures(found)])
    table(["workload", "policy", "average completion, s", "with `forecast`", "makespan, s", "with `forecast`"], rows)


def as_elastic(job: Job) -> Job:
    """Return the same job with one task per device and bounds of one to eight tasks."""
    count = job.gpu_milli // WHOLE
    bounds = Elastic(min_tasks=1, max_tasks=max(MOST_TASKS, count))
    return replace(job, roles=(Role(count=count),), elastic=bounds)


def elastic(folder: Path) -> None:
    """Compare fixed sizes with sizes as decision variables."""
    rows = []
    for workload in ARRIVING:
        for policy in ("max_min_fairness_perf", "shortest_job_first_perf"):
            print(f"elastic: {workload}, {policy}", file=sys.stderr)
            found = [run(folder, workload, f"gavel/{policy}:compat=none,elastic={on}", as_elastic) for on in CHOICES]
            rows.append([workload, f"`{policy}`", *figures(found)])
    table(["workload", "policy", "average completion, s", "with `elastic`", "makespan, s", "with `elastic`"], rows)


def of_gangs(folder: Path, option: str, policies: Iterable[str], clusters: Iterable[str]) -> None:
    """Compare runs without an option, with it at the pace of the slowest device, and with it and uneven batches."""
    rows = []
    for on, workload, policy in itertools.product(clusters, GANGS, policies):
        print(f"{option}: {workload}, {on}, {policy}", file=sys.stderr)
        spec = f"gavel/{policy}:compat=none,{option}"
        found = [
            run(folder, workload, f"{spec}=false", on=on),
            run(folder, workload, f"{spec}=true", on=on),
            run(folder, workload, f"{spec}=true", on=on, uneven=True),
        ]
        rows.append([workload, f"`{on}`", f"`{policy}`", *figures(found)])
    each = ("slowest", "uneven")
    table(["workload", "cluster", "policy", "average completion, s", *each, "makespan, s", *each], rows)


def cross_type(folder: Path) -> None:
    """Compare jobs on one type with jobs on several types at once."""
    of_gangs(folder, "cross_type", POLICIES, (EVEN, ODD))


def mixed_sharing(folder: Path) -> None:
    """Compare pairs of equal size with pairs of different sizes."""
    of_gangs(folder, "mixed_sharing", ("max_min_fairness_packed", "min_total_duration_packed"), (EVEN,))


def figures(found: list[Metrics]) -> list[str]:
    """Return the average completion times without and with an option, then the makespans."""
    return [*(f"{each.avg_jct_s:.0f}" for each in found), *(f"{each.makespan_s:.0f}" for each in found)]


TABLES = {
    "rounds": rounds,
    "shortest": shortest,
    "forecast": forecast,
    "elastic": elastic,
    "cross_type": cross_type,
    "mixed_sharing": mixed_sharing,
}


def main(wanted: list[str]) -> None:
    """Print the named tables, or all."""
    data = os.environ.get("ROTA_DATA")
    if data is None:
        sys.exit("set ROTA_DATA to the folder of the published data")
    for name in wanted or TABLES:
        if name not in TABLES:
            sys.exit(f"unknown table {name!r}; choose from {', '.join(TABLES)}")
        TABLES[name](Path(data) / "gavel")


if __name__ == "__main__":
    main(sys.argv[1:])
