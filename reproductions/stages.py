"""Claims about jobs of dependent stages: Ursa against containers held to the end, and the bound of Perotin et al.

Ursa: TPC-H-like queries, trees of scans, shuffles and computation, on 20 machines without GPUs. Under YARN a query
holds a core for each of its tasks from its first stage to its last; 69% of this time is assumed to be computation,
after the paper's figure. Stages request what they use: scans request disk, shuffles network, others cores.
Perotin: random stages of 1 to 16 tasks, all submitted at the start, against a lower bound on the makespan.
Run: `python reproductions/stages.py [SEEDS]`.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import WHOLE, DeviceType, Elastic, Job, JobId, NodeId, Role
from rota.core.state.history import History
from rota.drivers.simulator.study import Setting, simulate
from rota.perf.speed.model import SpeedModel
from rota.traces.workload import Submission, Workload

GB = 10**9
MACHINES, CORES, DISK, NETWORK = 20, 32, 2 * GB, 10 * GB // 8
QUERIES, OVER_S = 200, 1500.0
COMPUTES = 0.69
"""The fraction of a query's time in which it computes."""
IO_CPU_MILLI = 50
"""The CPU that a task needs while it reads or sends."""


@dataclass(slots=True)
class Stage:
    """A step of a query: the resources of each task, the run time, and the steps it depends on."""

    role: Role
    runs_s: float
    after: tuple[int, ...]


@dataclass(slots=True)
class Query:
    """Stages in topological order, each with the same number of tasks."""

    tasks: int
    submit_s: float
    stages: list[Stage] = field(default_factory=list)

    def add(self, role: Role, runs_s: float, *after: int) -> int:
        self.stages.append(Stage(role, runs_s, after))
        return len(self.stages) - 1


