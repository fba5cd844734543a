"""Liquid's claim: average completion time by where tasks are placed, on a cluster whose network slows jobs down.

64 nodes of 4 devices in 4 racks and 2 domains. A task has one device; jobs of several tasks are rings, or half of them
have parameter servers besides; tasks send 1, 2 or 4 Gb/s. Jobs of one device keep it busy for 30 to 100%, and
two that share one have 80% of their speed each. Everybody takes jobs in the order in which they came and fills gaps.
Run: `python reproductions/liquid.py [SEEDS]`.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import time
from dataclasses import dataclass

from rota.core.cluster import Cluster, Node
from rota.core.model import Job, JobId, NodeId, Role
from rota.drivers.simulator.study import Setting, simulate
from rota.perf.speed import SpeedModel
from rota.perf.utilisation import LABEL
from rota.report.metrics import Metrics, measure
from rota.traces.workload import Submission, Workload

CLUSTER = Cluster(
    nodes=tuple(Node(id=NodeId(f"n{i}"), devices=4, rack=f"r{i // 16}", domain=f"d{i // 32}") for i in range(64))
)
SPEED = SpeedModel(network=0.02, device_neighbour=0.8)
JOBS, LOAD = 600, 0.9
SIZES, WEIGHTS = (1, 2, 4, 8, 16), (40, 20, 20, 15, 5)
GBIT = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A row of the table: a policy with a placement."""

    title: str
    policy: str = "fifo:backfill=true"
    placement: str


WAYS = (
    Way(title="`liquid`: placement and sharing", policy="liquid", placement="liquid"),
    Way(title="`liquid`: placement alone", placement="liquid"),
    Way(title="Kubernetes-like: `spread`", placement="spread"),
    Way(title="packing like HiveD's: `consolidate`", placement="consolidate"),
    Way(title="best fit without network: `best-fit`", placement="best-fit"),
    Way(title="`liquid-batch:work=1000`", policy="liquid-batch:work=1000", placement="liquid"),
)


def workload(seed: int, served: float) -> Workload:
    """Jobs of about an hour that come at random, so many that their work is a part of what the cluster could do."""
    chance = random.Random(seed)
    asked = [job(number, chance, served) for number in range(JOBS)]
    offered = sum(each.gpus * (each.work or 0.0) for each in asked)
    rate = LOAD * CLUSTER.devices * JOBS / offered
    submit_s, submissions = 0.0, []
    for each in asked:
        submit_s += chance.expovariate(rate)
        submissions.append(Submission(job=each, submit_s=submit_s))
    return Workload(submissions=tuple(submissions), source=f"seed {seed}", format="generated")


def job(number: int, chance: random.Random, served: float) -> Job:
    """A gang of tasks of one device, with what it sends; or a single task, with how busy it keeps its device."""
    tasks = chance.choices(SIZES, weights=WEIGHTS)[0]
    work = min(chance.lognormvariate(math.log(3600.0), 1.0), 12 * 3600.0)
    name = JobId(f"j{number}")
    if tasks == 1:
        return Job(id=name, work=work, labels=((LABEL, f"{chance.uniform(0.3, 1.0):.2f}"),))
    workers = Role(count=tasks, network_bps=chance.choice((1, 2, 4)) * GBIT)
    servers = Role(name="ps", count=1 + tasks // 8, device_milli=0)
    return Job(id=name, work=work, roles=(servers, workers) if chance.random() < served else (workers,))


def measured(way: Way, seed: int, served: float) -> Metrics:
    setting = Setting(cluster=CLUSTER, placement=way.placement, speed=SPEED, seed=seed)
    return measure(simulate(workload(seed, served), way.policy, setting).history)


def main(seeds: int) -> None:
    for served, mix in ((0.5, "rings and parameter servers"), (0.0, "rings")):
        print(f"\n{mix}: {JOBS} jobs, load {LOAD:g}, {seeds} seeds\n")
        print(f"| {mix} | average completion, h | `liquid` saves | by seed | average wait, h |")
        print("|---|---:|---:|---|---:|")
        first: list[Metrics] = []
        for way in WAYS:
            began = time.perf_counter()
            runs = [measured(way, seed, served) for seed in range(seeds)]
            first = first or runs
            print(f"| {way.title} | {' | '.join(cells(runs, first))} |", flush=True)
            print(f"{way.title}: {time.perf_counter() - began:.0f} s", file=sys.stderr)


def cells(runs: list[Metrics], first: list[Metrics]) -> list[str]:
    """A row: means over seeds, and what the first row's completion time is below this one's."""
    saved = [1.0 - (best.avg_jct_s or 0.0) / (run.avg_jct_s or 1.0) for run, best in zip(runs, first, strict=True)]
    completion_s = statistics.mean(run.avg_jct_s or 0.0 for run in runs)
    wait_s = statistics.mean(run.avg_wait_s or 0.0 for run in runs)
    by_seed = ", ".join(f"{each:.0%}" for each in saved)
    row = [f"{completion_s / 3600:.2f}", f"{statistics.mean(saved):.0%}", by_seed, f"{wait_s / 3600:.2f}"]
    return row if runs is not first else [row[0], "-", "-", row[3]]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
