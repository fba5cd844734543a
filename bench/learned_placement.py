"""Time of the learned placement for a batch of new jobs on a large cluster.

    .venv/bin/python bench/learned_placement.py

20 new jobs of 1 to 4 workers on 1,000 servers of which two thirds are busy; the minimum of five batches, in CPU time of
one thread.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import statistics
import time

from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.learn.workloads import WorkloadShape, cluster_of, workload
from rota.mechanisms.learned.actor import Actor
from rota.mechanisms.learned.heuristics import Scored, fullest, least_loaded
from rota.mechanisms.learned.interval_placement import Chooser
from rota.mechanisms.learned.server_arrays import ServerArrays
from rota.policies.published.learned.harmony import learned

SERVERS = 1000
BATCH = 20
BATCHES = 5
PROMISED_MS = 100.0


def main() -> None:
    ways: dict[str, Chooser] = {
        "harmony": Actor(learned("").network),
        "load-balance": Scored(least_loaded),
        "pack": Scored(fullest),
    }
    jobs = [submission.job for submission in workload(WorkloadShape(servers=SERVERS, jobs_per_server=2), 1).submissions]
    for name, chooser in ways.items():
        arrays = ServerArrays(Inventory(cluster_of(SERVERS)), chooser.kinds)
        for number, job in enumerate(jobs[: SERVERS * 5 // 4]):
            chosen = Scored(least_loaded).choose(arrays, LiveJob(job, number, 0.0, 1.0), 0.0)
            if chosen is not None:
                arrays.add(job, chosen)
        took = []
        for batch in range(BATCHES):
            new = jobs[-BATCH * (batch + 1) :][:BATCH]
            begun = time.process_time()
            for number, job in enumerate(new):
                chosen = chooser.choose(arrays, LiveJob(job, number, 0.0, 1.0), 0.0)
                if chosen is not None:
                    arrays.add(job, chosen)
            took.append((time.process_time() - begun) * 1000)
        tasks = sum(job.tasks for job in jobs[-BATCH:])
        said = f" (promised: {PROMISED_MS:.0f})" if name == "harmony" else ""
        print(
            f"{name}: {min(took):.1f} ms for {BATCH} jobs, {tasks} tasks, on {SERVERS:,} servers; "
            f"median {statistics.median(took):.1f}{said}"
        )


if __name__ == "__main__":
    main()
