"""Published claims about elastic jobs, on similar set-ups: ratios of average completion time and deadlines met.

Traces are generated. Policies that resize see elastic jobs; the others see the same jobs with the sizes that their
users requested. Figures are means over seeds.
Run: `python reproductions/elastic.py [SEEDS]`.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, Elastic
from rota.drivers.simulator.study import Setting, simulate
from rota.perf.speed.model import Costs, SpeedModel
from rota.report.metrics import Metrics, measure
from rota.traces.generators import generate
from rota.traces.workload import Workload

T4, RTX, A100 = DeviceType("t4"), DeviceType("rtx"), DeviceType("a100")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A set-up with the policies to compare; those in `fixed` see jobs of fixed size."""

    title: str
    cluster: Cluster
    workload: Callable[[int], Workload]
    elastic: tuple[str, ...]
    fixed: tuple[str, ...]
    restart_s: float
    speed: SpeedModel = field(default_factory=SpeedModel)
    has_deadlines: bool = False


def jobs(kind: str, count: int, gpus: int, load: float, *, deadlines: float = 0.0) -> Callable[[int], Workload]:
    """Return a function that generates the workload of a seed."""

    def made(seed: int) -> Workload:
        return generate(kind, jobs=count, seed=seed, gpus=gpus, load=load, elastic=1.0, deadlines=deadlines)

    return made


CLAIMS = (
    Claim(
        title="AFS: 64 devices, 500 philly-like jobs, load 0.9",
        cluster=Cluster.uniform(("gpu", 64, 4)),
        workload=jobs("philly-like", 500, 64, 0.9),
        elastic=("afs-l", "afs-p"),
        fixed=("srtf", "tiresias"),
        restart_s=5.0,
    ),
    Claim(
        title="Optimus: 12 devices, 9 gavel-like jobs, load 1.5",
        cluster=Cluster.uniform(("gpu", 12, 2)),
        workload=jobs("gavel-like", 9, 12, 1.5),
        elastic=("optimus",),
        fixed=("drf",),
        restart_s=30.0,
    ),
    Claim(
        title="Pollux: 64 devices, 160 philly-like jobs, load 1.5",
        cluster=Cluster.uniform(("gpu", 64, 4)),
        workload=jobs("philly-like", 160, 64, 1.5),
        elastic=("pollux", "optimus"),
        fixed=("tiresias",),
        restart_s=30.0,
    ),
    Claim(
        title="Sia: 24 t4, 24 rtx, 16 a100, 160 philly-like jobs, load 1.5",
        cluster=Cluster.uniform((T4, 24, 4), (RTX, 24, 8), (A100, 16, 8)),
        workload=jobs("philly-like", 160, 64, 1.5),
        elastic=("sia", "pollux"),
        fixed=("gavel/max_min_fairness_perf",),
        restart_s=60.0,
        speed=SpeedModel(type_speed={T4: 1.0, RTX: 1.8, A100: 4.0}),
    ),
    Claim(
        title="ElasticFlow: 128 devices, 300 gavel-like jobs, load 2, all with deadlines",
        cluster=Cluster.uniform(("gpu", 128, 8)),
        workload=jobs("gavel-like", 300, 128, 2.0, deadlines=1.0),
        elastic=("elasticflow", "pollux", "afs-l"),
        fixed=("tiresias", "srtf"),
        restart_s=10.0,
        has_deadlines=True,
    ),
)


def with_fixed_sizes(workload: Workload) -> Workload:
    """Return the same jobs, each fixed at its requested size."""
    fixed = []
    for submission in workload.submissions:
        count = submission.job.roles[0].count
        job = replace(submission.job, elastic=Elastic(min_tasks=count, max_tasks=count))
        fixed.append(replace(submission, job=job))
    return replace(workload, submissions=tuple(fixed))


def measured(claim: Claim, policy: str, seed: int) -> Metrics:
    workload = claim.workload(seed)
    if policy in claim.fixed:
        workload = with_fixed_sizes(workload)
    setting = Setting(cluster=claim.cluster, costs=Costs(restart_s=claim.restart_s), speed=claim.speed, seed=seed)
    return measure(simulate(workload, policy, setting).history)


def main(seeds: int) -> None:
    for claim in CLAIMS:
        print(f"\n{claim.title}, restart {claim.restart_s:g} s, {seeds} seeds\n")
        columns = ["policy", "average completion, h", f"over `{claim.elastic[0]}`", "makespan, h", "preemptions"]
        columns += ["deadlines met", f"`{claim.elastic[0]}` meets"] if claim.has_deadlines else []
        print(f"| {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) - 1)}")
        first: list[Metrics] = []
        for policy in (*claim.elastic, *claim.fixed):
            began = time.perf_counter()
            runs = [measured(claim, policy, seed) for seed in range(seeds)]
            first = first or runs
            print(f"| `{policy}` | {' | '.join(cells(claim, runs, first))} |", flush=True)
            print(f"{policy}: {time.perf_counter() - began:.0f} s", file=sys.stderr)


def cells(claim: Claim, runs: list[Metrics], first: list[Metrics]) -> list[str]:
    """Return a policy's row: means over seeds, and the mean of the ratios to the first policy of the table."""
    completion = statistics.mean(run.avg_jct_s or 0.0 for run in runs)
    ratio = statistics.mean(
        (run.avg_jct_s or 0.0) / (base.avg_jct_s or 1.0) for run, base in zip(runs, first, strict=True)
    )
    makespan_s = statistics.mean(run.makespan_s for run in runs)
    row = [f"{completion / 3600:.2f}", f"{ratio:.2f}", f"{makespan_s / 3600:.1f}"]
    row.append(f"{sum(run.preemptions for run in runs) // len(runs):,}")
    if claim.has_deadlines:
        met, best = deadlines_met(runs), deadlines_met(first)
        row += [f"{met:.0%}", f"{best / met:.2f} times as many" if met else "-"]
    return row


def deadlines_met(runs: list[Metrics]) -> float:
    """Return the fraction of deadlines that were met."""
    return sum(run.deadlines_met for run in runs) / max(sum(run.deadlines for run in runs), 1)


if __name__ == "__main__":
    main(max(int(sys.argv[1]), 1) if len(sys.argv) > 1 else 3)
