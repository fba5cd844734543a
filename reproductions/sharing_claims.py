"""Published claims about policies that share devices, on set-ups like those of the papers: one table for each claim.

Run: `ROTA_DATA=... python reproductions/sharing_claims.py [--resume] [CLAIM...]`. Finished tables are kept under
`build/reproductions/sharing_claims/`; `--resume` reuses them.
Prints the tables of docs/reference/reproductions.md: means over seeds, with minimum and maximum in brackets.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from rota.core.model.cluster import Cluster
from rota.core.model.job import OPPORTUNISTIC, WHOLE, DeviceType, Job, JobId, Role
from rota.drivers.simulator.study import Setting, simulate
from rota.files.cluster import read_cluster
from rota.perf.profiles.profile_files import read_profiles
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import Costs, SpeedModel
from rota.report.metrics import Metrics, measure
from rota.traces.formats import read_trace
from rota.traces.workload import Submission, Workload

V100 = DeviceType("v100")
COSTS = Costs(restart_s=30.0, resume_s=0.5, move_s=10.0)
TURNS = 0.98
"""The speed left by time slicing: Olympian and Gandiva report a loss of at most 2 %."""
SEEDS = range(2)


@cache
def profiles() -> Profiles:
    """Return Gavel's measured speeds, alone and in pairs."""
    return read_profiles(Path(os.environ["ROTA_DATA"]) / "gavel" / "simulation_throughputs.json")


def workload(submissions: Sequence[Submission]) -> Workload:
    """Return a workload of generated jobs."""
    return Workload(submissions=tuple(submissions), source="generated", format="rota")


def with_models(made: Workload, seed: int, most_busy: float = 1.0) -> Workload:
    """Return the same jobs with Gavel's models, sampled uniformly from those with a speed at the job's size.

    Run times stay the same. Models that keep a device busy for a larger fraction than `most_busy` are left out.
    """
    rng, speed = random.Random(seed), SpeedModel(profiles=profiles())
    by_size: dict[int, list[str]] = {}
    for kind, model, devices in profiles().steps_per_s:
        probe = Job(id=JobId("probe"), roles=(Role(count=devices),), model=model)
        if kind == V100 and speed.on_type(probe, V100) > 0 and speed.use(probe, V100) <= most_busy:
            by_size.setdefault(devices, []).append(model)
    changed = []
    for each in made.submissions:
        devices = each.job.gpu_milli // WHOLE
        model = rng.choice(sorted(by_size[devices]))
        rate = profiles().rate(V100, model, devices) or 1.0
        changed.append(replace(each, job=replace(each.job, model=model, work=(each.job.work or 0.0) * rate)))
    return replace(made, submissions=tuple(changed))


