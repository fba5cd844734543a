"""What Gavel leaves open, as options of its policies: what each option changes on three workloads.

Run: `ROTA_DATA=... python reproductions/gavel_open.py`. Prints the tables of docs/reference/reproductions.md.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gavel_rounds import WORKLOADS, run, table

POLICIES = ("max_min_fairness_perf", "min_total_duration_perf")
ARRIVING = tuple(WORKLOADS)[:2]
"""The workloads to which jobs come one after the other."""


def forecast(folder: Path) -> None:
    """Room for jobs that are still to come."""
    rows = []
    for workload in ARRIVING:
        for policy in POLICIES:
            print(f"forecast: {workload}, {policy}", file=sys.stderr)
            found = [run(folder, workload, f"gavel/{policy}:compat=none,forecast={on}") for on in ("false", "true")]
            jct = (f"{each.avg_jct_s:.0f}" for each in found)
            makespan = (f"{each.makespan_s:.0f}" for each in found)
            rows.append([workload, f"`{policy}`", *jct, *makespan])
    table(["workload", "policy", "average completion, s", "with `forecast`", "makespan, s", "with `forecast`"], rows)


def main() -> None:
    """All tables."""
    data = os.environ.get("ROTA_DATA")
    if data is None:
        sys.exit("set ROTA_DATA to the folder of the published data")
    forecast(Path(data) / "gavel")


if __name__ == "__main__":
    main()
