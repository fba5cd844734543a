"""Where scenes are played: the simulator, this machine, a Kubernetes cluster. Each returns the journal of the play."""

from __future__ import annotations

import csv
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from contract.scenes import NODES, PER_NODE, Part
from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow
from e2e.kubernetes.replica import Replica, job
from managers import ROTA, Manager, eventually
from rota.sdk.client import Client

CLUSTER = f"gpu={NODES * PER_NODE}/{PER_NODE}"
FINAL = ("succeeded", "failed", "cancelled")


def simulated(parts: Sequence[Part], folder: Path) -> Path:
    """In virtual time."""
    trace = folder / "scene.csv"
    with trace.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "name", "submit_s", "gpus", "priority", "work", "outcome", "roles"])
        for part in parts:
            outcome = "failed" if part.fails else "succeeded"
            roles = f'[{{"name":"worker","count":{part.tasks},"device_milli":{part.gpus * 1000}}}]'
            row = [part.name, part.name, part.at_s, part.gpus * part.tasks, part.priority, part.work_s, outcome, roles]
            rows.writerow(row)
    out = folder / "out"
    command = [*ROTA, "sim", "--trace", str(trace), "--cluster", CLUSTER, "--policy", "priority", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return next(out.rglob("journal.jsonl"))


def on_this_machine(parts: Sequence[Part], folder: Path) -> Path:
    """As processes."""
    manager = Manager(folder, "--emulate", CLUSTER, "--policy", "priority").start()
    try:
        for part in parts:
            if part.at_s:
                _seen_to(manager.client)
            manager.submit(
                f"sleep {part.work_s}; exit {int(part.fails)}",
                name=part.name,
                workers=part.tasks,
                resources={"gpus": part.gpus},
                priority=part.priority,
                max_restarts=0 if part.fails else 5,
            )
        return _journal(manager.client, len(parts), folder)
    finally:
        manager.clean_up()


def on_pods(
    bed: Bed, launch: Callable[..., Replica], kubelets: Callable[..., Hollow]
) -> Callable[[Sequence[Part], Path], Path]:
    """As Jobs of a Kubernetes cluster."""

    def play(parts: Sequence[Part], folder: Path) -> Path:
        kubelets(bed, nodes=NODES, gpus=PER_NODE, beats=True)
        replica = launch(bed, {"policy": "priority"})
        client = Client(replica.url)
        for part in parts:
            if part.at_s:
                _seen_to(client)
            name = f"priority-{part.priority}"
            kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
            bed.admin.make({**kind, "metadata": {"name": name}, "value": part.priority})
            notes = {"hollow/run-s": str(part.work_s), "hollow/exit": str(int(part.fails))}
            value = job(part.name, part.tasks, part.gpus, notes=notes, priorityClassName=name)
            if part.fails:
                value["spec"]["backoffLimit"] = 0
            bed.admin.make(value)
        return _journal(client, len(parts), folder)

    return play


def _seen_to(client: Client) -> None:
    """Whoever came so far has run for a moment."""
    eventually(lambda: [job for job in client.jobs(all=True) if job["state"] in ("running", *FINAL)])
    time.sleep(0.5)


def _journal(client: Client, jobs: int, folder: Path) -> Path:
    """The journal, once all jobs have ended."""

    def all_ended() -> bool:
        found = list(client.jobs(all=True))
        return len(found) == jobs and all(job["state"] in FINAL for job in found)

    eventually(all_ended, within_s=90)
    path = folder / "journal.jsonl"
    path.write_bytes(b"".join(client.journal()))
    return path
