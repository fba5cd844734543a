"""Checks of the GPUs by NVIDIA's library: memory errors, brakes, clocks, links and temperatures.

Xids are looked for in the kernel's log; a manager also hears of them as they happen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rota.health.checks.result import CheckResult, worst_of
from rota.health.node_state import Severity

HOT_C, TOO_HOT_C = 88, 93
HOT_MEMORY_C = 97
_HW_SLOWDOWN, _HW_THERMAL, _HW_POWER_BRAKE = 0x8, 0x40, 0x80
"""Bits of the reasons why clocks are low."""
_SW_CAPS = 0x4 | 0x20
"""Bits of a power limit and of heat that the driver keeps within bounds: usual under load."""
BUSY_PERCENT, LOW_CLOCK = 90, 0.4
"""A GPU that is so busy and has less than this part of its clock is slow."""
_SM_CLOCK = 1
_MEMORY_TEMPERATURE = 82
"""NVML's number of the field of the memory's temperature."""

Finding = tuple[Severity, str]


def check_gpus(library: Any) -> CheckResult:
    """All GPUs that `pynvml`, or what stands in for it, shows."""
    try:
        library.nvmlInit()
        count = library.nvmlDeviceGetCount()
    except library.NVMLError as error:
        return CheckResult(check="gpu", severity=Severity.SEVERE, text=f"NVML does not work: {error}")
    found: list[Finding] = []
    for index in range(count):
        try:
            handle = library.nvmlDeviceGetHandleByIndex(index)
            library.nvmlDeviceGetUUID(handle)
        except library.NVMLError as error:
            found.append((Severity.SEVERE, f"GPU {index} does not answer: {error}"))
            continue
        found += [(severity, f"GPU {index} {words}") for severity, words in _of_gpu(library, handle)]
    return worst_of("gpu", found, {"gpus": count})


def _of_gpu(library: Any, handle: Any) -> Iterator[Finding]:
    def ask(name: str, *more: Any) -> Any:
        return _ask(library, name, handle, *more)

    yield from _memory(library, ask)
    yield from _brakes(ask)
    yield from _clocks(ask)
    yield from _links(library, ask)
    temperature = ask("nvmlDeviceGetTemperature", getattr(library, "NVML_TEMPERATURE_GPU", 0))
    if temperature is not None and temperature >= HOT_C:
        yield Severity.SEVERE if temperature >= TOO_HOT_C else Severity.WARNING, f"is at {temperature} °C"
    fields = ask("nvmlDeviceGetFieldValues", [_MEMORY_TEMPERATURE])
    if fields and fields[0].nvmlReturn == 0 and fields[0].value.uiVal >= HOT_MEMORY_C:
        yield Severity.WARNING, f"has memory at {fields[0].value.uiVal} °C"


def _ask(library: Any, name: str, *given: Any) -> Any:
    """The answer of one of the library's functions; None where it, or the GPU, does not have that."""
    function: Callable[..., Any] | None = getattr(library, name, None)
    if function is None:
        return None
    try:
        return function(*given)
    except library.NVMLError:
        return None


Ask = Callable[..., Any]


def _memory(library: Any, ask: Ask) -> Iterator[Finding]:
    """Uncorrectable errors since the driver was loaded, and rows that were or could not be remapped."""
    kind, since = getattr(library, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", 1), getattr(library, "NVML_VOLATILE_ECC", 0)
    errors = ask("nvmlDeviceGetTotalEccErrors", kind, since)
    if errors:
        yield Severity.SEVERE, f"had {errors} uncorrectable memory errors"
    rows = ask("nvmlDeviceGetRemappedRows")
    if rows is not None:
        _, _, pending, failed = (int(each) for each in rows)
        if failed:
            yield Severity.SEVERE, "could not remap a faulty row of its memory: replace it"
        elif pending:
            yield Severity.WARNING, "waits for a reset to remap a faulty row of its memory"


def _brakes(ask: Ask) -> Iterator[Finding]:
    reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    if reasons is None:
        return
    if reasons & _HW_POWER_BRAKE:
        yield Severity.WARNING, "is slowed down by the power brake: look at the power supply"
    if reasons & _HW_THERMAL:
        yield Severity.WARNING, "is slowed down by heat"
    elif reasons & _HW_SLOWDOWN and not reasons & _HW_POWER_BRAKE:
        yield Severity.WARNING, "is slowed down by its hardware"


def _clocks(ask: Ask) -> Iterator[Finding]:
    """A low clock under load that no power limit explains."""
    clock, most = ask("nvmlDeviceGetClockInfo", _SM_CLOCK), ask("nvmlDeviceGetMaxClockInfo", _SM_CLOCK)
    use = ask("nvmlDeviceGetUtilizationRates")
    if not clock or not most or use is None or use.gpu < BUSY_PERCENT or clock >= LOW_CLOCK * most:
        return
    if not (ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0) & _SW_CAPS:
        yield Severity.WARNING, f"runs at {clock} of {most} MHz under load"


def _links(library: Any, ask: Ask) -> Iterator[Finding]:
    """The width of the PCIe link, and NVLinks that are down beside others that are up."""
    width, most = ask("nvmlDeviceGetCurrPcieLinkWidth"), ask("nvmlDeviceGetMaxPcieLinkWidth")
    if width is not None and most is not None and width < most:
        yield Severity.WARNING, f"has a PCIe link of {width} lanes instead of {most}"
    states = [ask("nvmlDeviceGetNvLinkState", link) for link in range(getattr(library, "NVML_NVLINK_MAX_LINKS", 0))]
    known = [bool(state) for state in states if state is not None]
    if any(known) and not all(known):
        yield Severity.SEVERE, f"has {known.count(False)} of {len(known)} NVLinks down"