def contended(seed: int, jobs: int, gpus: int, load: float, largest: int, longest_s: float = 86400.0) -> Workload:
    """Return jobs of 40 users, most with one device, half of them under half an hour, at `load` times the capacity.

    Lengths vary less within a user than between users. None is longer than `longest_s`, so that the last few jobs do
    not determine the makespan.
    """
    rng = random.Random(seed)
    usual_s = [rng.lognormvariate(7.5, 1.2) for _ in range(40)]
    sizes = [size for size in (1, 2, 4, 8) if size <= largest]
    made = []
    for number in range(jobs):
        user = rng.randrange(len(usual_s))
        size = rng.choices(sizes, weights=(70, 10, 12, 8)[: len(sizes)])[0]
        work_s = min(max(usual_s[user] * rng.lognormvariate(0.0, 1.0), 60.0), longest_s)
        roles = (Role(count=size),)
        made.append(Job(id=JobId(str(number)), roles=roles, work=work_s, user=f"user-{user}", name=f"job-{number}"))
    span_s = sum((job.work or 0.0) * job.gpus for job in made) / (load * gpus)
    times_s = sorted(rng.uniform(0.0, span_s) for _ in made)
    return workload([Submission(job=job, submit_s=at_s) for job, at_s in zip(made, times_s, strict=True)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a table: a policy with its jobs and speeds, and a name if the policy's options are not enough."""

    policy: str
    made: Callable[[int], Workload]
    speed: SpeedModel
    name: str = ""


def table(title: str, cluster: str | Cluster, rows: Sequence[Row], seeds: Sequence[int], costs: Costs = COSTS) -> str:
    """Return a table that compares every row with the first."""
    lines = [
        f"### {title}\n",
        "| policy | avg JCT | vs. first row | makespan | vs. first row | GPU busy | vs. first row |",
        "|---|---|---|---|---|---|---|",
    ]
    where = read_cluster(cluster) if isinstance(cluster, str) else cluster
    before: list[Metrics] = []
    for row in rows:
        now = [
            measure(simulate(row.made(seed), row.policy, Setting(cluster=where, speed=row.speed, costs=costs)).history)
            for seed in seeds
        ]
        before = before or now
        cells = [
            compared([each.avg_jct_s or 0.0 for each in now], [each.avg_jct_s or 0.0 for each in before], hours),
            compared([each.makespan_s for each in now], [each.makespan_s for each in before], hours),
            compared([each.gpu_busy or 0.0 for each in now], [each.gpu_busy or 0.0 for each in before], percent),
        ]
        lines.append(f"| {row.name or f'`{row.policy}`'} | {' | '.join(cells)} |")
        print(f"  {lines[-1]}", file=sys.stderr, flush=True)
    return "\n".join(lines) + "\n"


def compared(now: Sequence[float], before: Sequence[float], show: Callable[[float], str]) -> str:
    """Return the mean, and the range over seeds of the difference from the first row."""
    if not any(now):
        return "- | -"
    changes = sorted(one / other - 1.0 for one, other in zip(now, before, strict=True))
    mean = sum(changes) / len(changes)
    spread = f" ({changes[0]:+.0%} to {changes[-1]:+.0%})" if len(changes) > 1 and changes[0] != changes[-1] else ""
    return f"{show(sum(now) / len(now))} | {mean:+.0%}{spread}"


def hours(value: float) -> str:
    """Return seconds as hours."""
    return f"{value / 3600:.2f} h"


def percent(value: float) -> str:
    """Return a fraction as a percentage."""
    return f"{value:.1%}"


def gandiva() -> str:
    """100 devices, more jobs than devices for most of the time; baseline first in, first out, one job per device."""
    return _gandiva("gandiva", jobs=450, largest=4)


def gandiva_single() -> str:
    """The same with one-device jobs only."""
    return _gandiva("gandiva_single", jobs=600, largest=1)


def _gandiva(name: str, *, jobs: int, largest: int) -> str:
    speed = SpeedModel(profiles=profiles(), turns=TURNS)

    def made(seed: int) -> Workload:
        return with_models(contended(seed, jobs=jobs, gpus=100, load=2.0, largest=largest, longest_s=14400.0), seed)

    policies = ("fifo:backfill=true", "gandiva", "gandiva:pack=false")
    rows = [Row(policy=policy, made=made, speed=speed) for policy in policies]
    return table(name, "v100=100/4", rows, SEEDS)


def antman() -> str:
    """64 devices, every second job opportunistic, of models that leave a quarter idle; baseline without sharing."""

    def made(seed: int) -> Workload:
        jobs = with_models(contended(seed, jobs=400, gpus=64, load=2.0, largest=1, longest_s=14400.0), seed, 0.75)
        changed = [
            replace(each, job=replace(each.job, priority=OPPORTUNISTIC)) if at % 2 else each
            for at, each in enumerate(jobs.submissions)
        ]
        return replace(jobs, submissions=tuple(changed))

    plain, filled = (SpeedModel(profiles=profiles(), turns=TURNS, gaps=gaps) for gaps in (0.0, 1.0))
    rows = [
        Row(policy="priority", made=made, speed=plain),
        Row(policy="antman", made=made, speed=plain),
        Row(policy="antman", made=made, speed=filled, name="`antman`, `neighbours: {gaps: 1}`"),
    ]
    return table("antman", "v100=64/4", rows, SEEDS)


def kubeshare() -> str:
    """32 devices in nodes of 4; pods that request 0.3 of a device on average, all submitted at the start."""

    def pods(seed: int, *, whole: bool) -> Workload:
        rng = random.Random(seed)
        made = []
        for number in range(1000):
            milli = min(max(round(rng.gauss(0.3, 0.1) * 20), 1), 20) * WHOLE // 20
            role = Role(device_milli=WHOLE if whole else milli)
            asked = Job(id=JobId(str(number)), roles=(role,), work=rng.uniform(300.0, 900.0))
            made.append(Submission(job=asked, submit_s=0.0))
        return workload(made)

    speed = SpeedModel(turns=TURNS)
    rows = [
        Row(policy="fifo", made=lambda seed: pods(seed, whole=True), speed=speed, name="whole devices, `fifo`"),
        Row(policy="kubeshare", made=lambda seed: pods(seed, whole=False), speed=speed, name="fractions, `kubeshare`"),
    ]
    return table("kubeshare", "gpu=32/4", rows, SEEDS)


def salus() -> str:
    """One device of 16 GiB, 100 jobs as long as Philly's one-device jobs; baseline one job at a time."""
    gib = 1 << 30
    philly = read_trace(Path(os.environ["ROTA_DATA"]) / "philly" / "philly.csv", format="philly")
    ran_s = [each.job.work for each in philly.submissions if each.job.gpus == 1 and 60 <= (each.job.work or 0) < 86400]

    def made(seed: int) -> Workload:
        rng = random.Random(seed)
        lengths_s = [rng.choice(ran_s) or 0.0 for _ in range(100)]
        mean_s = sum(lengths_s) / len(lengths_s)
        at_s, jobs = 0.0, []
        for number, length_s in enumerate(lengths_s):
            role = Role(device_memory_bytes=rng.randint(4, 12) * gib)
            labels = (("persistent", f"{rng.uniform(0.05, 0.25):.2f}"),)
            jobs.append(
                Submission(job=Job(id=JobId(str(number)), roles=(role,), work=length_s, labels=labels), submit_s=at_s)
            )
            at_s += rng.expovariate(1.0 / mean_s)
        return workload(jobs)

    def without_lanes(seed: int) -> Workload:
        plain = [replace(each, job=replace(each.job, labels=())) for each in made(seed).submissions]
        return workload(plain)

    (node,) = read_cluster("gpu=1/1").nodes
    cluster = Cluster(nodes=(replace(node, device_memory_bytes=16 * gib),))
    speed = SpeedModel(turns=TURNS)
    rows = [
        Row(policy="fifo", made=made, speed=speed),
        Row(policy="salus:most=100", made=without_lanes, speed=speed, name="`salus:most=100`, all memory persistent"),
        Row(policy="salus:most=100", made=made, speed=speed, name="`salus:most=100`, lanes"),
        Row(policy="salus:most=100,order=fair", made=made, speed=speed, name="`salus:most=100,order=fair`, lanes"),
        Row(policy="srtf", made=made, speed=speed, name="`srtf`, by restarts"),
    ]
    return table("salus", cluster, rows, range(5))


def lucid() -> str:
    """64 devices, jobs with Gavel's models; a restart costs what Tiresias's do on average, 62 s."""
    speed = SpeedModel(profiles=profiles(), turns=TURNS)

    def made(seed: int) -> Workload:
        return with_models(contended(seed, jobs=600, gpus=64, load=2.0, largest=8), seed)

    policies = ("tiresias", "lucid", "lucid:durations=known", "srsf", "fifo:backfill=true")
    rows = [Row(policy=policy, made=made, speed=speed) for policy in policies]
    return table("lucid", "v100=64/8", rows, SEEDS, replace(COSTS, restart_s=62.0))


STAGES = ("70/10/10/10", "10/70/10/10", "10/10/70/10", "10/10/10/70")
"""Four kinds of jobs, each limited by a different resource."""


def muri() -> str:
    """64 devices in nodes of 8, jobs that wait for four resources, interleaved by their stages."""
    speed = SpeedModel(interleaved=True)

    def made(seed: int) -> Workload:
        rng = random.Random(seed)
        jobs = contended(seed, jobs=1000, gpus=64, load=3.0, largest=8)
        changed = [
            replace(each, job=replace(each.job, model=None, labels=(("stages", rng.choice(STAGES)),)))
            for each in jobs.submissions
        ]
        return workload(changed)

    policies = ("srsf", "muri", "muri:most=2", "tiresias", "srtf")
    rows = [Row(policy=policy, made=made, speed=speed) for policy in policies]
    return table("muri", "gpu=64/8", rows, SEEDS)


CLAIMS = {each.__name__: each for each in (gandiva, gandiva_single, antman, kubeshare, salus, lucid, muri)}
KEPT = Path(__file__).parents[1] / "build" / "reproductions" / "sharing_claims"


def measured(name: str, *, resume: bool) -> str:
    """Return a claim's table, from an earlier run if `resume` is set."""
    kept = KEPT / f"{name}.txt"
    if resume and kept.exists():
        print("  measured before", file=sys.stderr)
        return kept.read_text(encoding="utf-8")
    found = CLAIMS[name]()
    KEPT.mkdir(parents=True, exist_ok=True)
    kept.write_text(found, encoding="utf-8")
    return found


def main() -> None:
    """Measure the named claims, or all."""
    resume = "--resume" in sys.argv[1:]
    names = [name for name in sys.argv[1:] if name != "--resume"] or list(CLAIMS)
    unknown = [name for name in names if name not in CLAIMS]
    if unknown:
        sys.exit(f"unknown claim {unknown[0]!r}; choose from {', '.join(CLAIMS)}")
    if "ROTA_DATA" not in os.environ:
        sys.exit("ROTA_DATA is not set; set it to the folder of the published data")
    for number, name in enumerate(names, start=1):
        print(f"{number} of {len(names)}: {name}", file=sys.stderr, flush=True)
        print(f"\n{measured(name, resume=resume)}", flush=True)


if __name__ == "__main__":
    main()
