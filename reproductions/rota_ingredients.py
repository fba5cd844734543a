"""What each ingredient of Rota's own policy gains: progress, declared lengths, elastic jobs, device types, adversaries.

Run: `ROTA_DATA=... python reproductions/rota_ingredients.py [SECTION...]`.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rota_policy import GENERATED, GPUS, PER_NODE, RESTART_S, SEEDS, cases, limited  # type: ignore[import-not-found]  # beside this script

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job, JobId, Level, Role
from rota.core.state.history import History
from rota.drivers.simulator.study import Setting, simulate
from rota.files.cluster import read_cluster
from rota.perf.profiles.profile_files import read_profiles
from rota.perf.speed.model import Costs, SpeedModel
from rota.perf.training.reports import OVERSTATES, REPORTS
from rota.report.metrics import Metrics, measure
from rota.traces.formats import read_trace
from rota.traces.generators import generate
from rota.traces.workload import Submission, Workload

ELASTIC = ("rota", "afs-p", "pollux", "optimus", "sia", "rota:elastic=false")
TYPED = ("rota", "gavel/max_min_fairness_perf", "gavel/max_min_fairness_perf:compat=none", "rota:types=false")
SHARING = ("rota", "rota:sharing=true", "lucid", "srsf")
ONE_TYPE = {"A": ("max_min_fairness.trace", "v100=40/4"), "D": ("gen_single_120.trace", "v100=16/4")}
SPREAD = (1.0, 0.9, 0.8, 0.6)
"""Speeds of a gang on more nodes than one."""
PRICES = ("rota", "rota:spread=0.1", "rota:spread=0.4")
USERS = ("ann", "bob")
USERS_S = 36 * 3600.0
SIZE_S = 1200.0
"""The median run time of the jobs of two users."""
DEMAND = 12 / SIZE_S
"""Jobs per second and user of one device and the median run time."""
GAVEL_SETS = {
    "A": ("max_min_fairness.trace", "v100=8/4,p100=16/4,k80=24/4"),
    "D": ("gen_single_120.trace", "v100=12/1,p100=12/1,k80=12/1"),
}


def figures(workload: Workload, policy: str, setting: Setting) -> Metrics:
    return measure(limited(workload, policy, setting).history)


def cell(workload: Workload, policy: str, setting: Setting) -> str:
    """Return the average completion in hours and the worst FTF; a dash where the policy refuses or takes too long."""
    try:
        found = figures(workload, policy, setting)
    except (RotaError, TimeoutError) as error:
        print(f"{policy}: {error}", file=sys.stderr, flush=True)
        return "-"
    return f"{(found.avg_jct_s or 0.0) / 3600:.2f} ({found.worst_finish_time_fairness:.2f})"


def head(*columns: str) -> None:
    print(f"| {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) - 1)}", flush=True)


def changed(workload: Workload, change: Callable[[Job], Job]) -> Workload:
    """Return the workload with every job changed."""
    submissions = tuple(replace(each, job=change(each.job)) for each in workload.submissions)
    return replace(workload, submissions=submissions)


def labelled(job: Job, label: str, value: float) -> Job:
    return replace(job, labels=(*job.labels, (label, f"{value:g}")))


def reporting(job: Job) -> Job:
    """Return a job that reports its progress 20 times."""
    return labelled(job, REPORTS, 20.0)


def setting_of(cluster: Cluster, speed: SpeedModel | None = None, seed: int = 0) -> Setting:
    return Setting(cluster=cluster, costs=Costs(restart_s=RESTART_S), speed=speed or SpeedModel(), seed=seed)


def progress() -> None:
    """Completion time over `srsf` where every job reports its progress 20 times, or none does."""
    head("workload", "without reports", "with reports", "worst FTF with reports")
    plain, told = [], []
    for case in cases():
        workload = case.workload()
        setting = setting_of(case.cluster(workload))
        best = figures(workload, "srsf", setting).avg_jct_s or 1.0
        plain.append((figures(workload, "rota", setting).avg_jct_s or 0.0) / best)
        found = figures(changed(workload, reporting), "rota", setting)
        told.append((found.avg_jct_s or 0.0) / best)
        print(
            f"| {case.name} | {plain[-1]:.3f} | {told[-1]:.3f} | {found.worst_finish_time_fairness:.2f} |", flush=True
        )
    for name, ratios in (("without reports", plain), ("with reports", told)):
        print(f"{name}: mean {statistics.mean(ratios):.3f}, worst {max(ratios):.3f}")


def declared() -> None:
    """Completion time over that without declared lengths, by how wrong the declared lengths are."""
    kinds: dict[str, Callable[[random.Random], float]] = {
        "exact": lambda rng: 1.0,
        "all 10 times too long": lambda rng: 10.0,
        "within a factor of 2": lambda rng: 2 ** rng.uniform(-1, 1),
        "off by up to 10 times": lambda rng: 10 ** rng.uniform(-1, 1),
        "10 times too long or too short": lambda rng: rng.choice((0.1, 10.0)),
    }
    head("declared lengths", "mean", "worst")
    for name, error in kinds.items():
        ratios = []
        for case in cases()[: len(GENERATED) * len(SEEDS)]:
            workload = case.workload()
            setting = setting_of(case.cluster(workload))
            stated = _stating(workload, error)
            without = figures(stated, "rota:declared=false", setting).avg_jct_s or 1.0
            ratios.append((figures(stated, "rota", setting).avg_jct_s or 0.0) / without)
        print(f"| {name} | {statistics.mean(ratios):.3f} | {max(ratios):.3f} |", flush=True)


def _stating(workload: Workload, error: Callable[[random.Random], float]) -> Workload:
    """Return the workload with lengths declared by every job, wrong by a random factor."""
    rng = random.Random(7)
    return changed(workload, lambda job: replace(job, estimate_s=(job.work or 0.0) * error(rng)))


def elastic() -> None:
    """Six traces of elastic jobs on 64 devices: average completion in hours, worst FTF."""
    head("trace", *(f"`{policy}`" for policy in ELASTIC))
    for kind, jobs in (("philly-like", 200), ("gavel-like", 160)):
        for seed in (201, 202, 203):
            workload = generate(kind, jobs=jobs, seed=seed, gpus=GPUS, load=1.5, elastic=1.0)
            setting = setting_of(Cluster.uniform(("gpu", GPUS, PER_NODE)), seed=seed)
            cells = [cell(workload, policy, setting) for policy in ELASTIC]
            print(f"| {kind} {seed} | {' | '.join(cells)} |", flush=True)


def types() -> None:
    """Gavel's traces on three device types: average completion in hours, worst FTF."""
    folder = Path(os.environ["ROTA_DATA"]) / "gavel"
    speed = SpeedModel(profiles=read_profiles(folder / "simulation_throughputs.json"))
    head("set", *(f"`{policy}`" for policy in TYPED))
    for name, (trace, cluster) in GAVEL_SETS.items():
        workload = read_trace(folder / trace, format="gavel")
        setting = setting_of(read_cluster(cluster), speed)
        cells = [cell(workload, policy, setting) for policy in TYPED]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def sharing() -> None:
    """Gavel's traces on one device type, with measured speeds of pairs: average completion in hours, worst FTF."""
    folder = Path(os.environ["ROTA_DATA"]) / "gavel"
    speed = SpeedModel(profiles=read_profiles(folder / "simulation_throughputs.json"))
    head("set", *(f"`{policy}`" for policy in SHARING))
    for name, (trace, cluster) in ONE_TYPE.items():
        workload = read_trace(folder / trace, format="gavel")
        cells = [cell(workload, policy, setting_of(read_cluster(cluster), speed)) for policy in SHARING]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def spread() -> None:
    """Completion time over that without a price of spreading, and the worst FTF, on the nine generated workloads."""
    head("speed on several nodes", *(f"`{policy}`" for policy in PRICES))
    for factor in SPREAD:
        ratios: dict[str, list[float]] = {policy: [] for policy in PRICES}
        unfair: dict[str, list[float]] = {policy: [] for policy in PRICES}
        for case in cases()[: len(GENERATED) * len(SEEDS)]:
            workload = case.workload()
            setting = setting_of(case.cluster(workload), SpeedModel(spread={Level.RACK: factor}))
            found = {policy: figures(workload, policy, setting) for policy in PRICES}
            for policy in PRICES:
                ratios[policy].append((found[policy].avg_jct_s or 0.0) / (found[PRICES[0]].avg_jct_s or 1.0))
                unfair[policy].append(found[policy].worst_finish_time_fairness or 0.0)
        cells = [f"{statistics.mean(ratios[each]):.3f} ({max(unfair[each]):.2f})" for each in PRICES]
        print(f"| {factor:g} | {' | '.join(cells)} |", flush=True)


