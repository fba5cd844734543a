"""What alert rules may name: metrics with their labels and units, and events with their labels.

The first table is what `/metrics` answers; a test compares the two. The second adds figures of single jobs and nodes,
which have no place in a time-series database.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class FigureUnit(Enum):
    """How a value is written for people."""

    COUNT = ""
    SECONDS = "s"
    RATIO = "ratio"


@dataclass(frozen=True, slots=True)
class MetricSource:
    """The labels and the unit of a metric."""

    labels: tuple[str, ...] = ()
    unit: FigureUnit = FigureUnit.COUNT


_JOB = ("job", "name", "tenant", "user")
_GPU = ("gpu", "UUID", "device", "modelName")
_S, _RATIO = FigureUnit.SECONDS, FigureUnit.RATIO

SCRAPED: Mapping[str, MetricSource] = {
    "rota_jobs": MetricSource(("state",)),
    "rota_devices": MetricSource(("type", "use")),
    "rota_queue_wait_seconds": MetricSource(("tenant",), _S),
    "rota_tenant_unmet_gpus": MetricSource(("tenant",)),
    "rota_disk_free_ratio": MetricSource((), _RATIO),
    "rota_backup_age_seconds": MetricSource((), _S),
    "rota_messages": MetricSource(("state",)),
    "rota_steps_total": MetricSource(),
    "rota_step_seconds_bucket": MetricSource(("le",)),
    "rota_step_seconds_count": MetricSource(),
    "rota_step_seconds_sum": MetricSource((), _S),
    "rota_forecasts_scored": MetricSource(("moment",)),
    "rota_forecasts_overdue": MetricSource(("moment",)),
    "rota_forecast_coverage_ratio": MetricSource(("moment",), _RATIO),
    "rota_forecast_error_ratio": MetricSource(("moment", "quantile"), _RATIO),
    "rota_forecast_stretch_ratio": MetricSource(("moment", "side"), _RATIO),
    "rota_nodes_health": MetricSource(("state",)),
    "rota_failures_total": MetricSource(("cause",)),
    "rota_lemon_nodes": MetricSource(),
    "rota_broken_checks": MetricSource(("check",)),
    "rota_loop_hold_seconds": MetricSource((), _S),
    "rota_storage_trouble": MetricSource(),
    "rota_policy_fault": MetricSource(),
    "rota_gpu_up": MetricSource(_GPU),
    **{
        f"DCGM_FI_{name}": MetricSource(_GPU)
        for name in (
            "DEV_GPU_UTIL",
            "DEV_MEM_COPY_UTIL",
            "DEV_FB_USED",
            "DEV_FB_FREE",
            "DEV_POWER_USAGE",
            "DEV_GPU_TEMP",
            "DEV_SM_CLOCK",
            "DEV_MEM_CLOCK",
            "PROF_PCIE_RX_BYTES",
            "PROF_PCIE_TX_BYTES",
            "PROF_NVLINK_RX_BYTES",
            "PROF_NVLINK_TX_BYTES",
            "DEV_XID_ERRORS",
            "DEV_TOTAL_ENERGY_CONSUMPTION",
            "DEV_ECC_SBE_VOL_TOTAL",
            "DEV_ECC_DBE_VOL_TOTAL",
        )
    },
}
"""What `/metrics` answers."""

SINGLE: Mapping[str, MetricSource] = {
    "job_wait_seconds": MetricSource(_JOB, _S),
    "job_run_seconds": MetricSource(_JOB, _S),
    "job_failures": MetricSource(_JOB),
    "job_preemptions": MetricSource(_JOB),
    "job_gpu_busy_percent": MetricSource(_JOB),
    "node_in_state": MetricSource(("node", "state")),
}
"""Figures of single jobs and nodes, for alert rules only. `node_in_state` is 1 for the state that a node is in."""

METRICS: Mapping[str, MetricSource] = {**SCRAPED, **SINGLE}

EVENTS: Mapping[str, tuple[str, ...]] = {
    "job-started": _JOB,
    "job-preempted": _JOB,
    "job-attempt-failed": _JOB,
    "job-succeeded": _JOB,
    "job-failed": _JOB,
    "job-cancelled": _JOB,
    "node-lost": ("node",),
    "node-back": ("node",),
    "node-drained": ("node",),
    "audit": ("who", "what", "thing"),
}
"""What happens, with its labels. `audit` is an entry of the audit log."""
