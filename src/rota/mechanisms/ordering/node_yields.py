"""What a node's holders would give back, the last in order first: the sums after each of them.

Many waiting jobs ask for the same node at the same moment, each with a key of its own; the sums are made once.
"""

from __future__ import annotations

from collections.abc import Iterable

from rota.core.model.job import WHOLE
from rota.core.model.placement import device_indexes
from rota.core.state.job_record import LiveJob

Key = tuple[float, ...]


class NodeYield:
    """Running sums over the holders of a node, whose keys all move along the same slope."""

    __slots__ = ("cpu_milli", "devices", "disk_bps", "keys", "memory_bytes", "network_bps", "shares", "slope")

    def __init__(self, slope: float) -> None:
        self.slope = slope
        self.keys: list[Key] = []
        """The holders' keys as at time 0, the last in order first."""
        self.cpu_milli = [0]
        """What is given back by none, by the first, by the first two, and so on."""
        self.memory_bytes = [0]
        self.network_bps = [0]
        self.disk_bps = [0]
        self.devices = [0]
        """Whole devices, as bit sets."""
        self.shares: list[dict[int, int]] = [{}]
        """Thousandths of devices, by device."""

    def add(self, key: Key, live: LiveJob, node: int) -> None:
        """Add the holder that is next to give back what it holds on the node."""
        cpu_milli, memory_bytes = self.cpu_milli[-1], self.memory_bytes[-1]
        network_bps, disk_bps = self.network_bps[-1], self.disk_bps[-1]
        devices, shares = self.devices[-1], self.shares[-1]
        for slot in live.placement or ():
            if slot.node != node:
                continue
            held = live.job.roles[slot.role]
            cpu_milli += held.cpu_milli * slot.tasks
            memory_bytes += held.memory_bytes * slot.tasks
            network_bps += held.network_bps * slot.tasks
            disk_bps += held.disk_bps * slot.tasks
            if slot.milli == WHOLE:
                devices |= slot.devices
                continue
            shares = dict(shares)
            for device in device_indexes(slot.devices):
                shares[device] = shares.get(device, 0) + slot.milli
        self.keys.append(key)
        self.cpu_milli.append(cpu_milli)
        self.memory_bytes.append(memory_bytes)
        self.network_bps.append(network_bps)
        self.disk_bps.append(disk_bps)
        self.devices.append(devices)
        self.shares.append(shares)


def yields_of(node: int, holders: Iterable[tuple[LiveJob, Key, float]]) -> list[NodeYield]:
    """The sums over the holders of a node, by slope."""
    by_slope: dict[float, list[tuple[Key, LiveJob]]] = {}
    for live, key, slope in holders:
        by_slope.setdefault(slope, []).append((key, live))
    found = []
    for slope, entries in by_slope.items():
        entries.sort(reverse=True)
        made = NodeYield(slope)
        for key, live in entries:
            made.add(key, live, node)
        found.append(made)
    return found
