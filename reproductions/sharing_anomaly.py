"""HiveD's sharing anomaly on the Philly trace: queueing delay of each tenant's jobs under three kinds of sharing.

- private: every tenant has its own nodes, packed in the same way as under the kind of sharing it is compared with;
- quota: one cluster, a tenant may hold as many devices as its private cluster has (count only);
- cells: one cluster, a tenant owns as many node cells as its private cluster has nodes.

Jobs of up to 8 devices have one task and need one node; larger ones have tasks of 8. A tenant gets enough nodes for its
mean load times a factor. Sharing is anomalous where a tenant's jobs wait longer than on its private cluster.
Run: `ROTA_DATA=... python reproductions/sharing_anomaly.py [JOBS]`.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from rota.core.model.cells import CellEntry, CellPlan, CellType, CellTypeName, Quota, TenantCells
from rota.core.model.cluster import Cluster
from rota.core.model.job import WHOLE, Job, TenantId
from rota.core.model.tenants import ANY_TYPE, Share, TenantPlan
from rota.core.state.history import History
from rota.drivers.simulator.study import Setting, simulate
from rota.files.hived import cluster_from
from rota.traces.formats import read_trace
from rota.traces.workload import Submission

PER_NODE = 8
RACK = 8
HEADROOM = 1.35
POLICY = "fifo:backfill=true"


def whole_nodes(job: Job) -> Job:
    """Return the job with one task if it fits on a node, otherwise with tasks of a whole node each."""
    gpus = job.gpu_milli // WHOLE
    role = job.roles[0]
    if gpus <= PER_NODE:
        return replace(job, roles=(replace(role, count=1, device_milli=gpus * WHOLE),))
    return replace(job, roles=(replace(role, count=math.ceil(gpus / PER_NODE), device_milli=PER_NODE * WHOLE),))


def shares(submissions: list[Submission]) -> dict[TenantId, int]:
    """Return the nodes of each tenant: enough for its mean load with headroom and for its largest job."""
    span_s = submissions[-1].submit_s - submissions[0].submit_s
    load: dict[TenantId, float] = defaultdict(float)
    largest: dict[TenantId, int] = defaultdict(int)
    for submission in submissions:
        job = submission.job
        load[job.tenant] += job.gpus * (job.work or 0.0) / span_s
        largest[job.tenant] = max(largest[job.tenant], math.ceil(job.gpus / PER_NODE))
    return {tenant: max(math.ceil(load[tenant] * HEADROOM / PER_NODE), largest[tenant]) for tenant in sorted(load)}


def cells_of(nodes: dict[TenantId, int]) -> Cluster:
    box, rack = CellTypeName("NODE"), CellTypeName("RACK")
    racks = math.ceil(sum(nodes.values()) / RACK)
    plan = CellPlan(
        types={
            box: CellType(child=CellTypeName("gpu"), children=PER_NODE, is_node=True),
            rack: CellType(child=box, children=RACK),
        },
        physical=tuple(
            CellEntry(type=rack, children=tuple(CellEntry(address=f"n{r * RACK + n + 1}") for n in range(RACK)))
            for r in range(racks)
        ),
        tenants={
            tenant: TenantCells(quotas=(Quota(chain=rack, type=box, cells=count),)) for tenant, count in nodes.items()
        },
    )
    return cluster_from(plan)


def waits(history: History) -> dict[TenantId, list[float]]:
    found: dict[TenantId, list[float]] = defaultdict(list)
    for record in history.jobs:
        if record.start_s is not None:
            found[TenantId(record.tenant)].append(record.start_s - record.submit_s)
    return found


def main(jobs: int) -> None:
    workload = read_trace(Path(os.environ["ROTA_DATA"]) / "philly" / "philly.csv")
    submissions = [replace(s, job=whole_nodes(s.job)) for s in workload.submissions[:jobs]]
    nodes = shares(submissions)
    shared = cells_of(nodes)
    devices = {tenant: {ANY_TYPE: count * PER_NODE} for tenant, count in nodes.items()}
    tenants = TenantPlan(shares={t: Share(guaranteed=own, limit=own) for t, own in devices.items()})
    quota = Cluster(nodes=shared.nodes, tenants=tenants)
    result: dict[str, dict[TenantId, list[float]]] = {}
    all_of = replace(workload, submissions=tuple(submissions))
    for name, setting in (
        ("quota", Setting(cluster=quota, tenancy="quota", placement="consolidate")),
        ("cells", Setting(cluster=shared, tenancy="cells")),
    ):
        began = time.perf_counter()
        result[name] = waits(simulate(all_of, POLICY, setting).history)
        print(f"{name}: {len(submissions)} jobs in {time.perf_counter() - began:.0f} s", file=sys.stderr)
    for kind in ("quota", "cells"):
        alone = result[f"private {kind}"] = {}
        for tenant, count in nodes.items():
            own = replace(workload, submissions=tuple(s for s in submissions if s.job.tenant == tenant))
            setting = Setting(cluster=Cluster.uniform(("gpu", count * PER_NODE, PER_NODE)), placement="consolidate")
            if kind == "cells":
                setting = Setting(cluster=cells_of({tenant: count}), tenancy="cells")
            alone.update(waits(simulate(own, POLICY, setting).history))
    report(nodes, result)


def report(nodes: dict[TenantId, int], result: dict[str, dict[TenantId, list[float]]]) -> None:
    """Print mean waits in minutes, the number of jobs that wait longer than in private, and the largest increase."""
    print("| tenant | jobs | nodes | private | quota | longer | at most | private | cells | longer | at most |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for tenant, count in nodes.items():
        row = [str(tenant), str(len(result["quota"][tenant])), str(count)]
        for kind in ("quota", "cells"):
            alone, shared = result[f"private {kind}"][tenant], result[kind][tenant]
            extra = [there - here for here, there in zip(alone, shared, strict=True)]
            row += [f"{sum(waited) / len(alone) / 60:.1f}" for waited in (alone, shared)]
            row += [str(sum(more > 1.0 for more in extra)), f"{max(0.0, *extra) / 60:.1f}"]
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10**9)
