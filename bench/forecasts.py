"""How long a forecast takes with many waiting jobs: the worker's own path, from the records to the ranges.

    python bench/forecasts.py --waiting 1000 --policy priority

A database gets the jobs of a short simulation: ended ones to learn from, running and waiting ones. Each line is one
question to the forecaster that the worker process runs: the first, which reads all that has ended, and later ones about
the last job of the queue. For comparison, in the same run: one forward run alone.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from rota.core.codec.values import encode_cluster, encode_job
from rota.core.engine.engine import Engine
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job, JobId, JobState, Role
from rota.core.state.state import State
from rota.drivers.simulator.run import MomentClock
from rota.drivers.simulator.study import Setting, scheduler
from rota.drivers.simulator.world import World
from rota.forecast.predict import Budget, Question, predict
from rota.live.loop.boot import Scheduling, restored
from rota.live.loop.record import Record, row_of
from rota.live.workers.forecast_worker import Forecaster
from rota.live.workers.long_queue import LongQueue
from rota.store import clock
from rota.store.database import open_database
from rota.store.records import Records, WriteBatch
from rota.traces.workload import Submission

ENDED = 500
PAUSE_S = 3600.0


def jobs(waiting: int, devices: int) -> list[Submission]:
    """Short jobs that will have ended, and long ones that fill the cluster and wait; they began two hours ago."""
    chance = random.Random(1)
    begun_s = clock.now_s() - 2 * PAUSE_S
    found = []
    for number in range(ENDED + waiting + devices):
        is_early = number < ENDED
        work_s = chance.uniform(5.0, 20.0) if is_early else chance.uniform(3600.0, 20000.0)
        job = Job(
            id=JobId(str(number)),
            name=f"kind{chance.randrange(20)}",
            user=f"user{chance.randrange(5)}",
            roles=(Role(count=chance.choice((1, 1, 2, 4))),),
            priority=chance.choice((0, 0, 1)),
            estimate_s=work_s * chance.uniform(0.8, 1.6) if chance.random() < 0.5 else None,
        )
        at_s = begun_s + (5.0 * number if is_early else PAUSE_S + 2.0 * (number - ENDED))
        found.append(Submission(job=job, submit_s=at_s, hidden_work=work_s))
    return found


def fill(records: Records, cluster: Cluster, policy: str, waiting: int) -> JobId:
    """Write the jobs of a simulation that has just seen its last arrival; return the last one that waits."""
    built, alloc, _ = scheduler(policy, Setting(cluster=cluster))
    engine = Engine(State(cluster), built, alloc)
    setting = Setting(cluster=cluster)
    world = World(cluster, setting.speed, setting.costs)
    submissions = jobs(waiting, cluster.devices)
    moments = MomentClock(engine, world, submissions, iter(()))
    while moments.arrived < len(submissions):
        moment = moments.next_moment()
        assert moment is not None
        decisions = engine.step(*moment)
        while decisions:
            decisions = engine.step(moment[0], world.carry_out(decisions, moment[0]))
    names = [str(node.id) for node in cluster.nodes]
    rows = [
        row_of(live, Record('{"run": "true"}', "owner"), engine.state, names, encode_job(live.job))
        for live in engine.state.jobs.values()
    ]
    records.write(WriteBatch(new_jobs=rows))()
    queue = [live.job.id for live in engine.state.jobs.values() if live.state is JobState.WAITING]
    print(f"{len(queue)} jobs wait under {policy} on {cluster.devices} devices")
    return queue[-1]


def main() -> None:
    """Fill a database, ask, and print how long it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, default=1000)
    parser.add_argument("--policy", default="priority")
    parser.add_argument("--devices", type=int, default=64)
    options = parser.parse_args()
    cluster = Cluster.uniform(("gpu", options.devices, 8))
    with tempfile.TemporaryDirectory(prefix="rota-forecasts-") as folder:
        database = f"sqlite:///{Path(folder) / 'rota.db'}"
        records = Records(open_database(database))
        last = fill(records, cluster, options.policy, options.waiting)
        question = {
            "database": database,
            "cluster": encode_cluster(cluster),
            "policy": options.policy,
            "placement": None,
            "tenancy": "none",
            "has_fixed_nodes": True,
            "job": last,
            "arrives": None,
        }
        forecaster = Forecaster()
        for name in ("first question", "second question", "third question"):
            begun_s, cpu_s = time.perf_counter(), time.process_time()
            found = forecaster.answer(question)
            print(
                f"{name}: {time.perf_counter() - begun_s:.2f} s (processor {time.process_time() - cpu_s:.2f} s here), "
                f"{found.basis.runs} runs, reason {found.reason}"
            )
        queue = LongQueue([last])
        was = restored(records, Scheduling(cluster=cluster, policy=options.policy, has_fixed_nodes=True), queue)
        engine = was.engine()
        assumed = forecaster.assumptions(was, queue)

        def copy() -> Engine:
            policy, alloc = was.build()
            return engine.fork(policy, allocator=alloc)

        cpu_s = time.process_time()
        predict(engine, copy, Question(job_id=last), assumed, budget=Budget(runs=1))
        print(f"one forward run: {time.process_time() - cpu_s:.2f} s of processor time")
        records.close()


if __name__ == "__main__":
    main()
