"""Controlled comparison of placement methods: same workloads, order and interval; only placements differ."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from scipy import stats

from rota.core.model.cluster import Cluster
from rota.learn.evaluation.least_interference import LeastInterference
from rota.learn.evaluation.oracle import Oracle
from rota.learn.evaluation.play import AsOffered, alone_on_servers, mean_jct_s, play
from rota.learn.workloads import WorkloadShape, cluster_of, workload
from rota.mechanisms.learned.actor import Actor
from rota.mechanisms.learned.heuristics import Scored, fullest, least_loaded
from rota.mechanisms.learned.interval_placement import Chooser
from rota.mechanisms.learned.weights import Learned, load_learned

CONFIDENCE = 0.95
RIVALS = ("load-balance", "pack", "standalone", "lif-linear")
"""Baselines; gains are relative to the best of them."""
LEARNED, BOUND = "harmony", "oracle"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementMethod:
    """A placement method."""

    chooser: Callable[[Cluster, Learned, bool], Chooser]
    """Chooser by cluster, learned weights, and whether the learned placement sees job lengths."""
    placement: str = "spread"
    """Placement where the chooser has no answer."""
    alone: bool = False
    """Whether jobs share no servers."""


WAYS = {
    LEARNED: PlacementMethod(
        chooser=lambda cluster, learned, length: Actor(learned.network, knows_length=length), placement="consolidate"
    ),
    "load-balance": PlacementMethod(chooser=lambda cluster, learned, length: Scored(least_loaded)),
    "pack": PlacementMethod(chooser=lambda cluster, learned, length: Scored(fullest), placement="best-fit"),
    "standalone": PlacementMethod(
        chooser=lambda cluster, learned, length: AsOffered(), placement="consolidate", alone=True
    ),
    "lif-linear": PlacementMethod(
        chooser=lambda cluster, learned, length: LeastInterference(learned.network.kinds, learned.linear)
    ),
    "liquid": PlacementMethod(chooser=lambda cluster, learned, length: AsOffered(), placement="liquid"),
    BOUND: PlacementMethod(chooser=lambda cluster, learned, length: Oracle(cluster.nodes)),
}
"""Methods by name, in the order of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementScore:
    """Results of a method over all workloads: means, with 95% confidence intervals."""

    policy: str
    servers: int
    jobs: int
    workloads: int
    avg_jct_s: float
    low_s: float
    high_s: float
    better_than_best_usual: float | None
    """Relative gain in completion time over the best baseline; None if there is no other."""
    low: float | None
    high: float | None
    part_of_oracle: float | None
    """Gain over the best baseline as a fraction of the oracle's gain."""
    part_low: float | None
    part_high: float | None
    best_in: int | None
    """Number of workloads in which no other method was better; for the oracle, by its own search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonTask:
    """One method on one workload."""

    policy: str
    shape: WorkloadShape
    seed: str
    weights: Path
    length: bool = True


def mean_of(task: ComparisonTask) -> float:
    """Return the mean completion time."""
    way, servers = WAYS[task.policy], task.shape.servers
    work = workload(task.shape, task.seed)
    chooser = way.chooser(cluster_of(servers), load_learned(task.weights), task.length)
    return mean_jct_s(play(alone_on_servers(work) if way.alone else work, servers, chooser, placement=way.placement))


def compare(
    shape: WorkloadShape,
    seed: int,
    count: int,
    weights: Path,
    policies: Iterable[str] = tuple(WAYS),
    tell: Callable[[], None] = lambda: None,
    *,
    length: bool = True,
) -> list[PlacementScore]:
    """Compare methods on workloads of one seed; `tell` is called after every run."""
    names = list(policies)
    load_learned(weights)
    tasks = [
        ComparisonTask(policy=name, shape=shape, seed=f"{seed}/{number}", weights=weights, length=length)
        for number in range(count)
        for name in sorted(runs_for(names), key=lambda name: name != BOUND)
    ]
    means: dict[str, list[float]] = {name: [] for name in runs_for(names)}
    for task, mean_s in zip(tasks, _run_all(tasks), strict=True):
        means[task.policy].append(mean_s)
        tell()
    found = scores({name: np.array(seen) for name, seen in means.items()}, shape)
    return [score for score in found if score.policy in names]


def runs_for(names: Iterable[str]) -> list[str]:
    """Return the methods that must run to judge these: all of them for the oracle, which takes the best."""
    asked = set(names)
    return [name for name in WAYS if BOUND in asked or name in asked]


def _run_all(tasks: list[ComparisonTask]) -> Iterator[float]:
    processes = min(os.cpu_count() or 1, len(tasks))
    if processes == 1:
        yield from map(mean_of, tasks)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(mean_of, tasks)


def scores(means: dict[str, np.ndarray], shape: WorkloadShape) -> list[PlacementScore]:
    """Return the scores of mean completion times by workload.

    The oracle takes the best method of each workload: its own search, or another.
    """
    shortest = np.min(list(means.values()), axis=0)
    taken = {name: shortest if name == BOUND else seen for name, seen in means.items()}
    usual = [name for name in RIVALS if name in means and len(means) > 1]
    best = min((taken[name] for name in usual), key=lambda seen: float(seen.mean()), default=None)
    found = []
    for name, seen in taken.items():
        low_s, high_s = _interval(seen)
        better = _Part.of(best - seen, best) if best is not None else _Part()
        part = _Part.of(best - seen, best - shortest) if best is not None and BOUND in means else _Part()
        found.append(
            PlacementScore(
                policy=name,
                servers=shape.servers,
                jobs=shape.servers * shape.jobs_per_server,
                workloads=len(seen),
                avg_jct_s=float(seen.mean()),
                low_s=low_s,
                high_s=high_s,
                better_than_best_usual=better.mean,
                low=better.low,
                high=better.high,
                part_of_oracle=part.mean,
                part_low=part.low,
                part_high=part.high,
                best_in=int((means[name] <= shortest).sum()) if len(means) > 1 else None,
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class _Part:
    """Ratio of two sums over the same workloads; None where it is undefined."""

    mean: float | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, some: np.ndarray, whole: np.ndarray) -> _Part:
        """Return the ratio with the confidence interval of a ratio of means, by the residuals of each workload."""
        if not whole.mean():
            return cls()
        part = some.mean() / whole.mean()
        return cls(float(part), *_interval(part + (some - part * whole) / whole.mean()))


def _interval(seen: np.ndarray) -> tuple[float, float]:
    """Return Student's confidence interval of the mean; the mean itself for a single value."""
    mean = float(seen.mean())
    if len(seen) < 2:
        return mean, mean
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(seen) - 1) * seen.std(ddof=1) / np.sqrt(len(seen)))
    return mean - half, mean + half
