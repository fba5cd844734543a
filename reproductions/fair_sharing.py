"""Published claims about fair sharing, and what Rota measures on comparable set-ups.

One table for each system: capacity queues against Tiresias, Themis, AlloX, Gandiva_fair, Shockwave. All workloads are
generated, so no data is needed. Restart costs are those of the papers where stated.
Run: `python reproductions/fair_sharing.py [SYSTEM...]`.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from rota.core.engine.engine import Engine
from rota.core.messages.events import Event, NodeUndrained
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, Job, JobId, Level
from rota.core.state.history import History, history_of
from rota.core.state.state import State
from rota.drivers.simulator.run import run
from rota.drivers.simulator.study import Setting, scheduler, simulate
from rota.drivers.simulator.world import World
from rota.mechanisms.selection.trading import max_min
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import Costs, SpeedModel
from rota.report.metrics import Metrics, measure
from rota.traces.generators import generate
from rota.traces.workload import Submission, Workload

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The load of a philly-like workload relative to capacity, and the minimum length of its jobs.

    Most of the demand is in a few long jobs, so short ones wait only at a high load. Papers on fairness leave the
    shortest jobs out.
    """

    load: float
    least_s: float = 0.0

    def jobs(self, count: int, *, seed: int, gpus: int) -> Workload:
        workload = generate("philly-like", jobs=count, seed=seed, gpus=gpus, load=self.load)
        submissions = tuple(
            replace(each, job=replace(each.job, work=max(each.job.work or 0.0, self.least_s)))
            for each in workload.submissions
        )
        return replace(workload, submissions=submissions)

    def __str__(self) -> str:
        return f"{self.load:g}" + (f", {self.least_s / HOUR_S:g} h or longer" if self.least_s else "")


HEAVY = Case(load=6.0, least_s=0.5 * HOUR_S)
"""Chosen after the first runs, with the other cases of a table, in which jobs of seconds determine the largest rho."""


