"""Instances of partitioned GPUs (MIG): devices of their own types, on a node for each profile.

A partitioned GPU can't be used as a whole. Tasks see an instance by its name (`MIG-...`), so the devices of every node
are named where at least one GPU is partitioned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rota.core.model.cluster import Node
from rota.core.model.job import DeviceType, NodeId

PROFILE_LABEL = "mig-profile"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDevice:
    """A whole GPU, or an instance of one."""

    uuid: str
    gpu: int
    """The index of the GPU that it is or belongs to."""
    profile: str = ""
    """Of an instance, such as `1g.18gb`; empty for a whole GPU."""
    memory_bytes: int = 0


DevicesByNode = Mapping[NodeId, tuple[NamedDevice, ...]]
"""The devices of each node by index; empty where no GPU is partitioned and indexes are those of the GPUs."""


def find_devices(library: Any) -> list[NamedDevice]:
    """Return whole GPUs and instances; nothing if no GPU is partitioned."""
    found: list[NamedDevice] = []
    is_partitioned = False
    for index in range(library.nvmlDeviceGetCount()):
        handle = library.nvmlDeviceGetHandleByIndex(index)
        if not has_instances(library, handle):
            found.append(whole_gpu(library, handle, index))
            continue
        is_partitioned = True
        found.extend(instances_of(library, handle, index))
    return found if is_partitioned else []


def nodes_of(devices: Sequence[NamedDevice], host: Node) -> tuple[tuple[Node, ...], DevicesByNode]:
    """Return the host with its whole GPUs, a node for each profile of instances, and the devices of each by index."""
    whole = tuple(device for device in devices if not device.profile)
    by_node: dict[NodeId, tuple[NamedDevice, ...]] = {host.id: whole}
    nodes = [_with_devices(host, len(whole))]
    for profile in sorted({device.profile for device in devices if device.profile}):
        mine = tuple(device for device in devices if device.profile == profile)
        node = Node(
            id=NodeId(f"{host.id}-{profile}"),
            device_type=DeviceType(f"{host.device_type}-{profile}"),
            devices=len(mine),
            device_memory_bytes=min(device.memory_bytes for device in mine),
            rack=host.rack,
            domain=host.domain,
            labels=((PROFILE_LABEL, profile),),
        )
        nodes.append(node)
        by_node[node.id] = mine
    return tuple(nodes), by_node


def _with_devices(host: Node, devices: int) -> Node:
    return replace(host, devices=devices, sockets=host.sockets if sum(host.sockets) == devices else ())


def whole_gpu(library: Any, handle: Any, index: int) -> NamedDevice:
    """Return a GPU that is not partitioned, by name."""
    memory = int(library.nvmlDeviceGetMemoryInfo(handle).total)
    return NamedDevice(uuid=text_of(library.nvmlDeviceGetUUID(handle)), gpu=index, memory_bytes=memory)


def has_instances(library: Any, handle: Any) -> bool:
    """Return whether a GPU is partitioned, into however many instances."""
    try:
        return bool(library.nvmlDeviceGetMigMode(handle)[0])
    except library.NVMLError:  # it can't be partitioned
        return False


def instances_of(library: Any, handle: Any, index: int) -> list[NamedDevice]:
    """Return the instances of a partitioned GPU."""
    found = []
    for number in range(library.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instance = library.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except library.NVMLError:
            continue
        name = text_of(library.nvmlDeviceGetName(instance))
        found.append(
            NamedDevice(
                uuid=text_of(library.nvmlDeviceGetUUID(instance)),
                gpu=index,
                profile=name.rpartition(" ")[2],
                memory_bytes=int(library.nvmlDeviceGetMemoryInfo(instance).total),
            )
        )
    return found


def text_of(value: str | bytes) -> str:
    """Return what NVML says as text."""
    return value if isinstance(value, str) else value.decode()
