"""Decision time of every policy with 1,000 active jobs on 2,048 GPUs: the longest plan and the mean.

All jobs are submitted at once, with 1 to 16 GPUs each, twice as many as fit; the simulator then runs until the policy
has made the set number of plans. Once on GPUs of one type, once on three that differ in speed. Times are CPU seconds of
this process, so other work on the machine does not count; the solver libraries are loaded before.
Then, for the policies that share devices, whole runs: 900 jobs on 100 GPUs, no two with equal declared utilisation.
Run: `python bench/decisions.py [POLICY...]`.
"""

from __future__ import annotations

import contextlib
import importlib
import random
import sys
import time
from dataclasses import replace
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.engine.engine import Engine
from rota.core.engine.protocols import Capabilities, Changes, Policy
from rota.core.errors import RotaError
from rota.core.messages.reasons import Reason
from rota.core.model.cluster import Cluster
from rota.core.model.job import WHOLE, DeviceType, Job, JobId, Role
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.drivers.simulator.run import run
from rota.drivers.simulator.study import Setting, scheduler
from rota.drivers.simulator.world import World
from rota.perf.speed.model import Costs, SpeedModel
from rota.policies import names
from rota.traces.workload import Submission

PER_NODE, JOBS, PLANS = 8, 1000, 30
LIMIT_S = 1.0
CLUSTERS = {
    "one type": Cluster.uniform(("gpu", 2048, PER_NODE)),
    "three types": Cluster.uniform(("v100", 512, PER_NODE), ("p100", 768, PER_NODE), ("k80", 768, PER_NODE)),
}
SPEED = SpeedModel(type_speed={DeviceType("v100"): 1.0, DeviceType("p100"): 0.6, DeviceType("k80"): 0.25})
SINGLE = ("gavel/allox",)
"""Policies that support one-device jobs only."""

SHARING = ("gandiva", "antman", "kubeshare", "salus", "olympian", "lucid", "muri", "horus")
RUN_LIMIT_S = 20.0


class Enough(Exception):
    """Ends a run after the set number of plans."""


class Timed:
    """A policy whose plans are timed."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.plans_s: list[float] = []

    @property
    def capabilities(self) -> Capabilities:
        return self._policy.capabilities

    @property
    def wakeup_s(self) -> float:
        return self._policy.wakeup_s

    @property
    def memory(self) -> Any:
        return self._policy.memory

    def note(self, changes: Changes, now_s: float) -> None:
        self._policy.note(changes, now_s)

    def plan(self, draft: Draft) -> None:
        began = time.process_time()
        self._policy.plan(draft)
        self.plans_s.append(time.process_time() - began)
        if len(self.plans_s) >= PLANS:
            raise Enough

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        return self._policy.explain(waiting, draft)

    def adopt(self, state: State) -> None:
        self._policy.adopt(state)


def jobs(*, single: bool) -> list[Submission]:
    rng = random.Random(1)
    made = []
    for number in range(JOBS):
        gpus = 1 if single else rng.choice((1, 1, 2, 4, 4, 8, 8, 16))
        role = Role(count=max(gpus // PER_NODE, 1), device_milli=min(gpus, PER_NODE) * WHOLE)
        job = Job(id=JobId(f"j{number}"), roles=(role,), user=f"u{number % 20}", work=rng.uniform(600.0, 36000.0))
        made.append(Submission(job=job, submit_s=0.0))
    return made


def measure(policy: str, cluster: Cluster) -> tuple[float, float]:
    """Return the longest plan and the mean, in seconds."""
    built, alloc, _ = scheduler(policy, Setting(cluster=cluster, speed=SPEED))
    timed = Timed(built)
    engine = Engine(State(cluster), timed, alloc)
    with contextlib.suppress(Enough):
        run(engine, World(cluster, SPEED, Costs()), jobs(single=policy in SINGLE))
    return max(timed.plans_s), sum(timed.plans_s) / len(timed.plans_s)


def sharing_jobs() -> list[Submission]:
    """Return jobs at twice the capacity, half of them opportunistic; every third requests a fraction of a device."""
    rng = random.Random(2)
    made = []
    for number in range(900):
        device_milli = rng.randrange(100, 900, 50) if number % 3 == 0 else rng.choice((1, 1, 2, 4)) * WHOLE
        labels = (("utilization", f"{rng.uniform(0.1, 0.9):.4f}"), ("stages", rng.choice(("3/1/1/1", "1/1/3/1"))))
        asked = Job(
            id=JobId(f"j{number}"),
            roles=(Role(device_milli=device_milli),),
            priority=-(number % 2),
            work=rng.uniform(300.0, 7200.0),
            labels=labels,
        )
        made.append(Submission(job=asked, submit_s=0.0))
    span_s = sum((each.job.work or 0.0) * each.job.gpus for each in made) / 200
    return [replace(each, submit_s=number / len(made) * span_s) for number, each in enumerate(made)]


def whole_runs(wanted: list[str]) -> None:
    """Print the CPU seconds of a simulation under each policy that shares devices."""
    print("\n| policy | whole run |\n|---|---:|")
    cluster, speed, submissions = Cluster.uniform(("gpu", 100, 4)), SpeedModel(device_neighbour=0.9), sharing_jobs()
    slow = []
    for policy in [name for name in SHARING if name in wanted or not wanted]:
        built, alloc, _ = scheduler(policy, Setting(cluster=cluster, speed=speed))
        began = time.process_time()
        run(Engine(State(cluster), built, alloc), World(cluster, speed, Costs()), submissions)
        took_s = time.process_time() - began
        print(f"| `{policy}` | {took_s:.1f} s |", flush=True)
        if took_s > RUN_LIMIT_S:
            slow.append(policy)
    print(f"\nover {RUN_LIMIT_S:g} s: {', '.join(slow) or 'none'}")


def main(wanted: list[str]) -> None:
    titles = [f"{name}, {what}" for name in CLUSTERS for what in ("longest", "mean")]
    print(f"| policy | {' | '.join(titles)} |\n|---|{'---:|' * len(titles)}")
    for library in ("highspy", "scipy.optimize"):
        importlib.import_module(library)
    slow = []
    for policy in wanted or names():
        try:
            found = [measure(policy, cluster) for cluster in CLUSTERS.values()]
        except RotaError as err:
            print(f"| `{policy}` | {err} |")
            continue
        print(f"| `{policy}` | {' | '.join(f'{each:.3f} s' for both in found for each in both)} |", flush=True)
        if max(longest for longest, _ in found) > LIMIT_S:
            slow.append(policy)
    print(f"\nover {LIMIT_S:g} s: {', '.join(slow) or 'none'}")
    whole_runs(wanted)


if __name__ == "__main__":
    main(sys.argv[1:])
