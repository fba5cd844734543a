"""CPU time of a simulation with a network: 1,000 jobs on 512 nodes of an oversubscribed fat tree.

`python bench/network_simulation.py [JOBS] [NODES]` simulates the same workload without a network, with fair sharing,
and with each mechanism between jobs, and prints CPU seconds and mean completion times. It ends with an error where a
run takes more than five minutes of CPU.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from rota.core.model.cluster import Cluster
from rota.core.model.job import Job, JobId, Role
from rota.drivers.simulator.study import Setting, simulate
from rota.files.network.network_file import network_from_spec
from rota.network.demand import MODELS
from rota.network.load import NetworkLoad
from rota.traces.workload import Submission, Workload

MOST_CPU_S = 300.0
PER_NODE = 8
NETWORK = """
topology: fat-tree
per_leaf: 16
spines: 4
oversubscription: 4
link: 100Gbps
"""


def workload(jobs: int, nodes: int, seed: int = 1, load: float = 0.9) -> Workload:
    """Jobs of 1 to 64 devices that train known models for half an hour on average."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice([1, 2, 4, 8, 16, 32, 64], p=[0.2, 0.1, 0.15, 0.2, 0.2, 0.1, 0.05], size=jobs)
    work = rng.exponential(1800.0, jobs) + 60.0
    gap_s = float((sizes * work).mean()) / (load * nodes * PER_NODE)
    submit = np.cumsum(rng.exponential(gap_s, jobs))
    names = rng.choice([name for name in MODELS if name != "dlrm"], jobs)
    made = []
    for number in range(jobs):
        job = Job(
            id=JobId(f"j{number}"),
            roles=(Role(count=int(sizes[number])),),
            work=float(work[number]),
            labels=(("model", str(names[number])),),
        )
        submit_s = float(submit[number])
        made.append(Submission(job=job, submit_s=submit_s))
    return Workload(submissions=tuple(made), source="generated", format="generated")


def reshare_ms(setting: Setting, jobs: int = 1000) -> float:
    """The CPU time to share all links again after one job came, in milliseconds."""
    from rota.core.model.placement import Slot

    assert setting.network is not None
    rng = np.random.default_rng(2)
    load = NetworkLoad(setting.network, setting.cluster.nodes)
    names = list(MODELS)
    count = len(setting.cluster.nodes)
    taken: list[float] = []
    for number in range(jobs + 20):
        chosen = rng.choice(count, int(rng.integers(2, 9)), replace=False)
        job = Job(id=JobId(f"r{number}"), roles=(Role(count=len(chosen)),), labels=(("model", names[number % 17]),))
        load.enter(job, tuple(Slot(int(node), 1) for node in chosen))
        if number >= jobs:
            began = time.process_time()
            load.speed(job.id)
            taken.append(time.process_time() - began)
    return 1000 * float(np.median(taken))


def main() -> int:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    nodes = int(sys.argv[2]) if len(sys.argv) > 2 else 512
    cluster = Cluster.uniform(("gpu", nodes * PER_NODE, PER_NODE))
    made = workload(jobs, nodes)
    plain = Setting(cluster=cluster)
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.yaml"
        path.write_text(NETWORK)
        names = [str(node.id) for node in cluster.nodes]
        for name in (
            "",
            "fair",
            "fair,phases=random",
            "fair placement=cassini",
            "crux",
            "cassini",
            "cassini placement=cassini",
        ):
            between, _, by_score = name.partition(" placement=")
            spec = f"{path}:between={between}"
            network = network_from_spec(spec, names) if name else None
            setting = replace(plain, network=network, placement=f"{by_score}:{spec}" if by_score else None)
            began = time.process_time()
            result = simulate(made, "fifo:backfill=true", setting)
            cpu_s = time.process_time() - began
            worst = max(worst, cpu_s)
            jct_s = np.mean([(row.end_s or 0.0) - row.submit_s for row in result.history.jobs])
            print(f"{name or 'no network':32} {cpu_s:8.2f} s CPU {result.events:9,d} events  mean JCT {jct_s:8.0f} s")
        fair = replace(plain, network=network_from_spec(str(path), names))
        print(f"re-share of 1,000 jobs on {nodes} nodes: {reshare_ms(fair):.1f} ms CPU")
    return int(worst > MOST_CPU_S)


if __name__ == "__main__":
    sys.exit(main())
