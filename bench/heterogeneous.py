"""Cost of policies on a heterogeneous, fractional workload: CPU time per job as the number of jobs grows.

87 shapes of pods (parts of a GPU to eight, with CPUs and memory, some for one type only) on 53 nodes of three types, at
a load of 1. Run: `python bench/heterogeneous.py [POLICY...]`; `--jobs 1000,8000` sets the sizes.
"""

from __future__ import annotations

import argparse
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


def workload(jobs: int, cluster: Cluster, load: float) -> Workload:
    """Pods of random shapes, log-normal run times, Poisson arrivals."""
    rng = random.Random(5)
    kinds = shapes(rng)
    at_s, made = 0.0, []
    for number in range(jobs):
        at_s += rng.expovariate(1.0)
        job = Job(id=JobId(str(number)), roles=rng.choice(kinds), work=min(rng.lognormvariate(7.0, 1.5), 200_000.0))
        made.append(Submission(job=job, submit_s=at_s))
    return scaled_to_load(
        Workload(submissions=tuple(made), source="heterogeneous", format="rota"), load, cluster.devices
    )


def main() -> None:
    """Print the cost per job by policy and number of jobs, and whether it grows too much."""
    parser = argparse.ArgumentParser()
    parser.add_argument("policies", nargs="*", default=ORDERINGS)
    parser.add_argument("--jobs", default="1000,2000,4000,8000")
    parser.add_argument("--load", type=float, default=1.0)
    given = parser.parse_args()
    cluster = nodes()
    sizes = [int(text) for text in given.jobs.split(",")]
    print(f"| policy | {' | '.join(f'us/job at {size:,}' for size in sizes)} | growth |")
    print("|---" * (len(sizes) + 2) + "|")
    for policy in given.policies:
        costs = []
        for size in sizes:
            jobs = workload(size, cluster, given.load)
            began = time.process_time()
            simulate(jobs, policy, Setting(cluster=cluster))
            costs.append((time.process_time() - began) / size * 1e6)
        growth = costs[-1] / costs[0]
        verdict = "" if growth < LIMIT else f", above {LIMIT:g}"
        print(f"| {policy} | {' | '.join(f'{cost:,.0f}' for cost in costs)} | {growth:.2f}{verdict} |", flush=True)


if __name__ == "__main__":
    main()
