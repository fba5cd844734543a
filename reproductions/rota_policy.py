"""Rota's own policy against every named one, on twelve workloads.

Three generators with three seeds each, and three slices of the Philly trace at loads of about 0.9, 1.1 and 2; a restart
costs 30 s, and nothing is known beforehand. Results are cached by workload, policy and the source of Rota's own policy,
so that a run that was interrupted resumes. With other seeds, only generated workloads are run, any number of them.
Run: `ROTA_DATA=... python reproductions/rota_policy.py [--cache DIR] [--processes N] [--seeds FIRST-LAST] [POLICY...]`.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import math
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

import rota.policies.own
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.drivers.simulator.study import Result, Setting, simulate
from rota.perf.speed.model import Costs, SpeedModel
from rota.policies import names
from rota.report.metrics import finish_time_fairness, measure
from rota.traces import read_trace
from rota.traces.generators import generate
from rota.traces.workload import Submission, Workload

RESTART_S = 30.0
GPUS, PER_NODE = 64, 8
GENERATED = (("mixed", 800, 1.3), ("gavel-like", 400, 1.3), ("philly-like", 800, 2.0))
"""Kind, jobs and load; below these loads hardly a job waits."""
SEEDS = (1001, 1002, 1003)
SLICES = ((20_000, 0.9), (50_000, 1.1), (65_000, 2.0))
"""The first job of each slice of Philly, and its load."""
SLICE_JOBS = 4000
SHARED_SPEED = 0.5
"""The speed of each of two jobs on a device: nothing is measured about pairs in these workloads, so that none gains."""
LIMIT_CPU_S = 120
"""A run that takes longer is given up."""
GAVEL_ROUNDS = "compat=none"
"""Gavel's policies without the quirks of the published simulator, which ignores restart costs."""
FASTER_THAN = ("tiresias", "themis", "capacity", "gandiva-fair", "las", "las:rule=geometric", "gavel/max_min_fairness")
EXTRA = ("las:rule=geometric", "tiresias:rule=geometric", "gittins:rule=geometric,censored=true")
"""Stronger variants of published policies, compared by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A workload by name: a generator and its seed, or a slice of Philly."""

    name: str
    kind: str
    jobs: int
    load: float
    start: int

    def workload(self) -> Workload:
        if self.kind != "philly":
            return generate(self.kind, jobs=self.jobs, seed=self.start, gpus=GPUS, load=self.load)
        trace = _philly()
        return replace(trace, submissions=_from_zero(trace.submissions[self.start : self.start + self.jobs]))

    def cluster(self, workload: Workload) -> Cluster:
        """Return 64 devices, or as many as give a slice of Philly its load."""
        if self.kind != "philly":
            return Cluster.uniform(("gpu", GPUS, PER_NODE))
        span_s = workload.submissions[-1].submit_s - workload.submissions[0].submit_s
        demand = math.fsum((each.job.work or 0.0) * each.job.gpus for each in workload.submissions) / span_s
        largest = max(each.job.gpus for each in workload.submissions)
        nodes = max(round(demand / self.load / PER_NODE), math.ceil(largest / PER_NODE))
        return Cluster.uniform(("gpu", nodes * PER_NODE, PER_NODE))


def _from_zero(chosen: Sequence[Submission]) -> tuple[Submission, ...]:
    first_s = chosen[0].submit_s
    return tuple(replace(each, submit_s=each.submit_s - first_s) for each in chosen)


@functools.cache
def _philly() -> Workload:
    return read_trace(Path(os.environ["ROTA_DATA"]) / "philly" / "philly.csv")


