"""Figures about queues, guarantees and the manager's folder: for Prometheus and for alert rules."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric

from rota.api.service import Service
from rota.core.model.job import OPPORTUNISTIC, WHOLE
from rota.core.state.state import State
from rota.store import clock
from rota.store.backup_mark import BACKUP_MARK


def queue_metrics(parts: Service, tenants: Iterable[str]) -> Iterator[Metric]:
    """Yield the longest wait of each tenant that has or had jobs, and what its waiting jobs lack of its guarantee."""
    state = parts.control.state
    waits, wanted = _queues(state)
    family = GaugeMetricFamily(
        "rota_queue_wait_seconds", "Longest wait for GPUs of a job that could start, by tenant.", labels=["tenant"]
    )
    for tenant, seconds in sorted({**dict.fromkeys(tenants, 0.0), **waits}.items()):
        family.add_metric([tenant], seconds)
    yield family
    unmet = GaugeMetricFamily(
        "rota_tenant_unmet_gpus", "GPUs that a tenant is guaranteed, waits for and does not hold.", labels=["tenant"]
    )
    guarantees = parts.lookout.promised.now()
    if guarantees:
        uses = parts.lookout.uses(None)
        for tenant, guarantee in sorted(guarantees.items()):
            use = uses.get(tenant)
            own = 0.0 if use is None else use.held - use.borrowed
            unmet.add_metric([tenant], max(min(wanted.get(tenant, 0) / WHOLE, guarantee.devices - own), 0.0))
    yield unmet


def _queues(state: State) -> tuple[dict[str, float], dict[str, int]]:
    """Return by tenant: the longest wait, and the thousandths of devices that jobs with a guarantee wait for."""
    now_s = clock.now_s()
    waits: dict[str, float] = {}
    wanted: dict[str, int] = {}
    for live in list(state.jobs.values()):  # a plan may be under way in another thread
        if not live.is_contending or not live.gpu_milli:
            continue
        tenant = str(live.job.tenant)
        waits[tenant] = max(waits.get(tenant, 0.0), now_s - live.since_s)
        if live.standing != OPPORTUNISTIC:
            wanted[tenant] = wanted.get(tenant, 0) + live.gpu_milli
    return waits, wanted


def folder_metrics(parts: Service) -> Iterator[Metric]:
    """Yield how much of the disk is free, and how old the last backup is."""
    free = GaugeMetricFamily("rota_disk_free_ratio", "Free part of the disk of the manager's folder.")
    try:
        usage = shutil.disk_usage(parts.home)
        free.add_metric([], usage.free / usage.total if usage.total else 0.0)
    except OSError:  # a folder that is gone is reported as trouble of the storage
        pass
    yield free
    age = GaugeMetricFamily("rota_backup_age_seconds", "Time since the last `rota backup`, or since there is a folder.")
    if parts.accounts is not None and parts.records.is_near and (age_s := backup_age_s(parts.home)) is not None:
        age.add_metric([], age_s)
    yield age


def backup_age_s(home: Path) -> float | None:
    """Return how long ago the database was last copied; since the first look where it never was."""
    path = home / BACKUP_MARK
    try:
        return max(clock.shown_s(clock.now_s()) - path.stat().st_mtime, 0.0)
    except FileNotFoundError:
        pass
    except OSError:
        return None
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
    except OSError:
        return None
    return 0.0


def message_metrics(messages: Mapping[str, int]) -> Iterator[Metric]:
    """Yield the messages of the outbox by state."""
    family = GaugeMetricFamily("rota_messages", "Messages about jobs, budgets and alerts, by state.", labels=["state"])
    for state, count in messages.items():
        family.add_metric([state], count)
    yield family
