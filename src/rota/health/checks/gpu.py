"""Checks of the GPUs by NVIDIA's library: memory errors, brakes, clocks, links and temperatures.

Xids are looked for in the kernel's log; a manager also hears of them as they happen. NVLinks that no bridge or switch
connects are always down: one is at fault only if it was up before, or is up at the other GPUs of the node.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
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

LINKS = "nvlinks-seen.json"
"""How many NVLinks of each GPU were up at most."""

Finding = tuple[Severity, str]


def check_gpus(library: Any, folder: str | None = None) -> CheckResult:
    """All GPUs that `pynvml`, or what stands in for it, shows; the folder remembers the NVLinks that were up."""
    try:
        library.nvmlInit()
        count = library.nvmlDeviceGetCount()
    except library.NVMLError as error:
        return CheckResult(check="gpu", severity=Severity.SEVERE, text=f"NVML does not work: {error}")
    found: list[Finding] = []
    links: dict[str, tuple[int, int]] = {}
    for index in range(count):
        try:
            handle = library.nvmlDeviceGetHandleByIndex(index)
            uuid = str(library.nvmlDeviceGetUUID(handle))
        except library.NVMLError as error:
            found.append((Severity.SEVERE, f"GPU {index} does not answer: {error}"))
            continue
        found += [(severity, f"GPU {index} {words}") for severity, words in _of_gpu(library, handle)]
        links[uuid] = (index, _links_up(library, handle))
    found += _links_down(links, None if folder is None else Path(folder) / LINKS)
    return worst_of("gpu", found, {"gpus": count})


def _of_gpu(library: Any, handle: Any) -> Iterator[Finding]:
    def ask(name: str, *more: Any) -> Any:
        return _ask(library, name, handle, *more)

    yield from _memory(library, ask)
    yield from _brakes(ask)
    yield from _clocks(ask)
    yield from _pcie(ask)
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


def _pcie(ask: Ask) -> Iterator[Finding]:
    width, most = ask("nvmlDeviceGetCurrPcieLinkWidth"), ask("nvmlDeviceGetMaxPcieLinkWidth")
    if width is not None and most is not None and width < most:
        yield Severity.WARNING, f"has a PCIe link of {width} lanes instead of {most}"


def _links_up(library: Any, handle: Any) -> int:
    count = getattr(library, "NVML_NVLINK_MAX_LINKS", 0)
    return sum(bool(_ask(library, "nvmlDeviceGetNvLinkState", handle, link)) for link in range(count))


def _links_down(links: Mapping[str, tuple[int, int]], kept: Path | None) -> Iterator[Finding]:
    """GPUs with fewer NVLinks than they had before, or than the others have."""
    before = _links_before(kept)
    usual = max((up for _, up in links.values()), default=0)
    for uuid, (index, up) in links.items():
        had = before.get(uuid, up)
        if up < had:
            yield Severity.SEVERE, f"GPU {index} has {had - up} of {had} NVLinks down"
        elif 0 < up < usual:
            yield Severity.WARNING, f"GPU {index} has {up} NVLinks, others have {usual}"
    now = {uuid: max(up, before.get(uuid, 0)) for uuid, (_, up) in links.items()}
    if kept is not None and now != before:
        fresh = kept.with_suffix(f".{os.getpid()}")
        try:
            fresh.write_text(json.dumps(now), encoding="utf-8")
            fresh.replace(kept)
        except OSError:  # the next check knows as little
            fresh.unlink(missing_ok=True)


def _links_before(kept: Path | None) -> dict[str, int]:
    try:
        known = {} if kept is None else json.loads(kept.read_text(encoding="utf-8"))
        return {str(uuid): int(up) for uuid, up in known.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
