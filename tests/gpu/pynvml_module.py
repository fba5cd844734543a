"""A stand-in for the module `pynvml`: the functions that Rota calls, answered from a file beside it.

Copied as `pynvml.py` into a folder that is named to Rota (`gpu.nvml`), it is found through the same path as NVIDIA's.
`state.json` there describes the GPUs; a test changes it while managers and supervisors read it. It imports the
standard library only, since supervisors know nothing else.
"""

# ruff: noqa: N802, N801, N816 - the names are the library's

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any

NVML_TEMPERATURE_GPU = 0
NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1
NVML_VOLATILE_ECC = 0
NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 138, 139
NVML_TOPOLOGY_SYSTEM = 50
NVML_NVLINK_MAX_LINKS = 18
NVML_GPU_INSTANCE_PROFILE_COUNT = 18
nvmlEventTypeXidCriticalError = 8
_STATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "state.json")


class NVMLError(Exception):
    """As the library's own."""


class NVMLError_NotSupported(NVMLError):
    """The device has no such thing."""


class NVMLError_Timeout(NVMLError):
    """No event has come."""


def _gpus() -> list[dict[str, Any]]:
    with open(_STATE, encoding="utf-8") as file:
        state = json.load(file)
    if state.get("lost"):
        raise NVMLError("GPU is lost")
    gpus: list[dict[str, Any]] = state["gpus"]
    return gpus


def _of(handle: Any, name: str) -> Any:
    """A value of a GPU, or of an instance of one; what the file leaves out is not supported."""
    found = _gpus()[handle] if isinstance(handle, int) else _gpus()[handle[0]]["mig"][handle[1]]
    if name not in found:
        raise NVMLError_NotSupported(name)
    return found[name]


def nvmlInit() -> None:
    _gpus()


def nvmlSystemGetDriverVersion() -> str:
    return "580.159.03"


def nvmlDeviceGetCount() -> int:
    return len(_gpus())


def nvmlDeviceGetHandleByIndex(index: int) -> Any:
    if index >= len(_gpus()):
        raise NVMLError(f"there is no GPU {index}")
    return index


def nvmlDeviceGetName(handle: Any) -> str:
    return str(_of(handle, "name"))


def nvmlDeviceGetUUID(handle: Any) -> str:
    return str(_of(handle, "uuid"))


def nvmlDeviceGetMinorNumber(handle: Any) -> int:
    return int(handle)


def nvmlDeviceGetMemoryInfo(handle: Any) -> Any:
    return SimpleNamespace(used=int(_of(handle, "used")), total=int(_of(handle, "total")))


def nvmlDeviceGetUtilizationRates(handle: Any) -> Any:
    return SimpleNamespace(gpu=int(_of(handle, "busy")), memory=int(_of(handle, "memory_busy")))


def nvmlDeviceGetComputeRunningProcesses(handle: Any) -> list[Any]:
    return [SimpleNamespace(pid=int(pid), usedGpuMemory=used) for pid, used in _of(handle, "processes").items()]


def nvmlDeviceGetProcessUtilization(handle: Any, since: int) -> list[Any]:
    """Samples that are newer: each has a time, a process and how busy it kept the SMs."""
    rows = [row for row in _of(handle, "process_busy") if row[0] > since]
    if not rows:
        raise NVMLError("not found")
    return [SimpleNamespace(timeStamp=at, pid=pid, smUtil=busy) for at, pid, busy in rows]


def nvmlDeviceGetTotalEnergyConsumption(handle: Any) -> int:
    return int(_of(handle, "energy_mj"))


def nvmlDeviceGetPowerUsage(handle: Any) -> int:
    return int(_of(handle, "power_mw"))


def nvmlDeviceGetTemperature(handle: Any, sensor: int) -> int:
    return int(_of(handle, "temperature"))


def nvmlDeviceGetClockInfo(handle: Any, clock: int) -> int:
    return int(_of(handle, {NVML_CLOCK_SM: "sm_mhz", NVML_CLOCK_MEM: "memory_mhz"}[clock]))


def nvmlDeviceGetPcieThroughput(handle: Any, counter: int) -> int:
    return int(_of(handle, "pcie_tx_kb" if counter == NVML_PCIE_UTIL_TX_BYTES else "pcie_rx_kb"))


def nvmlDeviceGetTotalEccErrors(handle: Any, kind: int, counter: int) -> int:
    return int(_of(handle, "ecc_corrected" if kind == NVML_MEMORY_ERROR_TYPE_CORRECTED else "ecc_uncorrected"))


def nvmlDeviceGetFieldValues(handle: Any, fields: list[Any]) -> list[Any]:
    names = {138: "nvlink_tx_kib", 139: "nvlink_rx_kib"}
    found = _gpus()[handle]
    return [
        SimpleNamespace(
            nvmlReturn=0 if names.get(one) in found else 3, value=SimpleNamespace(ullVal=found.get(names.get(one)))
        )
        for one in (each[0] if isinstance(each, tuple) else each for each in fields)
    ]


def nvmlEventSetCreate() -> dict[str, int]:
    return {"seen": 0}


def nvmlDeviceRegisterEvents(handle: Any, kinds: int, events: dict[str, int]) -> None:
    _of(handle, "xid")


def nvmlEventSetWait_v2(events: dict[str, int], timeout_ms: int) -> Any:
    """The next Xid of the file: each GPU lists its own, in order."""
    all_xids = [(index, number) for index, gpu in enumerate(_gpus()) for number in gpu.get("xid", ())]
    if events["seen"] >= len(all_xids):
        raise NVMLError_Timeout("timeout")
    index, number = all_xids[events["seen"]]
    events["seen"] += 1
    return SimpleNamespace(device=index, eventType=nvmlEventTypeXidCriticalError, eventData=number)


def nvmlDeviceGetPciInfo(handle: Any) -> Any:
    return SimpleNamespace(busId=str(_of(handle, "bus")).encode())


def nvmlDeviceGetTopologyCommonAncestor(one: Any, other: Any) -> int:
    return int(_of(one, "topology")[other])


def nvmlDeviceGetNvLinkState(handle: Any, link: int) -> int:
    links: list[Any] = _of(handle, "nvlinks")
    if link >= len(links):
        raise NVMLError("invalid argument")
    return 1


def nvmlDeviceGetNvLinkRemotePciInfo(handle: Any, link: int) -> Any:
    return SimpleNamespace(busId=str(_of(handle, "nvlinks")[link]).encode())


def nvmlDeviceGetMigMode(handle: Any) -> list[int]:
    instances, found = _of(handle, "mig"), _gpus()[handle]
    on = int(found.get("mig_mode", bool(instances)))
    return [on, on]


def nvmlDeviceGetGpuInstanceProfileInfo(handle: Any, profile: int, version: int) -> Any:
    offered = _of(handle, "mig_profiles")
    if profile >= len(offered):
        raise NVMLError_NotSupported("profile")
    name, count, mib = offered[profile]
    return SimpleNamespace(name=f"MIG {name}".encode(), instanceCount=count, memorySizeMB=mib)


def nvmlDeviceGetMaxMigDeviceCount(handle: Any) -> int:
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(handle: Any, index: int) -> Any:
    if index >= len(_of(handle, "mig")):
        raise NVMLError("not found")
    return (handle, index)
