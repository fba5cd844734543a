"""All that a GPU shows of itself at a moment, by NVIDIA's library: the manager's part, beside what supervisors read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

FIELDS = (
    "busy",
    "memory_busy",
    "memory_bytes",
    "power_w",
    "temperature_c",
    "sm_mhz",
    "memory_mhz",
    "pcie_rx_bps",
    "pcie_tx_bps",
    "nvlink_rx_bps",
    "nvlink_tx_bps",
)
"""The names of a sample's values, in order: percent, bytes, watts, degrees Celsius, MHz, bytes a second."""
PEAKS = frozenset({"memory_bytes", "temperature_c"})
"""Values of which the largest is kept when samples are merged; of the others it is the mean."""
ALL_LINKS = 0xFFFFFFFF

Values = tuple[float | None, ...]
"""One value for each of `FIELDS`; None where the GPU does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAbout:
    """What does not change about a GPU."""

    index: int
    uuid: str
    name: str
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU at one moment."""

    values: Values
    energy_mj: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None

    def value(self, field: str) -> float | None:
        """Return one of the values, by name."""
        return self.values[FIELDS.index(field)]


class GpuSensors:
    """The GPUs of this machine, by `pynvml` or what stands in for it."""

    def __init__(self, library: Any) -> None:
        library.nvmlInit()
        self._library = library
        self._handles = [library.nvmlDeviceGetHandleByIndex(index) for index in range(library.nvmlDeviceGetCount())]
        self._nvlink: dict[int, tuple[float, int, int]] = {}
        self._seen_us: dict[int, int] = {}
        self._events = self._watch_events()
        self.gpus = [self._about(index, handle) for index, handle in enumerate(self._handles)]

    def _about(self, index: int, handle: Any) -> GpuAbout:
        library = self._library
        return GpuAbout(
            index=index,
            uuid=_text(library.nvmlDeviceGetUUID(handle)),
            name=_text(library.nvmlDeviceGetName(handle)),
            memory_bytes=int(library.nvmlDeviceGetMemoryInfo(handle).total),
        )

    def look(self, now_s: float) -> list[GpuSample | None]:
        """Return a sample of each GPU; None for one that does not answer. PCIe rates take NVML 20 ms each."""
        found: list[GpuSample | None] = []
        for index, handle in enumerate(self._handles):
            try:
                found.append(self._sample(index, handle, now_s))
            except self._library.NVMLError:
                found.append(None)
        return found

    def xids(self) -> list[tuple[int, int]]:
        """Return the critical errors since the last call, as index of the GPU and number of the error."""
        found: list[tuple[int, int]] = []
        while self._events is not None:
            try:
                event = self._library.nvmlEventSetWait_v2(self._events, 0)
            except self._library.NVMLError:  # a timeout: there is none, or none any more
                break
            index = self._index_of(event.device)
            if index is not None and int(event.eventType) == self._library.nvmlEventTypeXidCriticalError:
                found.append((index, int(event.eventData)))
        return found

    def busy_by_process(self, index: int) -> dict[int, float]:
        """Return how busy each process kept a GPU since the last call, in percent; empty where it does not tell."""
        library, handle = self._library, self._handles[index]
        since = self._seen_us.get(index, 0)
        samples = self._ask(lambda: library.nvmlDeviceGetProcessUtilization(handle, since)) or []
        by_process: dict[int, list[float]] = {}
        for each in samples:
            self._seen_us[index] = max(self._seen_us.get(index, 0), int(each.timeStamp))
            by_process.setdefault(int(each.pid), []).append(float(each.smUtil))
        return {pid: sum(found) / len(found) for pid, found in by_process.items()}

    def _index_of(self, handle: Any) -> int | None:
        """Return which GPU a handle is; handles of the same GPU need not be equal."""
        try:
            uuid = _text(self._library.nvmlDeviceGetUUID(handle))
        except self._library.NVMLError:
            return None
        return next((gpu.index for gpu in self.gpus if gpu.uuid == uuid), None)

    def _watch_events(self) -> Any:
        """Return a set of events for critical errors of all GPUs; None where that is not supported."""
        library = self._library
        try:
            events = library.nvmlEventSetCreate()
            for handle in self._handles:
                library.nvmlDeviceRegisterEvents(handle, library.nvmlEventTypeXidCriticalError, events)
        except (library.NVMLError, AttributeError):
            return None
        return events

    def _sample(self, index: int, handle: Any, now_s: float) -> GpuSample:
        library, ask = self._library, self._ask
        used = float(library.nvmlDeviceGetMemoryInfo(handle).used)
        rates = ask(lambda: library.nvmlDeviceGetUtilizationRates(handle))
        power = ask(lambda: library.nvmlDeviceGetPowerUsage(handle))
        rx = ask(lambda: library.nvmlDeviceGetPcieThroughput(handle, library.NVML_PCIE_UTIL_RX_BYTES))
        tx = ask(lambda: library.nvmlDeviceGetPcieThroughput(handle, library.NVML_PCIE_UTIL_TX_BYTES))
        values = (
            None if rates is None else float(rates.gpu),
            None if rates is None else float(rates.memory),
            used,
            None if power is None else power / 1000,
            ask(lambda: library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU)),
            ask(lambda: library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM)),
            ask(lambda: library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM)),
            None if rx is None else rx * 1000.0,
            None if tx is None else tx * 1000.0,
            *self._nvlink_bps(index, handle, now_s),
        )
        corrected = self._ecc_errors(handle, "NVML_MEMORY_ERROR_TYPE_CORRECTED")
        uncorrected = self._ecc_errors(handle, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED")
        return GpuSample(
            values=tuple(None if value is None else float(value) for value in values),
            energy_mj=ask(lambda: int(library.nvmlDeviceGetTotalEnergyConsumption(handle))),
            ecc_corrected=corrected,
            ecc_uncorrected=uncorrected,
        )

    def _ecc_errors(self, handle: Any, kind: str) -> int | None:
        library = self._library
        found = self._ask(
            lambda: library.nvmlDeviceGetTotalEccErrors(handle, getattr(library, kind), library.NVML_VOLATILE_ECC)
        )
        return None if found is None else int(found)

    def _nvlink_bps(self, index: int, handle: Any, now_s: float) -> tuple[float | None, float | None]:
        """Return what came and went over all links in a second, from the counters at two samples."""
        library = self._library
        found = self._ask(
            lambda: library.nvmlDeviceGetFieldValues(
                handle,
                [
                    (library.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS),
                    (library.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS),
                ],
            )
        )
        if found is None or any(each.nvmlReturn != 0 for each in found):
            return None, None
        rx, tx = (int(each.value.ullVal) for each in found)
        before = self._nvlink.get(index)
        self._nvlink[index] = (now_s, rx, tx)
        if before is None or now_s <= before[0]:
            return None, None
        passed_s = now_s - before[0]
        return max(rx - before[1], 0) * 1024 / passed_s, max(tx - before[2], 0) * 1024 / passed_s

    def _ask(self, question: Callable[[], Any]) -> Any:
        """Return an answer; None where the GPU has no such thing, or an older module does not know it."""
        try:
            return question()
        except (self._library.NVMLError, AttributeError):
            return None


def find_sensors(folder: str | None) -> GpuSensors | None:
    """Return the GPUs that the `pynvml` of a folder shows; None if there are none."""
    from rota.drivers.local.task_runner.nvml import load_pynvml

    if folder is None:
        return None
    library = load_pynvml(folder)
    if library is None:
        return None
    try:
        found = GpuSensors(library)
    except library.NVMLError:
        return None
    return found if found.gpus else None


def mean_of(samples: Sequence[tuple[int, Values]]) -> Values:
    """Merge values, each with the number of samples it stands for: the largest of `PEAKS`, the mean of the others."""
    merged: list[float | None] = []
    for place, field in enumerate(FIELDS):
        known = [(count, value) for count, values in samples if (value := values[place]) is not None]
        if not known:
            merged.append(None)
        elif field in PEAKS:
            merged.append(max(value for _, value in known))
        else:
            merged.append(sum(count * value for count, value in known) / sum(count for count, _ in known))
    return tuple(merged)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()
