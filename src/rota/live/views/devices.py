"""Devices by type: busy, idle, out of order."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.model.job import WHOLE
from rota.core.state.inventory import Inventory


@dataclass(slots=True)
class Count:
    """Devices of one type. Fractions of devices count as fractions."""

    device_type: str
    total: int = 0
    busy: float = 0.0
    bad: int = 0
    """On nodes that are down or drained, and not in use."""
    scattered: int = 0
    """Idle, on nodes that hold other jobs."""

    @property
    def idle(self) -> float:
        """Neither allocated nor out of order."""
        return max(self.total - self.busy - self.bad, 0.0)


def count_devices(inventory: Inventory) -> list[Count]:
    """All devices by type."""
    counts: dict[str, Count] = {}
    for books in inventory.nodes:
        if not books.node.devices or books.removed:
            continue
        count = counts.setdefault(books.node.device_type, Count(books.node.device_type))
        count.total += books.node.devices
        if not books.up:
            count.bad += books.node.devices
            continue
        whole = books.node.devices - books.free - len(books.shares)
        count.busy += whole + sum(WHOLE - left for left, _ in books.shares.values()) / WHOLE
        if books.drained:
            count.bad += books.free
        elif books.users:
            count.scattered += books.free
    return list(counts.values())
