"""Requests and usage of past jobs: training data of estimates, and the list of excessive requests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rota.core.model.job import WHOLE, JobId
from rota.estimate.flags import attributes_of
from rota.estimate.observations import Observation, Value
from rota.files.job import job_file, job_of
from rota.perf.speed.busy_fraction import LABEL as UTILIZATION
from rota.store.records import Records
from rota.store.run_folder import gpu_labels, progress, usage

MB = 2**20
OVER = 2.0
"""Ratio of request to usage from which on a job is listed."""
FIELDS: Mapping[str, str] = {
    "gpus": "gpus",
    "gpu_memory": "gpu_memory_mb",
    "cpus": "cpu_cores",
    "memory": "host_memory_mb",
}
"""The labels that stand for a job file's fields; memory is in MiB there, in bytes here."""
_PEAKS = frozenset({FIELDS["memory"], FIELDS["gpu_memory"]})
PREDICTED: Mapping[str, str] = {**FIELDS, UTILIZATION: "gpu_util_mean"}
"""All that is asked of an estimator, by what it becomes in a job file: a field, or the label by which jobs share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastUse:
    """One job that has succeeded: what a task asked for and used of each field, where that is known."""

    id: str
    name: str
    tenant: str
    owner: str
    run_s: float
    asked: Mapping[str, float]
    used: Mapping[str, float]
    run: Observation

    def over(self, field: str) -> float | None:
        """Return the ratio of request to usage."""
        if self.asked.get(field, 0.0) <= 0 or self.used.get(field, 0.0) <= 0:
            return None
        return self.asked[field] / self.used[field]


def asked_of(spec: Mapping[str, Any]) -> dict[str, float]:
    """What the largest task asks for of each field, in GPUs, CPUs and bytes."""
    job = job_of(job_file(spec), JobId("asked"))
    return {
        "gpus": max(role.device_milli for role in job.roles) / WHOLE,
        "gpu_memory": float(max(role.device_memory_bytes for role in job.roles)),
        "cpus": max(role.cpu_milli for role in job.roles) / 1000,
        "memory": float(max(role.memory_bytes for role in job.roles)),
    }


def attributes(spec: Mapping[str, Any]) -> dict[str, Value]:
    """What is known of a job before it runs: its command's flags, and whose it is."""
    roles = spec.get("roles") or {}
    command = spec.get("run") or next((role["run"] for role in roles.values() if role.get("run")), "")
    found: dict[str, Value] = dict(attributes_of(command))
    found["tenant"] = str(spec.get("tenant", "default"))
    found["tasks"] = float(sum(role.get("count", 1) for role in roles.values()) or spec.get("workers", 1))
    if spec.get("name"):
        found["name"] = str(spec["name"])
    return found


def used_of(record: Mapping[str, float], run_s: float, tasks: float) -> dict[str, float]:
    """What a task used of each field, from what is known of an attempt; of GPUs only where they were seen."""
    used = {"cpus": record["cpu_s"] / run_s / tasks, "memory": float(record["memory_bytes"])}
    if "gpus" in record:
        used |= {"gpus": record["gpus"], "gpu_memory": record["gpu_memory_bytes"]}
    return used


def past_uses(records: Records, home: Path, since_s: float = 0.0, limit: int = 2000) -> Iterator[PastUse]:
    """Return jobs that succeeded at the first attempt, newest first; of others the true run time is unknown.

    Of those that were tried again with more memory, it is known how much they took of that. What was asked for is what
    users requested, not what the manager gave for `auto`.
    """
    for row in records.succeeded(since_s, limit):
        spec = json.loads(row.spec)
        ours = spec.get("estimated") or {}
        was_raised = any(part.get("raised") for part in ours.values())
        record = usage(home, JobId(row.id), row.attempt) if row.attempt == 1 or was_raised else None
        run_s = max(row.ended_s - row.started_s, 1e-3)
        if record is None:
            continue
        known = attributes(spec)
        tasks = known["tasks"]
        assert isinstance(tasks, float)
        asked = {field: amount for field, amount in asked_of(spec).items() if field not in ours}
        used = used_of(record, run_s, tasks)
        labels = {"cpu_cores": used["cpus"], "host_memory_mb": used["memory"] / MB, "duration_s": run_s}
        if "gpus" in record:
            labels |= gpu_labels(record, row.started_s, row.ended_s)
        reported = progress(home, JobId(row.id))
        if reported is not None and reported["steps_per_s"] > 0:
            labels["step_s"] = 1 / reported["steps_per_s"]
        if row.attempt > 1:
            used = {field: amount for field, amount in used.items() if field in ("memory", "gpu_memory")}
            labels = {label: value for label, value in labels.items() if label in _PEAKS}
        yield PastUse(
            id=row.id,
            name=row.name,
            tenant=row.tenant,
            owner=row.owner,
            run_s=run_s,
            asked=asked,
            used=used,
            run=Observation(attributes=known, labels=labels),
        )


def over_requested(uses: Iterator[PastUse]) -> list[dict[str, Any]]:
    """Jobs that asked for at least twice what they used of something, the most wasteful first."""
    found = []
    for use in uses:
        for field in FIELDS:
            over = use.over(field)
            if over is not None and over >= OVER:
                found.append(
                    {
                        "id": use.id,
                        "name": use.name,
                        "tenant": use.tenant,
                        "owner": use.owner,
                        "what": field,
                        "asked": use.asked[field],
                        "used": use.used[field],
                        "over": over,
                        "run_s": use.run_s,
                    }
                )
    return sorted(found, key=lambda row: (-(row["over"] - 1) * row["run_s"], row["id"], row["what"]))
