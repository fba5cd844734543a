"""Cost of policies on a heterogeneous, fractional workload: CPU time per job as the number of jobs grows.

87 shapes of pods (parts of a GPU to eight, with CPUs and memory, some for one type only) on 53 nodes of three types, at
a load of 1. Run: `python bench/heterogeneous.py [POLICY...]`; `--jobs 1000,8000` sets the sizes. A cost is the least of
`--repeats` runs, after a short one that imports what the policy needs.

The last column says what a job meets: how many devices were held and how many jobs waited, on average over the run,
how often a job was preempted, and how many devices were held while jobs arrived, for each size. With the default
`--spread` of run times (the sigma of a log-normal distribution) the longest jobs outlast the arrivals of 1,000 jobs, so
that these find most of the cluster free: equal load is not equal use.

A second table compares at equal use: jobs that come after `--after` others. The cost of a job is there what so many
more jobs add to the run of those before them.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Sequence
from dataclasses import replace

from rota.core.messages.decisions import Decision, Start
from rota.core.messages.events import Event, JobEnded, Stopped
from rota.core.messages.reasons import Reason
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


def first(jobs: Workload, count: int) -> Workload:
    """The first jobs of a workload, arriving when they do there."""
    return replace(jobs, submissions=jobs.submissions[:count])


class HeldDevices:
    """A journal that adds up which devices are held between two moments."""

    def __init__(self, jobs: Workload, from_s: float) -> None:
        self._milli = {each.job.id: each.job.gpu_milli for each in jobs.submissions}
        self._from_s, self._to_s = from_s, jobs.submissions[-1].submit_s
        self._holders: set[JobId] = set()
        self._held_milli = 0
        self._since_s = from_s
        self._milli_s = 0.0

    @property
    def mean(self) -> float:
        """Devices held on average."""
        return self._milli_s / (self._to_s - self._from_s) / WHOLE

    def append(
        self,
        now_s: float,
        events: Sequence[Event],
        decisions: Sequence[Decision],
        waits: Sequence[tuple[JobId, Reason]],
    ) -> None:
        """Take in a step."""
        until_s = min(now_s, self._to_s)
        if until_s > self._since_s:
            self._milli_s += (until_s - self._since_s) * self._held_milli
            self._since_s = until_s
        for event in events:
            if isinstance(event, JobEnded | Stopped) and event.job_id in self._holders:
                self._holders.remove(event.job_id)
                self._held_milli -= self._milli[event.job_id]
        for decision in decisions:
            if isinstance(decision, Start):
                self._holders.add(decision.job_id)
                self._held_milli += self._milli[decision.job_id]


def held_during_arrivals(policy: str, jobs: Workload, cluster: Cluster, after: int = 0) -> float:
    """How many devices are held on average while jobs arrive, those after so many others."""
    meter = HeldDevices(jobs, jobs.submissions[after].submit_s)
    simulate(jobs, policy, Setting(cluster=cluster), journal=meter)
    return meter.mean


def cpu_s(policy: str, jobs: Workload, cluster: Cluster, repeats: int) -> float:
    """The least CPU time of some runs."""
    least_s = math.inf
    for _ in range(repeats):
        began = time.process_time()
        simulate(jobs, policy, Setting(cluster=cluster))
        least_s = min(least_s, time.process_time() - began)
    return least_s


def measure(policy: str, jobs: Workload, cluster: Cluster, repeats: int) -> tuple[float, str]:
    """The least CPU time per job of some runs, and what a job met: devices held, jobs waiting, preemptions."""
    least_s = cpu_s(policy, jobs, cluster, repeats)
    rows = simulate(jobs, policy, Setting(cluster=cluster)).history.jobs
    end_s = max(row.end_s or 0.0 for row in rows)
    held = sum(row.gpu_s for row in rows) / end_s
    waiting = sum(row.wait_s for row in rows) / end_s
    preempted = sum(row.preemptions for row in rows) / len(rows)
    arriving = held_during_arrivals(policy, jobs, cluster)
    return least_s / len(rows) * 1e6, f"{held:.0f}, {waiting:.0f}, {preempted:.2f}, {arriving:.0f}"


def measure_after(
    policy: str, jobs: Workload, sizes: Sequence[int], after: int, cluster: Cluster, repeats: int
) -> list[tuple[float, str]]:
    """What jobs add to the CPU time, per job, that come after others, and how many devices are held meanwhile."""
    before_s = cpu_s(policy, first(jobs, after), cluster, repeats)
    found = []
    for size in sizes:
        both = first(jobs, after + size)
        added_s = cpu_s(policy, both, cluster, repeats) - before_s
        found.append((added_s / size * 1e6, f"{held_during_arrivals(policy, both, cluster, after):.0f}"))
    return found


def print_row(policy: str, found: list[tuple[float, str]]) -> None:
    """Print a row of a table: the cost by number of jobs, and whether it grows too much."""
    costs = [cost for cost, _ in found]
    growth = costs[-1] / costs[0]
    verdict = "" if growth < LIMIT else f", above {LIMIT:g}"
    met = "; ".join(text for _, text in found)
    print(f"| {policy} | {' | '.join(f'{cost:,.0f}' for cost in costs)} | {growth:.2f}{verdict} | {met} |", flush=True)


def main() -> None:
    """Print the cost per job by policy and number of jobs, and whether it grows too much."""
    parser = argparse.ArgumentParser()
    parser.add_argument("policies", nargs="*", default=ORDERINGS)
    parser.add_argument("--jobs", default="1000,2000,4000,8000")
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--spread", type=float, default=1.5)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--after", type=int, default=4000)
    given = parser.parse_args()
    cluster = nodes()
    sizes = [int(text) for text in given.jobs.split(",")]
    columns = f"| policy | {' | '.join(f'us/job at {size:,}' for size in sizes)} | growth |"
    print(f"{columns} held, waiting, preempted, held during arrivals |\n{'|---' * (len(sizes) + 3)}|")
    for policy in given.policies:
        simulate(workload(WARM_UP, cluster, given.load, given.spread), policy, Setting(cluster=cluster))
        print_row(
            policy,
            [
                measure(policy, workload(size, cluster, given.load, given.spread), cluster, given.repeats)
                for size in sizes
            ],
        )
    if not given.after:
        return
    print(f"\nAfter {given.after:,} others:\n\n{columns} held during arrivals |\n{'|---' * (len(sizes) + 3)}|")
    jobs = workload(given.after + max(sizes), cluster, given.load, given.spread)
    for policy in given.policies:
        print_row(policy, measure_after(policy, jobs, sizes, given.after, cluster, given.repeats))


if __name__ == "__main__":
    main()