def query(rng: random.Random) -> Query:
    """Return a query that reads two to five tables and joins them two by two."""
    made = Query(rng.choice((16, 32, 64, 128)), rng.uniform(0.0, OVER_S))
    compute = Role(count=made.tasks, device_milli=0, cpu_milli=1000)
    scan = Role(count=made.tasks, device_milli=0, cpu_milli=IO_CPU_MILLI, disk_bps=DISK // 16)
    shuffle = Role(count=made.tasks, device_milli=0, cpu_milli=IO_CPU_MILLI, network_bps=NETWORK // 16)

    def step(before: Role, *after: int) -> int:
        """Add a transfer and the computation on its data."""
        whole_s = rng.uniform(20.0, 80.0)
        brought = made.add(before, whole_s * (1 - COMPUTES), *after)
        return made.add(compute, whole_s * COMPUTES, brought)

    ready = [step(scan) for _ in range(rng.randint(2, 5))]
    while len(ready) > 1:
        ready.append(step(shuffle, ready.pop(0), ready.pop(0)))
    return made


def by_stage(queries: Sequence[Query]) -> list[Submission]:
    """Return a job for every stage, which requests what it uses."""
    made = []
    for number, each in enumerate(queries):
        for at, stage in enumerate(each.stages):
            before = tuple(JobId(f"q{number}-{other}") for other in stage.after)
            job = Job(id=JobId(f"q{number}-{at}"), roles=(stage.role,), work=stage.runs_s, depends_on=before)
            made.append(Submission(job=job, submit_s=each.submit_s))
    return sorted(made, key=lambda one: one.submit_s)


def by_query(queries: Sequence[Query]) -> list[Submission]:
    """Return a job for every query, with a core for each of its tasks until it ends; stages run one after the other.

    Disk and network are not modelled and never scarce, which favours this side of the comparison.
    """
    made = []
    for number, each in enumerate(queries):
        role = Role(count=each.tasks, device_milli=0, cpu_milli=1000)
        job = Job(id=JobId(f"q{number}-0"), roles=(role,), work=sum(stage.runs_s for stage in each.stages))
        made.append(Submission(job=job, submit_s=each.submit_s))
    return sorted(made, key=lambda one: one.submit_s)


def ran(jobs: list[Submission], policy: str, cluster: Cluster, speed: SpeedModel | None = None) -> History:
    print(f"{policy}: {len(jobs)} jobs", file=sys.stderr)
    workload = Workload(submissions=tuple(jobs), source="generated", format="rota")
    return simulate(workload, policy, Setting(cluster=cluster, speed=speed or SpeedModel())).history


@dataclass(frozen=True, slots=True)
class Outcome:
    """The makespan, the mean completion time of a query, and the fraction of allocated core time spent computing."""

    makespan_s: float
    completion_s: float
    efficiency: float


def outcome(jobs: list[Submission], queries: Sequence[Query], policy: str) -> Outcome:
    nodes = tuple(
        Node(
            id=NodeId(f"m{at}"),
            device_type=DeviceType("none"),
            devices=0,
            cpu_milli=CORES * 1000,
            disk_bps=DISK,
            network_bps=NETWORK,
        )
        for at in range(MACHINES)
    )
    ends: dict[str, float] = {}
    for row in ran(jobs, policy, Cluster(nodes=nodes)).jobs:
        assert row.end_s is not None
        whole = row.id.partition("-")[0]
        ends[whole] = max(ends.get(whole, 0.0), row.end_s)
    took = [ends[f"q{number}"] - each.submit_s for number, each in enumerate(queries)]
    held = sum(each.job.roles[0].cpu_milli / 1000 * each.job.tasks * (each.job.work or 0.0) for each in jobs)
    used = sum(each.tasks * stage.runs_s for each in queries for stage in each.stages if stage.role.cpu_milli == 1000)
    first_s = min(each.submit_s for each in queries)
    return Outcome(max(ends.values()) - first_s, statistics.mean(took), used / held)


def ursa(seeds: int) -> None:
    """Print the comparison with Spark on YARN."""
    print(f"\nUrsa: {QUERIES} queries on {MACHINES} machines, {seeds} seeds\n")
    print("| scheduler | makespan, s | over `ursa` | mean completion, s | over `ursa` | allocated cores computing |")
    print("|---|---:|---:|---:|---:|---:|")
    sets = []
    for seed in range(seeds):
        rng = random.Random(seed)
        sets.append([query(rng) for _ in range(QUERIES)])
    rows = [
        ("stages, `ursa`", "ursa", by_stage),
        ("stages, `ursa:order=srjf`", "ursa:order=srjf", by_stage),
        ("stages, `fifo:backfill=true`", "fifo:backfill=true", by_stage),
        ("whole queries, `capacity`", "capacity", by_query),
        ("whole queries, `fifo`", "fifo", by_query),
    ]
    first: list[Outcome] = []
    for title, policy, made in rows:
        found = [outcome(made(queries), queries, policy) for queries in sets]
        first = first or found
        cells = []
        for name in ("makespan_s", "completion_s"):
            values = [getattr(each, name) for each in found]
            ratios = [value / getattr(base, name) for value, base in zip(values, first, strict=True)]
            cells += [f"{statistics.mean(values):,.0f}", f"{statistics.mean(ratios):.2f}"]
        print(f"| {title} | {' | '.join(cells)} | {statistics.mean(e.efficiency for e in found):.1%} |", flush=True)


# -- Perotin -------------------------------------------------------------------------------------

STAGES, MOST, SCALING, PEROTIN_SEEDS = 80, 16, 0.8, 5
NODES, DEVICES, HOST = 4, 8, 12_000
"""The capacity of each node in CPUs, network and disk, where those count."""


def moldable(rng: random.Random, resources: int) -> list[Job]:
    """Return stages of one to sixteen tasks; each depends on up to three of the twelve before it."""
    made: list[Job] = []
    for number in range(STAGES):
        lately = range(max(number - 12, 0), number)
        before = rng.sample(lately, rng.randint(0, min(3, len(lately))))
        cpu, network, disk = (rng.randint(200, 3000) if kind < resources else 0 for kind in (1, 2, 3))
        made.append(
            Job(
                id=JobId(f"s{number}"),
                roles=(Role(count=1, device_milli=WHOLE, cpu_milli=cpu, network_bps=network, disk_bps=disk),),
                work=rng.uniform(100.0, 3000.0),
                elastic=Elastic(min_tasks=1, max_tasks=MOST),
                depends_on=tuple(JobId(f"s{at}") for at in sorted(before)),
            )
        )
    return made


def least_makespan_s(jobs: Sequence[Job]) -> float:
    """Return a lower bound on the makespan: the longest chain at full speed, or all work at its cheapest."""
    ends: dict[JobId, float] = {}
    used = [0.0] * 4
    for job in jobs:
        work, role = job.work or 0.0, job.roles[0]
        ends[job.id] = max((ends[name] for name in job.depends_on), default=0.0) + work / MOST**SCALING
        for kind, amount in enumerate((role.device_milli, role.cpu_milli, role.network_bps, role.disk_bps)):
            used[kind] += amount * work
    return max(*ends.values(), used[0] / (NODES * DEVICES * WHOLE), *(each / (NODES * HOST) for each in used[1:]))


def bound(resources: int) -> float:
    """Return the claimed ratio to the shortest schedule (Perotin et al., theorem for general precedence)."""
    return 1.619 * resources + 2.545 * math.sqrt(resources) + 1


def perotin(seeds: int) -> None:
    """Print the makespan relative to the lower bound, by number of resources."""
    print(f"\nPerotin: {STAGES} moldable stages, {NODES} nodes of {DEVICES} devices, {PEROTIN_SEEDS * seeds} seeds\n")
    sizes = (1, 4, MOST)
    titles = ["`perotin`", *(f"`fifo:backfill=true`, {size} task{'s' * (size > 1)}" for size in sizes)]
    print(f"| resources | claimed bound | {' | '.join(f'{each}, mean | worst' for each in titles)} |")
    print(f"|---|---:|{'---:|' * (2 * len(titles))}")
    for resources in (1, 2, 3, 4):
        cells = []
        for size in (None, *sizes):
            ratios = [over_least(seed, resources, size) for seed in range(PEROTIN_SEEDS * seeds)]
            cells.append(f"{statistics.mean(ratios):.2f} | {max(ratios):.2f}")
        print(f"| {resources} | {bound(resources):.2f} | {' | '.join(cells)} |", flush=True)


def fixed(job: Job, size: int) -> Job:
    """Return the same stage with a fixed number of tasks."""
    role = replace(job.roles[0], count=size)
    return replace(job, roles=(role,), elastic=None, work=(job.work or 0.0) / size**SCALING)


def over_least(seed: int, resources: int, size: int | None) -> float:
    """Return the ratio under `perotin`, which chooses sizes, or under first come, first served with a given size."""
    jobs = moldable(random.Random(seed), resources)
    cpu, network, disk = (HOST if kind < resources else None for kind in (1, 2, 3))
    nodes = tuple(
        Node(
            id=NodeId(f"n{at}"),
            device_type=DeviceType("gpu"),
            devices=DEVICES,
            cpu_milli=cpu,
            network_bps=network,
            disk_bps=disk,
        )
        for at in range(NODES)
    )
    submissions = [Submission(job=job if size is None else fixed(job, size), submit_s=0.0) for job in jobs]
    policy = "perotin" if size is None else "fifo:backfill=true"
    rows = ran(submissions, policy, Cluster(nodes=nodes), SpeedModel(scaling=SCALING)).jobs
    return max(row.end_s or math.inf for row in rows) / least_makespan_s(jobs)


def main(seeds: int) -> None:
    ursa(seeds)
    perotin(seeds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
