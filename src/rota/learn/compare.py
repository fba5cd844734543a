"""A fair comparison of ways to place jobs: the same workloads, order and interval; only where tasks go differs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from scipy import stats

from rota.core.cluster import Cluster
from rota.learn.lif import LeastInterference
from rota.learn.oracle import Oracle
from rota.learn.play import AsOffered, alone_on_servers, mean_jct_s, play
from rota.learn.workloads import Shape, cluster_of, workload
from rota.mechanisms.actor import Actor
from rota.mechanisms.choosers import Scored, fullest, least_loaded
from rota.mechanisms.placing import Chooser
from rota.mechanisms.weights import Learned, load_learned

CONFIDENCE = 0.95
RIVALS = ("load-balance", "pack", "standalone", "lif-linear")
"""The usual ways; the best of them is what gains are counted from."""
LEARNED, BOUND = "harmony", "oracle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to place jobs."""

    chooser: Callable[[Cluster, Learned], Chooser]
    placement: str = "spread"
    """Decides where the chooser has no answer."""
    alone: bool = False
    """Whether no job shares a server."""


WAYS = {
    LEARNED: Way(chooser=lambda cluster, learned: Actor(learned.network), placement="consolidate"),
    "load-balance": Way(chooser=lambda cluster, learned: Scored(least_loaded)),
    "pack": Way(chooser=lambda cluster, learned: Scored(fullest), placement="best-fit"),
    "standalone": Way(chooser=lambda cluster, learned: AsOffered(), placement="consolidate", alone=True),
    "lif-linear": Way(chooser=lambda cluster, learned: LeastInterference(learned.network.kinds, learned.linear)),
    "liquid": Way(chooser=lambda cluster, learned: AsOffered(), placement="liquid"),
    BOUND: Way(chooser=lambda cluster, learned: Oracle(cluster.nodes)),
}
"""By name, in the order in which they are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One way over all workloads: means, with the interval that holds the true mean with 95% confidence."""

    policy: str
    servers: int
    jobs: int
    workloads: int
    avg_jct_s: float
    low_s: float
    high_s: float
    better_than_best_usual: float
    """By what part its completion times are shorter than those of the best usual way."""
    low: float
    high: float
    part_of_oracle: float | None
    """Of what the oracle gains over the best usual way, how much this one does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One way on one workload."""

    policy: str
    shape: Shape
    seed: str
    weights: Path


def mean_of(task: Task) -> float:
    """The mean completion time."""
    way, servers = WAYS[task.policy], task.shape.servers
    work = workload(task.shape, task.seed)
    chooser = way.chooser(cluster_of(servers), load_learned(task.weights))
    return mean_jct_s(play(alone_on_servers(work) if way.alone else work, servers, chooser, placement=way.placement))


def compare(
    shape: Shape,
    seed: int,
    count: int,
    weights: Path,
    policies: Iterable[str] = tuple(WAYS),
    tell: Callable[[], None] = lambda: None,
) -> list[Score]:
    """All ways on workloads of one seed."""
    names = list(policies)
    load_learned(weights)
    tasks = [
        Task(policy=name, shape=shape, seed=f"{seed}/{number}", weights=weights)
        for number in range(count)
        for name in sorted(names, key=lambda name: name != BOUND)
    ]
    means: dict[str, list[float]] = {name: [] for name in names}
    for task, mean_s in zip(tasks, _run_all(tasks), strict=True):
        means[task.policy].append(mean_s)
        tell()
    return scores({name: np.array(found) for name, found in means.items()}, shape)


def _run_all(tasks: list[Task]) -> Iterator[float]:
    processes = min(os.cpu_count() or 1, len(tasks))
    if processes == 1:
        yield from map(mean_of, tasks)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(mean_of, tasks)


def scores(means: dict[str, np.ndarray], shape: Shape) -> list[Score]:
    """What mean completion times by workload come to."""
    usual = [name for name in RIVALS if name in means] or list(means)
    best = means[min(usual, key=lambda name: float(means[name].mean()))]
    bound = means.get(BOUND)
    could = None if bound is None else float((best - bound).mean())
    found = []
    for name, seen in means.items():
        gain = float((best - seen).mean())
        low_s, high_s = _interval(seen)
        low, high = _interval(1.0 - seen / best)
        found.append(
            Score(
                policy=name,
                servers=shape.servers,
                jobs=shape.servers * shape.jobs_per_server,
                workloads=len(seen),
                avg_jct_s=float(seen.mean()),
                low_s=low_s,
                high_s=high_s,
                better_than_best_usual=gain / float(best.mean()),
                low=low,
                high=high,
                part_of_oracle=gain / could if could else None,
            )
        )
    return found


def _interval(seen: np.ndarray) -> tuple[float, float]:
    """Student's interval of the mean; the mean itself where there is only one."""
    mean = float(seen.mean())
    if len(seen) < 2:
        return mean, mean
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(seen) - 1) * seen.std(ddof=1) / np.sqrt(len(seen)))
    return mean - half, mean + half
