"""One decision of each policy that chooses sizes, on 2,048 devices with 1,000 active jobs.

First the plan when all jobs have just arrived, then the plan after one more arrival (for policies that plan in rounds,
at the end of the next round). Times are CPU seconds of one step of the engine, decisions included.
"""

from __future__ import annotations

import time

from rota.core.engine.engine import Engine
from rota.core.messages.events import Event, TimerFired
from rota.core.model.cluster import Cluster
from rota.core.state.state import State
from rota.drivers.simulator.study import Setting, scheduler
from rota.drivers.simulator.world import World
from rota.policies import find_policy
from rota.traces.generators import generate

DEVICES, PER_NODE, JOBS = 2048, 8, 1000
POLICIES = ("afs-l", "afs-p", "elasticflow", "optimus", "pollux", "sia", "ursa", "perotin")
ROUNDS = 3


def steps(policy: str) -> tuple[float, float]:
    """Return the CPU seconds of the first plan and of the longest of a few later ones."""
    setting = Setting(cluster=Cluster.uniform(("gpu", DEVICES, PER_NODE)))
    built, alloc, _ = scheduler(policy, setting)
    engine = Engine(State(setting.cluster), built, alloc)
    world = World(setting.cluster, setting.speed, setting.costs)
    jobs = generate("gavel-like", jobs=JOBS + ROUNDS, seed=1, gpus=DEVICES, elastic=1.0, deadlines=0.5).submissions
    for submission in jobs:
        world.expect(submission)

    def step(now_s: float, events: list[Event]) -> float:
        longest = 0.0
        while events:
            began = time.process_time()
            decisions = engine.step(now_s, events)
            longest = max(longest, time.process_time() - began)
            events = world.carry_out(decisions, now_s)
        return longest

    first = step(0.0, [world.arrival(submission.job) for submission in jobs[:JOBS]])
    round_s = getattr(find_policy(policy)[0].read(""), "round_s", 60.0)
    later = 0.0
    for number in range(ROUNDS):
        now_s = (number + 1) * round_s
        later = max(later, step(now_s, [*world.pop_due(now_s), world.arrival(jobs[JOBS + number].job), TimerFired()]))
    return first, later


def main() -> None:
    print(f"{'policy':14} {'first plan':>12} {'later':>12}   ({DEVICES} devices, {JOBS} jobs, CPU time)")
    for policy in POLICIES:
        first, later = steps(policy)
        print(f"{policy:14} {first * 1000:9.0f} ms {later * 1000:9.0f} ms")


if __name__ == "__main__":
    main()
