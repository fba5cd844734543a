"""GPUs for Prometheus, under the names of NVIDIA's dcgm-exporter where it has the same figure.

So dashboards and alerts that were made for it work here too. What has no name there begins with `rota_`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from prometheus_client.core import GaugeMetricFamily, Metric

from rota.drivers.local.gpu.telemetry import GpuRecord
from rota.live.gpus.monitor import GpuMonitor

MIB = 2**20
LABELS = ["gpu", "UUID", "device", "modelName"]
_GAUGES: tuple[tuple[str, str, str, float], ...] = (
    ("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", "busy", 1.0),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", "memory_busy", 1.0),
    ("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", "memory_bytes", 1 / MIB),
    ("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", "power_w", 1.0),
    ("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", "temperature_c", 1.0),
    ("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", "sm_mhz", 1.0),
    ("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", "memory_mhz", 1.0),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", "Rate of data received over PCIe (in bytes per second).", "pcie_rx_bps", 1.0),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", "Rate of data sent over PCIe (in bytes per second).", "pcie_tx_bps", 1.0),
    ("DCGM_FI_PROF_NVLINK_RX_BYTES", "Rate of data received over NVLink (in bytes per second).", "nvlink_rx_bps", 1.0),
    ("DCGM_FI_PROF_NVLINK_TX_BYTES", "Rate of data sent over NVLink (in bytes per second).", "nvlink_tx_bps", 1.0),
)
"""Name, text, field of the sample, and factor to the unit of the name."""


def gpu_metrics(monitor: GpuMonitor | None) -> Iterator[Metric]:
    """Yield the latest sample of each GPU; nothing where there are none. Users and jobs are no labels."""
    if monitor is None:
        return
    records = monitor.telemetry.gpus
    for name, text, field, factor in _GAUGES:
        yield _gauge(name, text, records, partial(_value, field=field, factor=factor))
    yield _gauge("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", records, _free_mib)
    yield _gauge(
        "DCGM_FI_DEV_XID_ERRORS",
        "Value of the last XID error encountered.",
        records,
        lambda record: float(record.xids[-1][1]) if record.xids else 0.0,
    )
    for name, text, field in (
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).", "energy_mj"),
        ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "Total number of single-bit volatile ECC errors.", "ecc_corrected"),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Total number of double-bit volatile ECC errors.", "ecc_uncorrected"),
    ):
        yield _exact_counter(name, text, records, field)
    yield _gauge("rota_gpu_up", "1 while the GPU answers.", records, lambda record: float(not record.is_lost))


def _gauge(
    name: str, text: str, records: list[GpuRecord], value_of: Callable[[GpuRecord], float | None]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=LABELS)
    for record in records:
        value = value_of(record)
        if value is not None:
            family.add_metric(_labels(record), value)
    return family


def _exact_counter(name: str, text: str, records: list[GpuRecord], field: str) -> Metric:
    """A counter under exactly this name: the client library would append `_total`, which dcgm-exporter does not."""
    family = Metric(name, text, "gauge")
    for record in records:
        counts = {
            "energy_mj": None if record.latest is None else record.latest.energy_mj,
            "ecc_corrected": None if record.latest is None else record.latest.ecc_corrected,
            "ecc_uncorrected": None if record.latest is None else record.latest.ecc_uncorrected,
        }
        count = counts[field]
        if count is not None:
            family.add_sample(name, dict(zip(LABELS, _labels(record), strict=True)), count)
    return family


def _value(record: GpuRecord, field: str, factor: float) -> float | None:
    value = None if record.latest is None else record.latest.value(field)
    return None if value is None else value * factor


def _free_mib(record: GpuRecord) -> float | None:
    used = _value(record, "memory_bytes", 1 / MIB)
    return None if used is None else record.about.memory_bytes / MIB - used


def _labels(record: GpuRecord) -> list[str]:
    about = record.about
    return [str(about.index), about.uuid, f"nvidia{about.index}", about.name]