def cases(seeds: Sequence[int] = SEEDS) -> list[Case]:
    """Return the twelve workloads; without `ROTA_DATA` or with other seeds, the generated ones."""
    made = [
        Case(name=f"{kind} {seed}", kind=kind, jobs=jobs, load=load, start=seed)
        for kind, jobs, load in GENERATED
        for seed in seeds
    ]
    if "ROTA_DATA" in os.environ and seeds is SEEDS:
        made += [
            Case(name=f"philly at {load:g}", kind="philly", jobs=SLICE_JOBS, load=load, start=start)
            for start, load in SLICES
        ]
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one policy gave on one workload."""

    jct_s: float
    worst_ftf: float
    p99_ftf: float
    preemptions: int
    cpu_s: float


def run(case: Case, policy: str) -> Figures | str:
    """Return the figures of a run, or why the policy refuses the workload."""
    workload = case.workload()
    speed = SpeedModel(device_neighbour=SHARED_SPEED)
    setting = Setting(cluster=case.cluster(workload), costs=Costs(restart_s=RESTART_S), speed=speed)
    try:
        result = limited(workload, policy, setting)
    except (RotaError, TimeoutError) as error:
        return str(error)
    found = measure(result.history)
    ratios = finish_time_fairness(result.history)
    known = np.sort(ratios[~np.isnan(ratios)])
    if found.finished < len(workload.submissions):
        return f"only {found.finished} of {len(workload.submissions)} jobs ended"
    return Figures(
        jct_s=found.avg_jct_s or 0.0,
        worst_ftf=float(known[-1]),
        p99_ftf=float(known[int(0.99 * known.size)]),
        preemptions=found.preemptions,
        cpu_s=result.cpu_s,
    )


def limited(workload: Workload, policy: str, setting: Setting) -> Result:
    """Simulate within the limit of CPU time."""
    signal.signal(signal.SIGVTALRM, _give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_CPU_S)
    try:
        return simulate(workload, policy, setting)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _give_up(*_: object) -> None:
    raise TimeoutError(f"took more than {LIMIT_CPU_S} s of CPU time")


def _cached(cache: Path, case: Case, policy: str) -> Path:
    own = "".join(file.read_text() for place in rota.policies.own.__path__ for file in sorted(Path(place).glob("*.py")))
    parts = [
        repr(case),
        policy,
        str((GPUS, PER_NODE, RESTART_S, SHARED_SPEED)),
        own if policy.startswith("rota") else "",
    ]
    return cache / (hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24] + ".json")


def measured(task: tuple[Path, Case, str]) -> None:
    """Run one policy on one workload unless its result is cached."""
    place = _cached(*task)
    if not place.exists():
        found = run(*task[1:])
        place.write_text(json.dumps(found if isinstance(found, str) else asdict(found)))
        print(f"{task[1].name:18} {task[2]:45} {found}", file=sys.stderr, flush=True)


def results(
    cache: Path, policies: Sequence[str], workloads: Sequence[Case], processes: int
) -> dict[str, dict[str, Figures]]:
    """Return the figures by workload and policy; policies that refuse a workload are left out of it."""
    tasks = [(cache, case, policy) for policy in policies for case in workloads]
    if processes > 1:
        with ProcessPoolExecutor(processes) as pool:
            list(pool.map(measured, tasks))
    else:
        for task in tasks:
            measured(task)
    table: dict[str, dict[str, Figures]] = {case.name: {} for case in workloads}
    for task in tasks:
        read = json.loads(_cached(*task).read_text())
        if isinstance(read, dict):
            table[task[1].name][task[2]] = Figures(**read)
    return table


def spec(name: str) -> str:
    return f"{name}:{GAVEL_ROUNDS}" if name.startswith("gavel/") else name


def show(table: dict[str, dict[str, Figures]], policies: Sequence[str]) -> None:
    """Print the completion time over `srsf` and the worst and p99 FTF of each policy, over the workloads."""
    print("| policy | JCT over `srsf`: mean | worst | worst FTF: median | largest | p99 FTF: median | workloads |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    rows = []
    for policy in policies:
        found = [(rows_[policy], rows_["srsf"]) for rows_ in table.values() if policy in rows_]
        if found:
            over = [mine.jct_s / best.jct_s for mine, best in found]
            rows.append((statistics.mean(over), max(over), policy, [mine for mine, _ in found]))
    for mean, worst, policy, mine in sorted(rows, key=lambda row: row[:3]):
        cells = [f"{mean:.3f}", f"{worst:.3f}", f"{statistics.median(m.worst_ftf for m in mine):.2f}"]
        cells += [f"{max(m.worst_ftf for m in mine):.2f}", f"{statistics.median(m.p99_ftf for m in mine):.2f}"]
        print(f"| `{policy}` | {' | '.join(cells)} | {len(mine)} |")


def checks(table: dict[str, dict[str, Figures]], mine: str) -> Iterator[tuple[str, bool]]:
    """Yield each claim with whether it holds."""
    over = {name: found[mine].jct_s / found["srsf"].jct_s for name, found in table.items()}
    mean, (at, worst) = statistics.mean(over.values()), max(over.items(), key=lambda item: item[1])
    yield f"JCT over srsf, mean: {mean:.3f} (at most 1.10)", mean <= 1.10
    yield f"JCT over srsf, worst: {worst:.3f} on {at} (at most 1.15)", worst <= 1.15
    unfair = max((found[mine].worst_ftf, name) for name, found in table.items())
    yield f"worst FTF: {unfair[0]:.2f} on {unfair[1]} (below 3)", unfair[0] < 3
    for other in map(spec, FASTER_THAN):
        both = [found for found in table.values() if other in found]
        wins = sum(found[mine].jct_s < found[other].jct_s for found in both)
        yield f"shorter than {other}: {wins} of {len(both)} (at least all but 1)", wins >= len(both) - 1 > 0
    dominating = [
        f"{other} on {name} ({rows[other].jct_s / rows[mine].jct_s:.3f}, p99 {rows[other].p99_ftf:.2f} "
        f"against {rows[mine].p99_ftf:.2f})"
        for name, rows in table.items()
        for other in rows
        if not other.startswith("rota") and _dominates(rows[other], rows[mine])
    ]
    yield f"dominated by: {'; '.join(dominating) or 'none'}", not dominating


def _dominates(other: Figures, mine: Figures) -> bool:
    no_worse = other.jct_s <= mine.jct_s and other.p99_ftf <= mine.p99_ftf
    return no_worse and (other.jct_s < mine.jct_s or other.p99_ftf < mine.p99_ftf)


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policies", nargs="*", help="policies beside rota and srsf; all named ones by default")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "rota-policy")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--mine", default="rota", help="the variant of rota that the checks are about")
    parser.add_argument("--seeds", type=_seeds, default=SEEDS, help="other seeds of the generators, such as 4001-4020")
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    wanted = given.policies or [*map(spec, names()), *EXTRA]
    policies = list(dict.fromkeys([given.mine, "srsf", *wanted]))
    table = results(given.cache, policies, cases(given.seeds), given.processes)
    show(table, policies)
    print()
    for claim, holds in checks(table, given.mine):
        print(f"- {'met' if holds else 'NOT met'}: {claim}")
    print(f"\n| workload | `{given.mine}`: JCT over `srsf` | worst FTF |\n|---|---:|---:|")
    for name, rows in table.items():
        print(f"| {name} | {rows[given.mine].jct_s / rows['srsf'].jct_s:.3f} | {rows[given.mine].worst_ftf:.2f} |")


if __name__ == "__main__":
    main()
