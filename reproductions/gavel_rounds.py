"""The Gavel family's own options: the length of a round, adaptive rounds, and shortest job first, on three workloads.

Run: `ROTA_DATA=... python reproductions/gavel_rounds.py`. Prints the tables of docs/reference/reproductions.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from rota.drivers.simulator.study import Setting, simulate
from rota.files.cluster import read_cluster
from rota.perf.profile_files import read_profiles
from rota.perf.speed import Costs, SpeedModel
from rota.report.metrics import Metrics, measure
from rota.traces.formats import read_trace

WORKLOADS = {
    "long jobs, several devices (set A)": ("max_min_fairness.trace", "v100=8/4,p100=16/4,k80=24/4"),
    "single devices, steady (set D)": ("gen_single_120.trace", "v100=12/1,p100=12/1,k80=12/1"),
    "all at once": ("minimize_makespan.trace", "v100=8/4,p100=16/4,k80=24/4"),
}
LENGTHS = ("60", "120", "360", "900", "1800", "3600", "adaptive")
RESTART_S = 30.0


def run(folder: Path, workload: str, policy: str) -> Metrics:
    """One policy on one workload, with restarts that cost something."""
    trace, cluster = WORKLOADS[workload]
    speed = SpeedModel(profiles=read_profiles(folder / "simulation_throughputs.json"))
    setting = Setting(cluster=read_cluster(cluster), speed=speed, costs=Costs(restart_s=RESTART_S))
    return measure(simulate(read_trace(folder / trace, format="gavel"), policy, setting).history)


def table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table in the page's form."""
    titles = list(titles)
    for line in (titles, ["---"] * len(titles), *rows):
        print(f"| {' | '.join(line)} |")
    print()


def main() -> None:
    """All tables."""
    data = os.environ.get("ROTA_DATA")
    if data is None:
        sys.exit("set ROTA_DATA to the folder of the published data")
    folder = Path(data) / "gavel"
    for workload in WORKLOADS:
        print(f"{workload}:\n")
        rows = []
        for length in LENGTHS:
            found = run(folder, workload, f"gavel/max_min_fairness_perf:compat=none,round_s={length}")
            idle = 100 * (1 - found.gpu_utilization)
            figures = (f"{found.avg_jct_s:.0f}", f"{found.makespan_s:.0f}", f"{idle:.1f}%", str(found.preemptions))
            rows.append([f"`{length}`", *figures])
        table(["`round_s`", "average completion, s", "makespan, s", "idle", "pre-emptions"], rows)
    rows = []
    for workload in WORKLOADS:
        for policy in ("max_min_fairness_perf", "max_sum_throughput_perf", "shortest_job_first_perf"):
            found = run(folder, workload, f"gavel/{policy}:compat=none")
            rows.append([workload, f"`{policy}`", f"{found.avg_jct_s:.0f}", f"{found.makespan_s:.0f}"])
    table(["workload", "policy", "average completion, s", "makespan, s"], rows)


if __name__ == "__main__":
    main()