def hours(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds / HOUR_S:.2f}"


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    print(f"\n{title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def figures(workload: Workload, policies: list[str], setting: Setting) -> dict[str, Metrics]:
    return {policy: measure(simulate(workload, policy, setting).history) for policy in policies}


def tiresias() -> None:
    """60 GPUs, 480 jobs, 62 s for a preemption (Gu et al.: mean completion up to 5.5 times shorter than YARN-CS)."""
    setting = Setting(cluster=Cluster.uniform(("gpu", 60, 4)), costs=Costs(restart_s=62.0))
    rows = []
    for case in (Case(load=1.5), Case(load=6.0)):
        found = figures(
            case.jobs(480, seed=1, gpus=60), ["capacity:out_of_order=false", "capacity", "tiresias"], setting
        )
        base = found["tiresias"].avg_jct_s or 1.0
        rows += [
            [
                str(case),
                f"`{policy}`",
                hours(each.avg_jct_s),
                f"{(each.avg_jct_s or 0.0) / base:.2f}",
                hours(each.avg_fair_share_delay_s),
                hours(each.avg_fragmentation_delay_s),
            ]
            for policy, each in found.items()
        ]
    table(
        "Tiresias against capacity queues (YARN-CS)",
        ["load", "policy", "mean completion, h", "over Tiresias", "fair-share delay, h", "fragmentation delay, h"],
        rows,
    )


def themis() -> None:
    """64 GPUs in nodes of 4, 35 s for a change (Mahajan et al.: largest rho 2.2 to 3.25 times smaller)."""
    spread = {Level.RACK: 1 / 1.1, Level.DOMAIN: 1 / 1.3, Level.CLUSTER: 1 / 1.3}
    setting = Setting(
        cluster=Cluster.uniform(("gpu", 64, 4)), costs=Costs(restart_s=35.0), speed=SpeedModel(spread=spread)
    )
    policies = ["themis", "themis:filter=0", "gandiva", "gandiva-fair:by=tenant", "tiresias", "srtf"]
    rows = []
    for case in (Case(load=1.5), HEAVY):
        runs = [figures(case.jobs(300, seed=seed, gpus=64), policies, setting) for seed in SEEDS]
        best = [largest_rho(found["themis"]) for found in runs]
        for policy in policies:
            each = [found[policy] for found in runs]
            rho = [largest_rho(run) for run in each]
            rows.append(
                [
                    str(case),
                    f"`{policy}`",
                    *(f"{value:.2f}" for value in rho),
                    f"{statistics.mean(mine / least for mine, least in zip(rho, best, strict=True)):.2f}",
                    f"{statistics.mean(run.jain_fairness or 0.0 for run in each):.3f}",
                    hours(statistics.mean(run.avg_jct_s or 0.0 for run in each)),
                ]
            )
    seeds = [f"largest rho, seed {seed}" if not seed else f"seed {seed}" for seed in SEEDS]
    table("Themis", ["load", "policy", *seeds, "over Themis, mean of ratios", "Jain", "mean completion, h"], rows)


SEEDS = range(5)


def largest_rho(found: Metrics) -> float:
    return found.worst_finish_time_fairness or 0.0


def allox() -> None:
    """20 GPUs and 20 CPUs (Le et al.: mean completion 53 to 95% below variants of DRF, 30% above SRPT)."""
    gpu, cpu = DeviceType("gpu"), DeviceType("cpu")
    speedups = {"lenet": 1.2, "alexnet": 4.0, "googlenet": 10.0, "vgg16": 25.0, "resnet50": 40.0}
    speeds = {(gpu, model, 1): 1.0 for model in speedups} | {
        (cpu, model, 1): 1 / speedup for model, speedup in speedups.items()
    }
    rng = random.Random(3)
    submissions, at_s = [], 0.0
    for number in range(1000):
        at_s += rng.expovariate(1 / 60.0)
        model = rng.choice(sorted(speedups))
        job = Job(
            id=JobId(f"j{number}"),
            work=min(rng.paretovariate(1.2) * 300.0, 6 * HOUR_S),
            model=model,
            user=f"u{rng.randrange(10)}",
        )
        submissions.append(Submission(job=job, submit_s=at_s))
    workload = Workload(submissions=tuple(submissions), source="made", format="rota", counts_steps=True)
    setting = Setting(
        cluster=Cluster.uniform(("gpu", 20, 1), ("cpu", 20, 1)),
        speed=SpeedModel(profiles=Profiles(steps_per_s=speeds, source="made")),
    )
    slow_first = replace(setting, cluster=Cluster.uniform(("cpu", 20, 1), ("gpu", 20, 1)))
    gpu_only = replace(setting, cluster=Cluster.uniform(("gpu", 20, 1)))
    runs: list[tuple[str, str, Setting]] = [
        ("`allox` (alpha 0.1)", "allox", setting),
        ("`allox:alpha=1`", "allox:alpha=1", setting),
        ("`drf:by=user`, GPU first", "drf:by=user", setting),
        ("`drf:by=user`, CPU first", "drf:by=user", slow_first),
        ("`drf:by=user`, GPUs only", "drf:by=user", gpu_only),
        ("`srtf`, GPU first (preempts)", "srtf", setting),
        ("`srtf`, GPUs only (preempts)", "srtf", gpu_only),
        ("`gavel/allox`", "gavel/allox", setting),
    ]
    found = {name: measure(simulate(workload, policy, where).history) for name, policy, where in runs}
    base = found["`allox` (alpha 0.1)"].avg_jct_s or 1.0
    table(
        "AlloX",
        ["policy", "mean completion, h", "AlloX is lower by", "p99, h"],
        [
            [name, hours(each.avg_jct_s), f"{1 - base / (each.avg_jct_s or 1.0):.0%}", hours(each.p99_jct_s)]
            for name, each in found.items()
        ],
    )


GENERATIONS = {"v100": 1.0, "p100": 0.55, "k80": 0.2}
"""Speeds of a typical model; others gain more or less."""


def gandiva_fair() -> None:
    """200 GPUs of three generations, 10 users with 2 to 20 jobs each (Chaudhary et al.: fair, and trading gains)."""
    kinds = {DeviceType(name): speed for name, speed in GENERATIONS.items()}
    models = {f"m{at}": power for at, power in enumerate((0.2, 0.5, 0.8, 1.1, 1.4))}
    speeds = {
        (kind, model, gpus): gpus * speed**power
        for kind, speed in kinds.items()
        for model, power in models.items()
        for gpus in (1, 2, 4, 8)
    }
    rng = random.Random(4)
    submissions = []
    for user in range(10):
        for number in range(2 * (user + 1)):
            gpus = rng.choice((1, 1, 2, 4, 4, 8))
            job = Job(
                id=JobId(f"u{user}-{number}"),
                roles=(replace(Job(id=JobId("x")).roles[0], device_milli=gpus * 1000),),
                user=f"u{user}",
                model=f"m{user % 5}",
                work=1e9,
            )
            submissions.append(Submission(job=job, submit_s=0.0))
    workload = Workload(submissions=tuple(submissions), source="made", format="rota", counts_steps=True)
    setting = Setting(
        cluster=Cluster.uniform(("v100", 48, 8), ("p100", 72, 8), ("k80", 80, 8)),
        speed=SpeedModel(profiles=Profiles(steps_per_s=speeds, source="made")),
        costs=Costs(restart_s=1.0),
    )
    one_type = Setting(cluster=Cluster.uniform(("v100", 48, 8)), speed=setting.speed, costs=setting.costs)
    demand: dict[str, float] = defaultdict(float)
    for each in submissions:
        demand[each.job.user] += each.job.gpus
    rows = []
    without: list[float] = []
    for name, policy, where in (
        ("48 V100s", "drf:by=user", one_type),
        ("48 V100s", "gandiva-fair", one_type),
        ("three generations", "gandiva-fair:trade=false", setting),
        ("three generations", "gandiva-fair", setting),
    ):
        history = until(SPAN_S, workload, policy, where)
        fair = max_min(history.devices, dict.fromkeys(demand, 1.0), demand)
        had = [
            gpu_s / SPAN_S / fair[user]
            for user, gpu_s in zip(demand, by_user(history, lambda row: row.gpu_s), strict=True)
        ]
        did = by_user(history, lambda row: row.ideal_s * row.gpus)
        gain = min(now / before for now, before in zip(did, without or did, strict=True))
        without = did if "trade" in policy else []
        rows.append(
            [name, f"`{policy}`", f"{min(had):.2f} to {max(had):.2f}", f"{sum(did) / HOUR_S:,.0f}", f"{gain:.2f}"]
        )
    table(
        "Gandiva_fair",
        ["cluster", "policy", "GPU time of users over their fair share", "work, V100-hours", "worst-off user's gain"],
        rows,
    )


SPAN_S = 6 * HOUR_S
"""The observed time, in which none of the users' jobs ends."""


class Over(Exception):
    """Ends a run at the end of the observed time."""


def until(end_s: float, workload: Workload, policy: str, setting: Setting) -> History:
    """Return the history of a policy up to a moment at which no job has ended."""
    built, alloc, _ = scheduler(policy, setting)
    engine = Engine(State(setting.cluster), built, alloc)

    def end() -> Iterator[tuple[float, Event]]:
        yield end_s, NodeUndrained(setting.cluster.nodes[0].id)
        raise Over

    with contextlib.suppress(Over):
        run(engine, World(setting.cluster, setting.speed, setting.costs), workload.submissions, faults=end())
    engine.state.advance(end_s)
    return history_of(engine.state)


def by_user(history: History, of: Callable[..., float]) -> list[float]:
    """Return the sum of a figure over the jobs of each user."""
    sums: dict[str, float] = defaultdict(float)
    for row in history.jobs:
        sums[row.user] += of(row)
    return list(sums.values())


def shockwave() -> None:
    """32 GPUs, 120 jobs, rounds of 120 s (Zheng et al.: makespan 1.3 times shorter, fairness 2 times better)."""
    setting = Setting(cluster=Cluster.uniform(("gpu", 32, 4)))
    policies = ["shockwave", "themis", "gavel/finish_time_fairness:round_s=120,compat=none", "allox", "srtf"]
    policies.append("gavel/max_min_fairness:round_s=120,compat=none")
    rows = []
    for case in (Case(load=2.0), Case(load=3.0), HEAVY):
        found = figures(case.jobs(120, seed=5, gpus=32), policies, setting)
        rows += [
            [
                str(case),
                f"`{policy}`",
                hours(each.makespan_s),
                hours(each.avg_jct_s),
                f"{each.worst_finish_time_fairness or 0.0:.2f}",
                f"{each.jain_fairness or 0.0:.3f}",
            ]
            for policy, each in found.items()
        ]
    table("Shockwave", ["load", "policy", "makespan, h", "mean completion, h", "largest rho", "Jain"], rows)


SYSTEMS: dict[str, Callable[[], None]] = {
    "tiresias": tiresias,
    "themis": themis,
    "allox": allox,
    "gandiva-fair": gandiva_fair,
    "shockwave": shockwave,
}


def main(wanted: list[str]) -> None:
    unknown = [name for name in wanted if name not in SYSTEMS]
    if unknown:
        sys.exit(f"unknown system {unknown[0]!r}; choose from {', '.join(SYSTEMS)}")
    for name in wanted or SYSTEMS:
        print(f"{name}: {SYSTEMS[name].__doc__}", file=sys.stderr)
        SYSTEMS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
