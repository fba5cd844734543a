"""The CPUs, memory and GPUs of this machine, and how long a job may take to stop here."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import DeviceType, NodeId
from rota.drivers.local.confinement.device_rules import DeviceNumber, number_of
from rota.drivers.local.gpu.mig import NamedDevice, find_devices, nodes_of
from rota.drivers.local.gpu.mig_layouts import PROGRAM as SMI
from rota.drivers.local.gpu.mig_layouts import MigLayouts, MigPool
from rota.drivers.local.gpu.topology import GpuTopology, find_topology
from rota.drivers.local.task_runner.nvml import find_nvml, load_pynvml

if TYPE_CHECKING:
    from rota.files.job_shape import JobFile

MOST_GRACE_S = 3600.0
"""How long a job may take to save when it is stopped for others."""


def this_machine(nvml: str | None = None, pool: MigPool | None = None) -> Cluster:
    """Return this machine as one node, and more where GPUs are partitioned or may be (`pool`).

    `nvml` is where `pynvml` lies, if not where Rota's own packages are.
    """
    device_type, devices, device_memory = _gpus(nvml)
    attached = topology(nvml)
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    node = Node(
        id=NodeId(socket.gethostname() or "localhost"),
        device_type=DeviceType(device_type),
        devices=devices,
        device_memory_bytes=device_memory,
        cpu_milli=len(os.sched_getaffinity(0)) * 1000,
        memory_bytes=pages * page,
        sockets=attached.sockets if sum(attached.sockets) == devices else (),
        labels=attached.labels,
    )
    if pool is not None:
        return Cluster(nodes=mig_layouts(node, pool, nvml).nodes)
    return Cluster(nodes=nodes_of(found, node)[0] if (found := named_devices(nvml)) else (node,))


def mig_layouts(host: Node, pool: MigPool, nvml: str | None = None) -> MigLayouts:
    """Return the GPUs of this machine that may be repartitioned; raise a `RotaError` that says why if they can't be."""
    if find_nvml(None, nvml) is None:
        raise RotaError("gpu.mig: there is no NVIDIA GPU here; leave it out")
    if shutil.which(SMI) is None:
        raise RotaError(
            f"gpu.mig: {SMI} is not installed, by which GPUs are repartitioned; install it, or leave it out"
        )
    return MigLayouts(load_pynvml(nvml), host, pool)


def named_devices(nvml: str | None = None) -> list[NamedDevice]:
    """Return whole GPUs and instances of partitioned ones by name; nothing where no GPU is partitioned."""
    if find_nvml(None, nvml) is None:
        return []
    library = load_pynvml(nvml)
    try:
        return find_devices(library)
    except library.NVMLError:
        return []


def _gpus(nvml: str | None) -> tuple[str, int, int | None]:
    """Type, number and memory of the GPUs, by NVIDIA's library; none where there is no driver."""
    found = find_nvml(None, nvml)
    if found is None:
        return "gpu", 0, None
    name, memory_bytes = found.about()
    return _short(name), len(found), memory_bytes


def topology(nvml: str | None = None) -> GpuTopology:
    """Return where the GPUs of this machine are attached; empty where there are none."""
    if find_nvml(None, nvml) is None:
        return GpuTopology()
    library = load_pynvml(nvml)
    try:
        return find_topology(library)
    except library.NVMLError:
        return GpuTopology()


def nvml_folder() -> str | None:
    """Where the module lies by which supervisors see the GPUs of this machine; None if it has none."""
    if find_nvml() is None:
        return None
    import pynvml

    return str(Path(pynvml.__file__).parent)


def device_nodes(pattern: str | None, *, emulated: bool) -> tuple[DeviceNumber | None, ...]:
    """Return the node of each device, by index: by a path with `{index}` in it, or as NVIDIA's library has them."""
    if pattern is not None:
        return _nodes_by_path(pattern)
    found = None if emulated else find_nvml()
    return () if found is None else tuple(number_of(f"/dev/nvidia{minor}") for minor in found.minor_numbers())


def _nodes_by_path(pattern: str) -> tuple[DeviceNumber | None, ...]:
    if "{index}" not in pattern:
        raise RotaError(f"device_nodes is {pattern!r}; write {{index}} where the number of the device goes")
    nodes: list[DeviceNumber | None] = []
    while (found := number_of(pattern.replace("{index}", str(len(nodes))))) is not None:
        nodes.append(found)
    if not nodes:
        raise RotaError(f"device_nodes is {pattern!r}; there is no device node {pattern.replace('{index}', '0')}")
    return tuple(nodes)


def _short(name: str) -> str:
    """`NVIDIA H100 80GB HBM3` is `H100`: the word that has a digit, as people write it in a job file."""
    words = [word for word in name.replace("-", " ").split() if any(char.isdigit() for char in word)]
    return words[0] if words else name.replace(" ", "-")


def refuse_what_cannot_be(file: JobFile) -> None:
    """Raise a `RotaError` that names the field if tasks of this machine can't have what a job asks for."""
    if file.checkpoint is not None and file.checkpoint.grace > MOST_GRACE_S:
        raise RotaError(
            f"job: checkpoint.grace is {file.checkpoint.grace:g} s; a job may take at most {MOST_GRACE_S:g} s to stop"
        )
