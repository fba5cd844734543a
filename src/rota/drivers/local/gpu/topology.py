"""Where the GPUs of this machine are attached: NVLink, PCIe switches and NUMA nodes, by NVML and the kernel.

Placement keeps the GPUs of a task within one group where it can. Groups are NVLink islands where NVLink joins some GPUs
but not all, else PCIe switches, else NUMA nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SWITCH = 20
"""NVML's level up to which two GPUs have only PCIe switches between them, no host bridge."""
_MOST_LINKS = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTopology:
    """The GPUs by index: NUMA nodes, CPUs beside them, and groups that are close to each other."""

    numa: tuple[int | None, ...] = ()
    cpus: tuple[tuple[int, ...], ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    joined_by: str = ""
    """What joins the GPUs of a group: `nvlink`, `switch` or `numa`; empty if there is only one group."""

    @property
    def sockets(self) -> tuple[int, ...]:
        """The sizes of the groups in the order of the GPUs; empty where they are not next to each other by index."""
        flat = [index for group in self.groups for index in group]
        return tuple(len(group) for group in self.groups) if len(self.groups) > 1 and flat == sorted(flat) else ()

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """What is known about the machine, as labels of its node."""
        nodes = {node for node in self.numa if node is not None}
        found = [("gpu-groups", self.joined_by)] if self.joined_by else []
        return tuple(found + ([("numa-nodes", str(len(nodes)))] if nodes else []))

    def cpus_near(self, gpus: Sequence[int]) -> list[int]:
        """Return the CPUs beside some GPUs; empty where all CPUs are, or where that is not known."""
        nodes = {node for node in self.numa if node is not None}
        near = {cpu for gpu in gpus if gpu < len(self.cpus) for cpu in self.cpus[gpu]}
        return sorted(near) if len(nodes) > 1 else []

    def memory_near(self, gpus: Sequence[int]) -> int | None:
        """Return the NUMA node whose memory is beside some GPUs; None where there is no single one."""
        nodes = {self.numa[gpu] for gpu in gpus if gpu < len(self.numa)}
        several = len({node for node in self.numa if node is not None}) > 1
        return nodes.pop() if len(nodes) == 1 and several else None


def find_topology(library: Any, sysfs: Path = Path("/sys")) -> GpuTopology:
    """Return where GPUs are attached, as far as NVML and the kernel tell."""
    handles = [library.nvmlDeviceGetHandleByIndex(index) for index in range(library.nvmlDeviceGetCount())]
    buses = [_bus(library, handle) for handle in handles]
    numa = tuple(_numa(sysfs, bus) for bus in buses)
    count = len(handles)
    for joined_by, are_close in (
        ("nvlink", _by_nvlink(library, handles, buses)),
        ("switch", _by_switch(library, handles)),
        ("numa", lambda one, other: numa[one] is not None and numa[one] == numa[other]),
    ):
        groups = _groups(count, are_close)
        if 1 < len(groups) < count:
            return GpuTopology(numa=numa, cpus=_cpus(sysfs, buses), groups=groups, joined_by=joined_by)
    return GpuTopology(numa=numa, cpus=_cpus(sysfs, buses), groups=(tuple(range(count)),) if count else ())


def _groups(count: int, are_close: Callable[[int, int], bool]) -> tuple[tuple[int, ...], ...]:
    """Return the GPUs that are connected with each other, directly or by others."""
    group_of = list(range(count))
    for one in range(count):
        for other in range(one + 1, count):
            if group_of[one] != group_of[other] and are_close(one, other):
                old = group_of[other]
                group_of = [group_of[one] if each == old else each for each in group_of]
    return tuple(
        tuple(index for index in range(count) if group_of[index] == group) for group in dict.fromkeys(group_of)
    )


def _by_nvlink(library: Any, handles: Sequence[Any], buses: Sequence[str]) -> Callable[[int, int], bool]:
    ends = [_link_ends(library, handle) for handle in handles]

    def are_close(one: int, other: int) -> bool:
        """Joined by a link, or both to an NVSwitch, which is none of the GPUs."""
        switches = (ends[one] & ends[other]) - set(buses)
        return buses[other] in ends[one] or buses[one] in ends[other] or bool(switches)

    return are_close


def _link_ends(library: Any, handle: Any) -> set[str]:
    found: set[str] = set()
    for link in range(_MOST_LINKS):
        try:
            if library.nvmlDeviceGetNvLinkState(handle, link):
                found.add(_short_bus(library.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId))
        except library.NVMLError:
            break
    return found


def _by_switch(library: Any, handles: Sequence[Any]) -> Callable[[int, int], bool]:
    def are_close(one: int, other: int) -> bool:
        try:
            return int(library.nvmlDeviceGetTopologyCommonAncestor(handles[one], handles[other])) <= SWITCH
        except library.NVMLError:
            return False

    return are_close


def _bus(library: Any, handle: Any) -> str:
    try:
        return _short_bus(library.nvmlDeviceGetPciInfo(handle).busId)
    except library.NVMLError:
        return ""


def _short_bus(bus: str | bytes) -> str:
    """`00000000:3B:00.0`, as NVML writes it, is `0000:3b:00.0` for the kernel."""
    text = (bus if isinstance(bus, str) else bus.decode()).lower()
    domain, _, rest = text.partition(":")
    return f"{domain[-4:]}:{rest}"


def _numa(sysfs: Path, bus: str) -> int | None:
    try:
        node = int((sysfs / "bus/pci/devices" / bus / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _cpus(sysfs: Path, buses: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    found = []
    for bus in buses:
        try:
            found.append(cpu_list((sysfs / "bus/pci/devices" / bus / "local_cpulist").read_text()))
        except (OSError, ValueError):
            found.append(())
    return tuple(found)


def cpu_list(text: str) -> tuple[int, ...]:
    """Return the CPUs in a list as the kernel writes it, such as `0-3,8`."""
    cpus: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(cpus)
