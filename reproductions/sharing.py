"""Policies that share devices, compared on jobs with measured pairs; and the effect of consolidation.

Run: `ROTA_DATA=... python reproductions/sharing.py [TABLE...]`, with tables `pairs`, `fragmentation` and `gangs`.
Prints the tables of docs/reference/reproductions.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rota.core.model.job import OPPORTUNISTIC, WHOLE, DeviceType, Job, JobId, Role
from rota.core.state.history import History
from rota.drivers.simulator.study import Setting, simulate
from rota.files.cluster import read_cluster
from rota.perf.profiles.profile_files import read_profiles
from rota.perf.speed.model import Costs, SpeedModel
from rota.report.metrics import measure
from rota.traces.formats import read_trace
from rota.traces.generators import generate
from rota.traces.workload import Workload

PAIRS = ("gen_single_120.trace", "v100=16/4")
"""One-device jobs with measured pairs, on a cluster that is too small for them."""
V100 = DeviceType("v100")
COSTS = Costs(restart_s=30.0, resume_s=0.5, move_s=10.0)
"""The costs of a restart from a checkpoint, of resuming a suspended job, and of moving a job with its state."""
TURNS = 0.98
"""The speed left by time slicing: Olympian and Gandiva report a loss of at most 2 %."""
EXCLUSIVE = "fifo:backfill=true"
MINUTE = "consolidate_s=60"
SHARING = (
    "gandiva",
    "gandiva:pack=false",
    "antman",
    "antman:guard=0.5",
    "antman:patience_s=3600",
    "salus",
    "salus:migrate=true",
    "olympian",
    "olympian:migrate=true",
    "lucid",
    "lucid:durations=known",
    "muri",
    "muri:most=2",
    "horus",
)


def run(workload: Workload, cluster: str, policy: str, speed: SpeedModel, costs: Costs = COSTS) -> History:
    """Run one policy on one workload."""
    return simulate(workload, policy, Setting(cluster=read_cluster(cluster), speed=speed, costs=costs)).history


def line(name: str, history: History, than: History) -> str:
    """Return a row of a table, compared with the run without sharing."""
    now, before = measure(history), measure(than)
    return (
        f"| `{name}` | {(now.avg_jct_s or 0) / 3600:.2f} h ({(now.avg_jct_s or 0) / (before.avg_jct_s or 1) - 1:+.0%}) "
        f"| {now.makespan_s / 3600:.1f} h ({now.makespan_s / before.makespan_s - 1:+.0%}) "
        f"| {now.gpu_busy or 0:.1%} ({(now.gpu_busy or 0) / (before.gpu_busy or 1) - 1:+.0%}) "
        f"| {now.preemptions} | {now.suspensions} | {now.moves} |"
    )


HEAD = "| policy | avg JCT | makespan | GPU busy | preemptions | suspensions | moves |\n|---|---|---|---|---|---|---|"


def pairs() -> None:
    """Compare all policies on jobs with measured pairs with one job per device."""
    folder = Path(os.environ["ROTA_DATA"]) / "gavel"
    trace, cluster = PAIRS
    workload = read_trace(folder / trace, format="gavel")
    speed = SpeedModel(profiles=read_profiles(folder / "simulation_throughputs.json"), turns=TURNS)
    alone = run(workload, cluster, EXCLUSIVE, speed)
    print(HEAD)
    for policy in (EXCLUSIVE, "srsf", "tiresias", *SHARING):
        asked = _half_opportunistic(workload) if policy.startswith("antman") else workload
        print(line(policy, run(asked, cluster, policy, speed), alone), flush=True)
    asked = _half_opportunistic(workload)
    _guaranteed(asked, run(asked, cluster, "antman", speed), speed)


def _half_opportunistic(workload: Workload) -> Workload:
    """Return the workload with every second job opportunistic."""
    return _with_jobs(workload, lambda job, at: replace(job, priority=OPPORTUNISTIC) if at % 2 else job)


def _guaranteed(workload: Workload, history: History, speed: SpeedModel) -> None:
    """Print the lowest speed of a guaranteed job relative to its speed alone, without restarts."""
    jobs = {each.job.id: each.job for each in workload.submissions}
    kept = [
        (jobs[JobId(row.id)].work or 0.0) / speed.on_type(jobs[JobId(row.id)], V100) / (row.run_s - row.overhead_s)
        for row in history.jobs
        if row.priority > OPPORTUNISTIC
    ]
    print(
        f"\nantman: of {len(kept)} guaranteed jobs the slowest ran at {min(kept):.3f} of its speed alone (bound 0.95)"
    )


def _with_jobs(workload: Workload, make: Callable[[Job, int], Job]) -> Workload:
    changed = tuple(replace(each, job=make(each.job, at)) for at, each in enumerate(workload.submissions))
    return replace(workload, submissions=changed)


def fragmentation() -> None:
    """Measure the effect and the cost of consolidation on an Alibaba-like list of pods."""
    workload = generate("alibaba-like", jobs=2000, seed=1, gpus=96, load=1.0)
    _consolidated(workload, (EXCLUSIVE, "srsf"), ("", "consolidate_s=3600", "consolidate_s=600", MINUTE))


def gangs() -> None:
    """Measure the same where every sixth pod requests 2, 4 or 8 devices of one node."""
    single = generate("alibaba-like", jobs=2000, seed=1, gpus=96, load=0.6)
    sizes = (2, 4, 8)

    def larger(job: Job, at: int) -> Job:
        return job if at % 6 else replace(job, roles=(Role(device_milli=sizes[at // 6 % 3] * WHOLE),))

    _consolidated(_with_jobs(single, larger), (EXCLUSIVE, "srsf"), ("", MINUTE))


def _consolidated(workload: Workload, policies: Sequence[str], rounds: Sequence[str]) -> None:
    print(
        "| policy | free devices on occupied nodes | fragmentation delay | avg JCT | makespan | moves | preemptions |"
    )
    print("|---|---|---|---|---|---|---|")
    for policy in policies:
        for every in rounds:
            joined = policy + ("," if ":" in policy else ":") + every if every else policy
            found = measure(run(workload, "gpu=96/8", joined, SpeedModel()))
            print(
                f"| `{joined}` | {found.fragmentation:.1%} | {(found.avg_fragmentation_delay_s or 0) / 60:.1f} min "
                f"| {(found.avg_jct_s or 0) / 3600:.2f} h | {found.makespan_s / 3600:.1f} h | {found.moves} "
                f"| {found.preemptions} |",
                flush=True,
            )


TABLES = {"pairs": pairs, "fragmentation": fragmentation, "gangs": gangs}


def main() -> None:
    """Print the named tables, or all."""
    names = sys.argv[1:] or list(TABLES)
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        sys.exit(f"unknown table {unknown[0]!r}; choose from {', '.join(TABLES)}")
    for name in names:
        print(f"\n### {name}\n")
        TABLES[name]()


if __name__ == "__main__":
    main()
