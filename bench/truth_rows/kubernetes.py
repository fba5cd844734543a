"""The same on Kubernetes: a real API server, hollow nodes, and Rota as a replica; pods sleep in the hollow kubelets."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from e2e.kubernetes.bed import Bed, made_bed
from e2e.kubernetes.hollow import Hollow, node_object
from e2e.kubernetes.replica import Replica, job
from rota.drivers.kubernetes.install.manifests import InstallOptions, manifests
from rota.sdk.client import Client
from truth_rows.live import LiveRow, commit, compared, scores_of
from truth_rows.workload import TimedJob, random_jobs

Json = dict[str, Any]
NAMESPACE = "rota-system"
POLICIES = ("fifo:backfill=true", "priority")
LONGEST_S = 1200.0


def measure_kubernetes(jobs: int, past: int, after: int, scale: float, seed: int) -> list[Json]:
    """Measure a row for each policy and source, one after the other on one control plane."""
    making = made_bed(controllers=True)
    bed = next(making)
    rows = []
    try:
        for value in manifests(InstallOptions(namespace=NAMESPACE, release=(1, 20))):
            if value["kind"] not in ("Deployment", "Service") and "Webhook" not in value["kind"]:
                bed.admin.make(value)
        for number in range(2):
            bed.admin.make(node_object(f"n{number + 1}", 4))
        for number, policy in enumerate(POLICIES):
            row = LiveRow(
                policy=policy,
                source="history",
                jobs=jobs,
                past=past,
                after=after,
                scale=scale,
                seed=seed + number,
            )
            rows.append(_row(bed, row))
    finally:
        next(making, None)
    return rows


def _row(bed: Bed, row: LiveRow) -> Json:
    with TemporaryDirectory(prefix="rota-truth-") as folder:
        hollow = Hollow(bed.kubeconfig("admin-token"), beats=True).start()
        replica = Replica(bed, Path(folder), {"policy": row.policy}).start()
        try:
            names = _submit(bed, row)
            _wait(bed, names)
            time.sleep(3.0)
            measured = _measured(replica, names[row.past : row.past + row.jobs])
            simulated = Client(replica.url).get("/truth/simulated?days=1")
            scores = scores_of(Path(folder) / "data" / "rota.db", measured)
            return {**asdict(row), **scores, **compared(simulated), "failed": 0, "commit": commit()}
        finally:
            replica.kill()
            hollow.stop()
            _clear(bed)


def _submit(bed: Bed, row: LiveRow) -> list[str]:
    begun_s = time.time()
    names = []
    count = row.past + row.jobs + row.after
    for number, each in enumerate(random_jobs(count, declared=False, scale=row.scale, seed=row.seed)):
        time.sleep(max(begun_s + each.at_s - time.time(), 0.0))
        names.append(f"{each.name}-{number}")
        bed.admin.make(_job(names[-1], each))
    return names


def _measured(replica: Replica, names: Collection[str]) -> set[str]:
    """Return the ids of the jobs that the replica made of these Jobs."""
    wanted = set(names)
    return {each["id"] for each in Client(replica.url).jobs(all=True) if each["name"] in wanted}


def _job(name: str, each: TimedJob) -> Json:
    """A Job whose pods run as long as the random job."""
    notes = {"hollow/run-s": f"{each.length_s:.3f}"}
    if each.priority == 0:
        notes["rota.dev/class"] = "opportunistic"
    return job(name, max(each.gpus // 4, 1), min(each.gpus, 4), notes=notes)


def _wait(bed: Bed, names: list[str]) -> None:
    deadline_s = time.monotonic() + LONGEST_S
    while True:
        done = [value for value in bed.admin.items("/apis/batch/v1/jobs") if value.get("status", {}).get("succeeded")]
        if len(done) >= len(names):
            return
        if time.monotonic() > deadline_s:
            raise SystemExit(f"only {len(done)} of {len(names)} jobs ended within {LONGEST_S:.0f} s")
        time.sleep(1.0)


def _clear(bed: Bed) -> None:
    now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    for value in bed.admin.items("/apis/batch/v1/jobs"):
        bed.admin.delete(f"/apis/batch/v1/namespaces/default/jobs/{value['metadata']['name']}", now)
    bed.admin.delete("/api/v1/namespaces/default/pods", now)
