"""Cost of policies on a heterogeneous, fractional workload: CPU time per job as the number of jobs grows.

87 shapes of pods (parts of a GPU to eight, with CPUs and memory, some for one type only) on 53 nodes of three types, at
a load of 1. Run: `python bench/heterogeneous.py [POLICY...]`; `--jobs 1000,8000` sets the sizes. A cost is the least of
`--repeats` runs, after a short one that imports what the policy needs.

The last column says what a job meets: how many devices were held and how many jobs waited, on average over the run,
and how often a job was preempted, for each size. With the default `--spread` of run times (the sigma of a log-normal
distribution) the longest jobs outlast the arrivals of 1,000 jobs, so that these find most of the cluster free, and
equal load is not equal use; with a spread of 0.5 it nearly is.
"""

from __future__ import annotations

import argparse
import math
import random
import time

from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import WHOLE, DeviceType, Job, JobId, NodeId, Role
from rota.drivers.simulator.study import Setting, simulate
from rota.traces.transform import scaled_to_load
from rota.traces.workload import Submission, Workload

ORDERINGS = ("srtf", "srsf", "las", "tiresias", "gittins")
GIB = 2**30
LIMIT = 1.5
"""How much the cost of a job may grow from the fewest jobs to the most."""
WARM_UP = 50
"""Jobs of the run before those that are measured."""


def nodes() -> Cluster:
    """53 nodes of three types with different numbers of GPUs, CPUs and amounts of memory."""
    kinds = (("v100", 8, 96, 700, 20), ("p100", 2, 64, 500, 20), ("t4", 4, 48, 370, 13))
    return Cluster(
        nodes=tuple(
            Node(
                id=NodeId(f"{kind}-{number}"),
                device_type=DeviceType(kind),
                devices=gpus,
                cpu_milli=cpus * 1000,
                memory_bytes=memory * GIB,
            )
            for kind, gpus, cpus, memory, count in kinds
            for number in range(count)
        )
    )


def shapes(rng: random.Random) -> list[tuple[Role, ...]]:
    """87 different requests."""
    found: dict[tuple[Role, ...], None] = {}
    while len(found) < 87:
        milli = rng.choice((100, 250, 330, 500, 750, 1000, 1000, 1000, 2000, 4000, 8000))
        types = rng.choice(((), (), ("v100",), ("t4",), ("v100", "p100"))) if milli <= 4 * WHOLE else ()
        role = Role(
            device_milli=milli,
            device_types=tuple(DeviceType(kind) for kind in types),
            cpu_milli=rng.choice((1000, 4000, 8000, 12000)) * max(milli // WHOLE, 1),
            memory_bytes=rng.choice((4, 16, 32)) * GIB * max(milli // WHOLE, 1),
        )
        found[(role,)] = None
    return list(found)


def workload(jobs: int, cluster: Cluster, load: float, spread: float = 1.5) -> Workload:
    """Pods of random shapes, log-normal run times, Poisson arrivals."""
    rng = random.Random(5)
    kinds = shapes(rng)
    at_s, made = 0.0, []
    for number in range(jobs):
        at_s += rng.expovariate(1.0)
        job = Job(id=JobId(str(number)), roles=rng.choice(kinds), work=min(rng.lognormvariate(7.0, spread), 200_000.0))
        made.append(Submission(job=job, submit_s=at_s))
    return scaled_to_load(
        Workload(submissions=tuple(made), source="heterogeneous", format="rota"), load, cluster.devices
    )


def measure(policy: str, jobs: Workload, cluster: Cluster, repeats: int) -> tuple[float, str]:
    """The least CPU time per job of some runs, and what a job met: devices held, jobs waiting, preemptions."""
    least_s = math.inf
    for _ in range(repeats):
        began = time.process_time()
        result = simulate(jobs, policy, Setting(cluster=cluster))
        least_s = min(least_s, time.process_time() - began)
    rows = result.history.jobs
    end_s = max(row.end_s or 0.0 for row in rows)
    held = sum(row.gpu_s for row in rows) / end_s
    waiting = sum(row.wait_s for row in rows) / end_s
    preempted = sum(row.preemptions for row in rows) / len(rows)
    return least_s / len(rows) * 1e6, f"{held:.0f}, {waiting:.0f}, {preempted:.2f}"


def main() -> None:
    """Print the cost per job by policy and number of jobs, and whether it grows too much."""
    parser = argparse.ArgumentParser()
    parser.add_argument("policies", nargs="*", default=ORDERINGS)
    parser.add_argument("--jobs", default="1000,2000,4000,8000")
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--spread", type=float, default=1.5)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    cluster = nodes()
    sizes = [int(text) for text in given.jobs.split(",")]
    print(f"| policy | {' | '.join(f'us/job at {size:,}' for size in sizes)} | growth | held, waiting, preempted |")
    print("|---" * (len(sizes) + 3) + "|")
    for policy in given.policies:
        simulate(workload(WARM_UP, cluster, given.load, given.spread), policy, Setting(cluster=cluster))
        found = [
            measure(policy, workload(size, cluster, given.load, given.spread), cluster, given.repeats) for size in sizes
        ]
        costs = [cost for cost, _ in found]
        growth = costs[-1] / costs[0]
        verdict = "" if growth < LIMIT else f", above {LIMIT:g}"
        met = "; ".join(text for _, text in found)
        print(
            f"| {policy} | {' | '.join(f'{cost:,.0f}' for cost in costs)} | {growth:.2f}{verdict} | {met} |", flush=True
        )


if __name__ == "__main__":
    main()
