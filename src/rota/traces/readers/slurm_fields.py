"""The little languages inside Slurm's fields: durations, amounts of memory, trackable resources."""

from __future__ import annotations

import re

from rota.core.model.job import WHOLE, DeviceType, Role
from rota.traces.assemble import Shape, shape_of, spread_over_nodes
from rota.traces.fields import amount, bad, whole

ABSENT = frozenset({"", "None", "Unknown", "INVALID"})
UNBOUNDED = frozenset({"UNLIMITED", "Partition_Limit"})
_DURATION = re.compile(r"(?:(?P<days>\d+)-)?(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+(?:\.\d+)?)")
_MEMORY = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[KMGTP]?)(?P<per>[nc]?)")
_GPU = re.compile(r"(?:gres/)?gpu(?::(?P<type>[^:=(]+))?[:=](?P<count>\d+)(?:\(.*)?")
_BYTES = {"K": 2**10, "": 2**20, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


def elapsed_s(field: str, text: str) -> float | None:
    """Seconds of a duration: `90`, `01:30`, `1-02:30:00`; None where there is no bound or no value."""
    if text in ABSENT or text in UNBOUNDED:
        return None
    found = _DURATION.fullmatch(text)
    if found is None:
        if ":" in text or "-" in text[1:]:
            raise bad(field, text, "a duration such as 1-02:30:00")
        return amount(field, text)
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def resources_shape(resources: str, nodes: str, cpus: str, memory: str) -> Shape:
    """A job's shape from its resources (`cpu=8,gres/gpu:a100=2,mem=64G`) and the columns beside them."""
    named = dict(part.split("=", 1) for part in resources.split(",") if "=" in part)
    gpus, device_type = _devices(resources)
    node_count = whole("NNodes", nodes or named.get("node", "1"), at_least=1)
    cpu_count = whole("NCPUS", cpus or named.get("cpu", "0"))
    if "mem" in named:
        memory_bytes = _memory_bytes("mem", named["mem"], node_count, cpu_count)
    else:
        memory_bytes = _memory_bytes("ReqMem", memory, node_count, cpu_count)
    shape = spread_over_nodes(gpus, node_count, cpu_milli=cpu_count * WHOLE, memory_bytes=memory_bytes)
    if device_type is None:
        return shape
    role = shape[0][0]
    return shape_of(
        Role(
            count=role.count,
            device_milli=role.device_milli,
            device_types=(DeviceType(device_type),),
            cpu_milli=role.cpu_milli,
            memory_bytes=role.memory_bytes,
        )
    )


def _devices(resources: str) -> tuple[int, str | None]:
    """Devices of a job and their type; the untyped count is the whole where both are given."""
    total = 0
    typed: dict[str, int] = {}
    for part in resources.split(","):
        if "gpu" not in part or "gpumem" in part or "gpuutil" in part:
            continue
        found = _GPU.fullmatch(part)
        if found is None:
            raise bad("TRES", part, "gres/gpu=N or gres/gpu:TYPE=N")
        if found["type"] is None:
            total += int(found["count"])
        else:
            typed[found["type"]] = typed.get(found["type"], 0) + int(found["count"])
    only_type = next(iter(typed)) if len(typed) == 1 else None
    return total or sum(typed.values()), only_type


def _memory_bytes(field: str, text: str, nodes: int, cpus: int) -> int:
    """Memory of the whole job; older records say it per node (`4Gn`) or per CPU (`4Gc`)."""
    if text in ABSENT:
        return 0
    found = _MEMORY.fullmatch(text)
    if found is None:
        raise bad(field, text, "an amount of memory such as 64G")
    times = {"n": nodes, "c": cpus, "": 1}[found["per"]]
    return int(float(found["number"]) * _BYTES[found["unit"]]) * times
