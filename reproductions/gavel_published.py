"""Gavel's published figures against Rota's: the first tables of docs/reference/reproductions.md.

Run: `ROTA_DATA=... python reproductions/gavel_published.py`. Rounds of 360 s, seed 0, restart cost 0.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from rota.drivers.simulator.study import Setting, simulate
from rota.files.cluster import read_cluster
from rota.perf.profiles.profile_files import read_profiles
from rota.perf.speed.model import SpeedModel
from rota.report.metrics import Metrics, measure
from rota.traces.formats import read_trace

SETS = {
    "A": ("max_min_fairness.trace", "v100=8/4,p100=16/4,k80=24/4"),
    "D": ("gen_single_120.trace", "v100=12/1,p100=12/1,k80=12/1"),
}
EXACT = {"fifo": "AD", "fifo_perf": "AD", "fifo_packed": "A", "isolated": "AD", "gandiva": "AD", "allox": "D"}
"""Policies with a unique result, and the sets they can run: AlloX supports one-device jobs only."""
PROGRAMS = (
    "max_min_fairness",
    "max_min_fairness_perf",
    "max_min_fairness_packed",
    "max_min_fairness_water_filling_perf",
    "min_total_duration",
    "min_total_duration_perf",
    "min_total_duration_packed",
    "finish_time_fairness",
    "finish_time_fairness_perf",
    "finish_time_fairness_packed",
    "max_sum_throughput_perf",
)
WITHOUT_SPARE = ("max_min_fairness", "max_min_fairness_perf", "max_min_fairness_packed", "min_total_duration_perf")
Published = dict[tuple[str, str], dict[str, float]]


def published(folder: Path) -> Published:
    """Return completion time and makespan by set and policy; `fifo` is the repaired version."""
    rows = json.loads((folder / "reference_results.json").read_text())["results"]
    found = {(row["set"], row["policy"]): row for row in rows}
    return found | {(name, "fifo"): found[name, "fifo_fixed"] for name in SETS}


def run(folder: Path, name: str, policy: str) -> Metrics:
    """Run one policy on one set."""
    print(f"set {name}: {policy}", file=sys.stderr)
    trace, cluster = SETS[name]
    speed = SpeedModel(profiles=read_profiles(folder / "simulation_throughputs.json"))
    workload = read_trace(folder / trace, format="gavel")
    return measure(simulate(workload, f"gavel/{policy}", Setting(cluster=read_cluster(cluster), speed=speed)).history)


def ratios(folder: Path, known: Published, name: str, policy: str, option: str = "") -> str:
    """Return the ratios of Rota's completion time and makespan to the published ones; empty if none are published."""
    if (name, policy) not in known:
        return ""
    found, was = run(folder, name, policy + option), known[name, policy]
    return f"{(found.avg_jct_s or 0.0) / was['avg_jct_s']:.3f}, {found.makespan_s / was['makespan_s']:.3f}"


def main() -> None:
    """Print all tables."""
    data = os.environ.get("ROTA_DATA")
    if data is None:
        sys.exit("set ROTA_DATA to the folder of the published data")
    folder = Path(data) / "gavel"
    known = published(folder)
    print("| policy without a solver | set | published | Rota |\n|---|---|---|---|")
    for policy, sets in EXACT.items():
        for name in sets:
            was, found = known[name, policy], run(folder, name, policy)
            here = f"{found.avg_jct_s:.3f}, {found.makespan_s:.3f}"
            print(f"| `{policy}` | {name} | {was['avg_jct_s']:.3f}, {was['makespan_s']:.3f} | {here} |", flush=True)
    print("\n| policy | set A: completion, makespan | set D: completion, makespan |\n|---|---|---|")
    for policy in PROGRAMS:
        print(f"| `{policy}` | {' | '.join(ratios(folder, known, name, policy) for name in SETS)} |", flush=True)
    print("\n| without `spare` | set A: completion, makespan | set D: completion, makespan |\n|---|---|---|")
    for policy in WITHOUT_SPARE:
        print(f"| `{policy}` | {' | '.join(ratios(folder, known, name, policy, ':spare=false') for name in SETS)} |")


if __name__ == "__main__":
    main()
