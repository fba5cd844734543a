"""Harmony's learned placement on the links of a network: does its gain over the usual placements hold there?

`python reproductions/harmony_network.py [SEEDS]` runs the workloads on which Harmony is evaluated, with contention for
servers, without a network and on a fat tree with oversubscription, and prints completion times over Harmony's.
"""

from __future__ import annotations

import statistics
import sys

from rota.drivers.simulator.study import Setting, simulate
from rota.learn.workloads import WorkloadShape, cluster_of, workload
from rota.network.fabrics import fat_tree
from rota.network.model import NetworkModel
from rota.perf.speed.model import SpeedModel

SERVERS = 16
OTHERS = ("spread", "consolidate", "best-fit", "liquid")
GBIT = 1e9 / 8


def interval(values: list[float]) -> str:
    """Mean and half of a 95% interval (Student's t)."""
    t = {3: 4.30, 5: 2.78, 8: 2.36, 10: 2.26}.get(len(values), 2.0)
    half = t * statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.2f} ± {half:.2f}"


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    cluster = cluster_of(SERVERS)
    names = [str(node.id) for node in cluster.nodes]
    networks: dict[str, NetworkModel | None] = {"without a network": None}
    for gbit in (10,):
        tree = fat_tree(names, per_leaf=4, spines=2, link_bytes_per_s=gbit * GBIT, oversubscription=4)
        networks[f"{gbit} Gbit/s, oversubscription 4"] = NetworkModel(topology=tree)
    print("| mean completion time over that of harmony | " + " | ".join(OTHERS) + " |")
    print("|---|" + "---|" * len(OTHERS))
    for label, network in networks.items():
        ratios: dict[str, list[float]] = {name: [] for name in OTHERS}
        for seed in range(seeds):
            work = workload(WorkloadShape(servers=SERVERS), seed)
            jct = {}
            for name in ("harmony", *OTHERS):
                setting = Setting(
                    cluster=cluster,
                    placement="consolidate" if name == "harmony" else name,
                    speed=SpeedModel(contention=True),
                    network=network,
                )
                policy = "harmony:interval_s=60" if name == "harmony" else "fifo:backfill=true"
                history = simulate(work, policy, setting).history
                jct[name] = statistics.mean((row.end_s or 0.0) - row.submit_s for row in history.jobs)
            for name in OTHERS:
                ratios[name].append(jct[name] / jct["harmony"])
        print(f"| {label} | " + " | ".join(interval(ratios[name]) for name in OTHERS) + " |", flush=True)


if __name__ == "__main__":
    main()
