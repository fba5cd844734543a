"""Plans in the cluster: average completion time where policies see plans, against a plan that each job keeps.

A quarter of the jobs train models that fit on no single device (`gpt-7.5b`, `gpt-18b`, `gpt-39b`); the others are
philly-like jobs of the catalogue's models. All may be resized. Seen: speed and memory of the best plan at every size,
type and spread. Fixed: each large job keeps the plan that is best for its request, and only its data parallelism
changes with its size. Differences are paired by seed, with 95 % intervals of Student's t.
Run: `python reproductions/plans_in_cluster.py [SEEDS [FIRST [POLICY...]]]`.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from rota.core.model.cluster import Cluster
from rota.core.model.job import Elastic, Job, JobId, Role
from rota.drivers.simulator.load import load
from rota.drivers.simulator.study import simulate
from rota.perf.speed.model import Costs
from rota.scenario import Scenario
from rota.traces.generators import generate
from rota.traces.workload import Submission, Workload

POLICIES = ("afs-l", "afs-p", "optimus", "gavel/max_min_fairness_perf", "srtf", "sia", "pollux")
CLUSTERS = {
    "32 A100s of 80 GiB and 32 V100s of 16 GiB": (Cluster.uniform(("a100", 32, 8), ("v100", 32, 8)), POLICIES),
    "32 A100s of 80 GiB and 32 of 40 GiB": (
        Cluster.uniform(("a100-80gb", 32, 8), ("a100-40gb", 32, 8)),
        POLICIES,
    ),
    "32 A100s of 80 GiB and 32 V100s of 32 GiB": (
        Cluster.uniform(("a100-80gb", 32, 8), ("v100-32gb", 32, 8)),
        ("gavel/max_min_fairness_perf",),
    ),
    "64 A100s of 80 GiB": (Cluster.uniform(("a100-80gb", 64, 8)), POLICIES),
}
"""Clusters with the policies that are measured there."""
JOBS, LARGE = 120, 30
ORDINARY_LOAD, LARGE_LOAD = 0.5, 0.8
"""Of all 64 devices, in seconds of a V100 where there are any; and of the A100s of 80 GiB, in their own seconds."""
REQUESTS = {"gpt-7.5b": (4, 8), "gpt-18b": (8, 16), "gpt-39b": (16, 16)}
SHARES = (0.5, 0.3, 0.2)
MOST = 32
RESTART_S = 60.0
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262, 40: 2.023}


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Average completion times of one run, in hours."""

    all_h: float
    large_h: float
    other_h: float


def workload(seed: int) -> Workload:
    """Ordinary jobs, and large ones among them at moments of their own."""
    base = generate("philly-like", jobs=JOBS - LARGE, seed=seed, gpus=64, load=ORDINARY_LOAD, elastic=1.0)
    rng = Random(f"large {seed}")
    span_s = base.submissions[-1].submit_s
    drawn = [_large(rng, number) for number in range(LARGE)]
    demand_s = sum((job.work or 0.0) * job.gpus for job in drawn)
    scale = LARGE_LOAD * 32 * span_s / demand_s
    large = [
        Submission(job=replace(job, work=(job.work or 0.0) * scale), submit_s=rng.uniform(0, span_s)) for job in drawn
    ]
    both = sorted([*base.submissions, *large], key=lambda one: one.submit_s)
    return replace(base, submissions=tuple(both), source=f"generated (a quarter large, seed {seed})")


def _large(rng: Random, number: int) -> Job:
    """A job of a model that needs several devices, with a size that users ask for and work in its seconds."""
    model = rng.choices(list(REQUESTS), SHARES)[0]
    asked = rng.choice(REQUESTS[model])
    return Job(
        id=JobId(f"large-{number}"),
        roles=(Role(count=asked),),
        work=rng.lognormvariate(0, 0.8),
        model=model,
        elastic=Elastic(min_tasks=1, max_tasks=MOST),
    )


def completion(cluster: Cluster, policy: str, profiles: str, seed: int) -> Completion:
    scenario = Scenario(
        cluster=cluster, policies=(policy,), profiles=profiles, costs=Costs(restart_s=RESTART_S), seed=seed
    )
    loaded = load(scenario, workload(seed))
    rows = simulate(loaded.workload, policy, loaded.setting).history.jobs
    hours = {row.id: (row.end_s - row.submit_s) / 3600 for row in rows if row.end_s is not None}
    assert len(hours) == JOBS, "every job ends"
    large = [value for name, value in hours.items() if name.startswith("large-")]
    others = [value for name, value in hours.items() if not name.startswith("large-")]
    return Completion(
        all_h=statistics.mean(hours.values()), large_h=statistics.mean(large), other_h=statistics.mean(others)
    )


def interval(values: list[float]) -> tuple[float, float]:
    """The mean, and half of its 95 % interval."""
    if len(values) < 2:
        return values[0], float("nan")
    student = STUDENT.get(len(values), 1.96)
    return statistics.mean(values), student * statistics.stdev(values) / len(values) ** 0.5


def change(seen: list[float], fixed: list[float]) -> str:
    """The change by seeing plans, as a share of what it is with fixed plans."""
    mean, half = interval([one / other - 1 for one, other in zip(seen, fixed, strict=True)])
    return f"{mean:+.1%} (± {half:.1%})"


def measured(cluster: Cluster, policy: str, seeds: range) -> list[str]:
    """A policy's row."""
    fixed = [completion(cluster, policy, "plans:fixed", seed) for seed in seeds]
    seen = [completion(cluster, policy, "plans", seed) for seed in seeds]
    mean, half = interval([one.all_h - other.all_h for one, other in zip(seen, fixed, strict=True)])
    return [
        f"`{policy}`",
        f"{statistics.mean(one.all_h for one in fixed):.2f}",
        f"{statistics.mean(one.all_h for one in seen):.2f}",
        f"{mean:+.2f} (± {half:.2f})",
        change([one.all_h for one in seen], [one.all_h for one in fixed]),
        change([one.large_h for one in seen], [one.large_h for one in fixed]),
        change([one.other_h for one in seen], [one.other_h for one in fixed]),
    ]


def main(seeds: int, first: int = 1, chosen: Sequence[str] = ()) -> None:
    heading = ["policy", "fixed plans, h", "plans seen, h", "difference, h", "all jobs", "large jobs", "other jobs"]
    for title, (cluster, policies) in CLUSTERS.items():
        print(f"\n{title}, {JOBS} jobs, {LARGE} of them large, restart {RESTART_S:g} s, {seeds} seeds\n")
        print(f"| {' | '.join(heading)} |\n|---|{'---:|' * (len(heading) - 1)}")
        for policy in chosen or policies:
            began = time.perf_counter()
            print(f"| {' | '.join(measured(cluster, policy, range(first, first + seeds)))} |", flush=True)
            print(f"{policy}: {time.perf_counter() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    numbers = [max(int(value), 1) for value in sys.argv[1:3]]
    main(numbers[0] if numbers else 10, numbers[1] if len(numbers) > 1 else 1, sys.argv[3:])
