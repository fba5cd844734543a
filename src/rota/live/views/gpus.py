"""The GPUs of a manager as rows: the latest sample of each, its errors, and the jobs on it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rota.drivers.local.gpu.sensors import FIELDS
from rota.drivers.local.gpu.telemetry import GpuRecord
from rota.live.gpus.monitor import GpuMonitor
from rota.live.loop.control import Control


def gpu_rows(monitor: GpuMonitor | None, control: Control, tenants: Collection[str] | None) -> list[dict[str, Any]]:
    """Return a row for each GPU; of the jobs on it only those of tenants that may be seen."""
    if monitor is None:
        return []
    holders = monitor.holders()
    rows = []
    for record in monitor.telemetry.gpus:
        jobs = [holder.job_id for holder in holders.get(record.about.index, ())]
        seen = [job_id for job_id in jobs if tenants is None or control.state.jobs[job_id].job.tenant in tenants]
        rows.append({**_row(record), "jobs": seen, "other_jobs": len(jobs) - len(seen), "shared": len(jobs) > 1})
    return rows


def _row(record: GpuRecord) -> dict[str, Any]:
    about, latest = record.about, record.latest
    values = dict.fromkeys(FIELDS) if latest is None else dict(zip(FIELDS, latest.values, strict=True))
    return {
        "gpu": about.index,
        "uuid": about.uuid,
        "name": about.name,
        "memory_total_bytes": about.memory_bytes,
        **values,
        "energy_kwh": None if latest is None or latest.energy_mj is None else latest.energy_mj / 3.6e9,
        "ecc_corrected": None if latest is None else latest.ecc_corrected,
        "ecc_uncorrected": None if latest is None else latest.ecc_uncorrected,
        "xid": record.xids[-1][1] if record.xids else None,
        "lost": record.is_lost,
    }
