"""CPU time of every policy for the first 2,000 jobs of the Philly trace on 400 GPUs, with its default parameters.

Times are CPU seconds of this process, from the first submission to the last end, so other work on the machine does not
count. Needs `ROTA_DATA` with the trace.
Run: `python bench/philly.py [POLICY...]`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from rota.core.model.cluster import Cluster
from rota.drivers.simulator.study import Setting, simulate
from rota.policies import names
from rota.report.metrics import measure
from rota.traces import read_trace

JOBS, GPUS, PER_NODE = 2000, 400, 8
LIMIT_S = 180.0
SPECS = {"gavel/allox": "gavel/allox:compat=none"}
"""As published, AlloX refuses jobs of several devices."""


def main(wanted: list[str]) -> None:
    data = os.environ.get("ROTA_DATA")
    if data is None:
        print("skipped: ROTA_DATA is not set", file=sys.stderr)
        return
    trace = read_trace(Path(data) / "philly" / "philly.csv")
    workload = replace(trace, submissions=trace.submissions[:JOBS])
    setting = Setting(cluster=Cluster.uniform(("gpu", GPUS, PER_NODE)))
    print("| policy | CPU, s | events | mean completion, h | preemptions |\n|---|---:|---:|---:|---:|")
    slow = []
    for policy in wanted or [SPECS.get(name, name) for name in names()]:
        result = simulate(workload, policy, setting)
        found = measure(result.history)
        if found.finished < JOBS:
            sys.exit(f"{policy}: only {found.finished} of {JOBS} jobs ended")
        cells = [f"{result.cpu_s:.1f}", f"{result.events:,}", f"{(found.avg_jct_s or 0.0) / 3600:.1f}"]
        print(f"| `{policy}` | {' | '.join(cells)} | {found.preemptions:,} |", flush=True)
        if result.cpu_s > LIMIT_S:
            slow.append(policy)
    print(f"\nover {LIMIT_S:g} s: {', '.join(slow) or 'none'}")


if __name__ == "__main__":
    main(sys.argv[1:])
