"""Liquid's claim: average completion time with estimates, network-aware placement, overlap and sharing.

64 nodes of 4 devices in 4 racks and 2 domains. A task has one device; jobs of several tasks are rings, or half of them
also have parameter servers; tasks send 1, 2 or 4 Gb/s. A one-device job is one of eleven trainings that were measured
on an H200, alone and in every pair: two that share a device slow each other down as measured there. `liquid` gets the
utilisation and memory of each from an estimator that learned from other configurations. Every job loads for two
minutes and saves for one. Jobs are taken in order of arrival, with backfilling.
Run: `python reproductions/liquid.py [SEEDS]`.
"""

from __future__ import annotations

import csv
import math
import random
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import DeviceType, Job, JobId, NodeId, Role
from rota.drivers.simulator.study import Setting, simulate
from rota.estimate.estimator import Estimator
from rota.estimate.forest import one_thread
from rota.estimate.observations import Value, read_observations
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.busy_fraction import LABEL
from rota.perf.speed.model import Costs, SpeedModel
from rota.report.metrics import Metrics, measure
from rota.traces.workload import Submission, Workload

GIB = 2**30
GPU = DeviceType("gpu")
CLUSTER = Cluster(
    nodes=tuple(
        Node(
            id=NodeId(f"n{i}"),
            device_type=GPU,
            devices=4,
            device_memory_bytes=139 * GIB,
            rack=f"r{i // 16}",
            domain=f"d{i // 32}",
        )
        for i in range(64)
    )
)
COSTS = Costs(load_s=120.0, save_s=60.0)
JOBS, LOADS = 600, (0.9, 1.1)
SIZES, WEIGHTS = (1, 2, 4, 8, 16), (40, 20, 20, 15, 5)
GBIT = 1_000_000_000
ASKED = ("model", "batch", "size", "precision", "optimizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One of the measured trainings, with its estimated utilisation and memory."""

    name: str
    busy: float
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A row of the table: a policy with a placement."""

    title: str
    policy: str = "fifo:backfill=true"
    placement: str = "liquid"


WAYS = (
    Way(title="`liquid`: estimates, placement, overlap, sharing", policy="liquid"),
    Way(title="`liquid` without overlap", policy="liquid:overlap=false"),
    Way(title="`liquid` without estimates, so without sharing", policy="liquid:most=1"),
    Way(title="`liquid`: placement alone", policy="liquid:most=1,overlap=false"),
    Way(title="Kubernetes-like: `spread`", placement="spread"),
    Way(title="packing like HiveD's: `consolidate`", placement="consolidate"),
    Way(title="best fit without network: `best-fit`", placement="best-fit"),
    Way(title="`liquid-batch:work=1000`", policy="liquid-batch:work=1000"),
)


def measured_pairs() -> tuple[dict[str, Mapping[str, Value]], Profiles]:
    """Return the trainings that were measured in pairs, by name, and their relative speeds in each pair."""
    asked: dict[str, Mapping[str, Value]] = {}
    pairs: dict[tuple[DeviceType, str, str, int], tuple[float, float]] = {}
    text = (files("rota.perf.profiles") / "measured" / "h200-pairs.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        names, speeds = [], []
        for side in "ab":
            known = {name: row[f"{side}_{name}"] for name in ASKED}
            names.append("-".join(known.values()))
            speeds.append(min(float(row[f"{side}_alone_s"]) / float(row[f"{side}_together_s"]), 1.0))
            asked[names[-1]] = {name: _value(text) for name, text in known.items()}
        pairs[GPU, names[0], names[1], 1] = (speeds[0], speeds[1])
        pairs[GPU, names[1], names[0], 1] = (speeds[1], speeds[0])
    alone = {(GPU, name, 1): 1.0 for name in asked}
    return asked, Profiles(steps_per_s=alone, pairs=pairs, source="h200-pairs.csv", is_relative=True)


def _value(text: str) -> Value:
    return float(text) if text.replace(".", "", 1).isdigit() else text


def estimated(asked: Mapping[str, Mapping[str, Value]]) -> list[Training]:
    """Return estimates for the trainings, learned without runs of the same configurations."""
    runs = [
        run
        for run in read_observations(Path("h200"))
        if not any(all(run.attributes[name] == known[name] for name in ASKED) for known in asked.values())
    ]
    with one_thread():
        estimator = Estimator.learn(runs, ["gpu_util_mean", "gpu_memory_mb"])
        return [
            Training(
                name=name,
                busy=min(estimator.predict("gpu_util_mean", known).value / 100, 1.0),
                memory_bytes=int(estimator.predict("gpu_memory_mb", known).high * 2**20),
            )
            for name, known in asked.items()
        ]


def workload(seed: int, served: float, load: float, trainings: list[Training]) -> Workload:
    """Return jobs of about an hour with random arrivals, at a load relative to the capacity of the cluster."""
    chance = random.Random(seed)
    asked = [job(number, chance, served, trainings) for number in range(JOBS)]
    offered = sum(each.gpus * (each.work or 0.0) for each in asked)
    rate = load * CLUSTER.devices * JOBS / offered
    submit_s, submissions = 0.0, []
    for each in asked:
        submit_s += chance.expovariate(rate)
        submissions.append(Submission(job=each, submit_s=submit_s))
    return Workload(submissions=tuple(submissions), source=f"seed {seed}", format="generated")


def job(number: int, chance: random.Random, served: float, trainings: list[Training]) -> Job:
    """Return a gang of one-device tasks with their traffic, or a single task with its estimates."""
    tasks = chance.choices(SIZES, weights=WEIGHTS)[0]
    work = min(chance.lognormvariate(math.log(3600.0), 1.0), 12 * 3600.0)
    name = JobId(f"j{number}")
    if tasks == 1:
        training = chance.choice(trainings)
        return Job(
            id=name,
            work=work,
            model=training.name,
            roles=(Role(device_memory_bytes=training.memory_bytes),),
            labels=((LABEL, f"{training.busy:.2f}"),),
        )
    workers = Role(count=tasks, network_bps=chance.choice((1, 2, 4)) * GBIT)
    servers = Role(name="ps", count=1 + tasks // 8, device_milli=0)
    return Job(id=name, work=work, roles=(servers, workers) if chance.random() < served else (workers,))


def main(seeds: int) -> None:
    asked, pairs = measured_pairs()
    trainings = estimated(asked)
    speed = SpeedModel(network=0.02, profiles=pairs)
    for training in trainings:
        estimate = f"{training.busy:.0%} busy, {training.memory_bytes / GIB:.1f} GiB at most"
        print(f"{training.name}: estimated {estimate}", file=sys.stderr)
    for load in LOADS:
        for served, mix in ((0.5, "rings and parameter servers"), (0.0, "rings")):
            workloads = [workload(seed, served, load, trainings) for seed in range(seeds)]
            print(f"\n| load {load:g}, {mix} | average completion, h | `liquid` saves | by seed | average wait, h |")
            print("|---|---:|---:|---|---:|")
            first: list[Metrics] = []
            for way in WAYS:
                began = time.process_time()
                runs = [measured(way, seed, each, speed) for seed, each in enumerate(workloads)]
                first = first or runs
                print(f"| {way.title} | {' | '.join(cells(runs, first))} |", flush=True)
                print(f"{way.title}: {time.process_time() - began:.0f} s", file=sys.stderr)


def measured(way: Way, seed: int, jobs: Workload, speed: SpeedModel) -> Metrics:
    setting = Setting(cluster=CLUSTER, placement=way.placement, speed=speed, costs=COSTS, seed=seed)
    return measure(simulate(jobs, way.policy, setting).history)


def cells(runs: list[Metrics], first: list[Metrics]) -> list[str]:
    """Return a row: means over seeds, and how much lower the completion time of the first row is."""
    saved = [1.0 - (best.avg_jct_s or 0.0) / (run.avg_jct_s or 1.0) for run, best in zip(runs, first, strict=True)]
    completion_s = statistics.mean(run.avg_jct_s or 0.0 for run in runs)
    wait_s = statistics.mean(run.avg_wait_s or 0.0 for run in runs)
    by_seed = ", ".join(f"{each:.0%}" for each in saved)
    row = [f"{completion_s / 3600:.2f}", f"{statistics.mean(saved):.0%}", by_seed, f"{wait_s / 3600:.2f}"]
    return row if runs is not first else [row[0], "-", "-", row[3]]


if __name__ == "__main__":
    main(max(int(sys.argv[1]), 1) if len(sys.argv) > 1 else 3)