def mean_jct_s(history: History, wanted: Iterable[str]) -> float:
    """Return the mean completion time of some jobs, by the moment at which the last part of each ended."""
    chosen = set(wanted)
    spans: dict[str, tuple[float, float]] = {}
    for row in history.jobs:
        owner = str(row.id).partition("/")[0]
        if owner in chosen and row.end_s is not None:
            first, last = spans.get(owner, (row.submit_s, row.end_s))
            spans[owner] = (min(first, row.submit_s), max(last, row.end_s))
    return statistics.mean(last - first for first, last in spans.values())


def adversaries() -> None:
    """What a tenth of the jobs gain by an attack, and what it costs the others: completion time over the honest run."""
    head("attack", "policy", "attackers", "others")
    for name, attack in ATTACKS.items():
        for policy in ("rota", "tiresias"):
            mine, theirs = [], []
            for case in (cases()[0], cases()[3]):
                workload = changed(case.workload(), reporting)
                setting = setting_of(case.cluster(workload))
                rng = random.Random(11)
                needed = {one for each in workload.submissions for one in each.job.depends_on}
                ids = [
                    str(each.job.id)
                    for each in workload.submissions
                    if not each.job.depends_on and each.job.id not in needed
                ]
                bad = set(rng.sample(ids, len(ids) // 10))
                honest = simulate(workload, policy, setting).history
                attacked = simulate(attack(workload, bad), policy, setting).history
                good = [str(each.job.id) for each in workload.submissions if str(each.job.id) not in bad]
                mine.append(mean_jct_s(attacked, bad) / mean_jct_s(honest, bad))
                theirs.append(mean_jct_s(attacked, good) / mean_jct_s(honest, good))
            print(f"| {name} | `{policy}` | {statistics.mean(mine):.2f} | {statistics.mean(theirs):.2f} |", flush=True)


def _lying(workload: Workload, bad: set[str]) -> Workload:
    return changed(workload, lambda job: labelled(job, OVERSTATES, 1000.0) if str(job.id) in bad else job)


def _split(workload: Workload, bad: set[str]) -> Workload:
    """Split each attacker's job into 50 of a 50th of its length, all submitted at once."""
    submissions: list[Submission] = []
    for each in workload.submissions:
        if str(each.job.id) not in bad:
            submissions.append(each)
            continue
        part = (each.job.work or 0.0) / 50
        submissions += [
            replace(each, job=replace(each.job, id=JobId(f"{each.job.id}/{number}"), work=part)) for number in range(50)
        ]
    return replace(workload, submissions=tuple(submissions))


def _burst(workload: Workload, bad: set[str]) -> Workload:
    """Submit all jobs of the attackers at the moment of the first."""
    first_s = min(each.submit_s for each in workload.submissions if str(each.job.id) in bad)
    moved = [replace(each, submit_s=first_s) if str(each.job.id) in bad else each for each in workload.submissions]
    return replace(workload, submissions=tuple(sorted(moved, key=lambda each: each.submit_s)))


ATTACKS: dict[str, Callable[[Workload, set[str]], Workload]] = {
    "report 1000 times the progress": _lying,
    "split a job in 50": _split,
    "submit everything at once": _burst,
}


def ablation() -> None:
    """Completion time over `srsf` and worst FTF without each ingredient, over the twelve workloads."""
    variants = (
        "rota",
        "rota:learned=false",
        "rota:margin=0",
        "rota:users=false",
        "rota:half_life_s=0",
        "rota:lenient=4",
        "rota:base_gpu_s=600",
        "rota:growth=4",
        "rota:growth=1.5",
    )
    head("variant", "JCT over `srsf`: mean", "worst", "worst FTF")
    for policy in variants:
        ratios, unfair = [], []
        for case in cases():
            workload = case.workload()
            setting = setting_of(case.cluster(workload))
            best = figures(workload, "srsf", setting).avg_jct_s or 1.0
            found = figures(workload, policy, setting)
            ratios.append((found.avg_jct_s or 0.0) / best)
            unfair.append(found.worst_finish_time_fairness or 0.0)
        print(f"| `{policy}` | {statistics.mean(ratios):.3f} | {max(ratios):.3f} | {max(unfair):.2f} |", flush=True)


def demand(parts: int, seed: int) -> Workload:
    """Two users of a tenant ask for the same, three times what 8 devices can do; `ann` in so many parts."""
    submissions = []
    for user, split in (("ann", parts), ("bob", 1)):
        rng, now_s, number = random.Random(seed), 0.0, 0
        while (now_s := now_s + rng.expovariate(DEMAND / (1.5 * math.exp(0.5)))) <= USERS_S:
            role, work = Role(count=rng.choice((1, 2))), SIZE_S * rng.lognormvariate(0.0, 1.0)
            for part in range(split):
                job = Job(id=JobId(f"{user}-{number}/{part}"), roles=(role,), work=work / split, user=user)
                submissions.append(Submission(job=job, submit_s=now_s))
            number += 1
    ordered = tuple(sorted(submissions, key=lambda each: each.submit_s))
    return Workload(submissions=ordered, source="two users", format="rota")


def users() -> None:
    """What a user gains that splits its jobs in ten, and what another loses: part of the devices, completion times."""
    head("policy", "part of the splitting user", "its completion", "that of the other")
    setting = replace(setting_of(Cluster.uniform(("gpu", 8, 4))), costs=Costs(restart_s=5.0))
    for policy in ("rota:half_life_s=0", "rota", "rota:lenient=4", "rota:lenient=1"):
        found: list[tuple[float, ...]] = []
        for seed in range(4):
            whole, split = (simulate(demand(parts, seed), policy, setting).history for parts in (1, 10))
            late = [row for row in split.jobs if row.end_s is not None and USERS_S / 2 < row.end_s <= USERS_S]
            part = math.fsum(row.gpu_s for row in late if row.user == "ann") / math.fsum(row.gpu_s for row in late)
            ratios = [mean_jct_s(split, jobs) / mean_jct_s(whole, jobs) for jobs in map(partial(_of, whole), USERS)]
            found.append((part, *ratios))
        cells = [f"{statistics.mean(column):.2f}" for column in zip(*found, strict=True)]
        print(f"| `{policy}` | {' | '.join(cells)} |", flush=True)


def _of(history: History, user: str) -> list[str]:
    """Return the jobs of a user, without the parts."""
    return [str(row.id).partition("/")[0] for row in history.jobs if row.user == user]


SECTIONS: dict[str, Callable[[], None]] = {
    "progress": progress,
    "declared": declared,
    "elastic": elastic,
    "types": types,
    "sharing": sharing,
    "spread": spread,
    "adversaries": adversaries,
    "users": users,
    "ablation": ablation,
}
BY_DEFAULT = ("progress", "declared", "elastic", "types", "sharing", "spread", "adversaries", "users")


def main(wanted: Sequence[str]) -> None:
    unknown = [name for name in wanted if name not in SECTIONS]
    if unknown:
        sys.exit(f"unknown section {unknown[0]!r}; choose from {', '.join(SECTIONS)}")
    for name in wanted or BY_DEFAULT:
        print(f"\n{name}: {SECTIONS[name].__doc__}\n", flush=True)
        SECTIONS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
