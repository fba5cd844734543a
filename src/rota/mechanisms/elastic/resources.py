"""What stages need and what is free, of every kind of resource at once, as parts of all that there is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rota.core.model.job import WHOLE
from rota.core.state.inventory import Inventory
from rota.mechanisms.elastic.rule import Candidate

Floats = NDArray[np.float64]
KINDS = ("device", "cpu", "memory", "network", "disk")


def totals(inventory: Inventory) -> Floats:
    """All of each kind on nodes that are up; infinite where nodes do not count it."""
    sums = np.zeros(len(KINDS))
    for books in inventory.nodes:
        if books.up and not books.drained:
            node = books.node
            host = (node.cpu_milli, node.memory_bytes, node.network_bps, node.disk_bps)
            sums += (node.devices * WHOLE, *(np.inf if amount is None else amount for amount in host))
    return sums


def free(inventory: Inventory) -> Floats:
    """What of each kind is free on nodes that are usable."""
    sums = np.zeros(len(KINDS))
    for books in inventory.nodes:
        if books.usable:
            shared = sum(milli for milli, _ in books.shares.values())
            host = (books.cpu_milli, books.memory_bytes, books.network_bps, books.disk_bps)
            sums += (books.free * WHOLE + shared, *host)
    return sums


def need(found: Candidate, tasks: int) -> Floats:
    """What a job with so many tasks takes of each kind."""
    sums = np.zeros(len(KINDS))
    for role in found.live.job.roles:
        count = tasks if found.is_elastic else role.count
        host = (role.cpu_milli, role.memory_bytes, role.network_bps, role.disk_bps)
        sums += np.array([role.device_milli, *host], np.float64) * count
    return sums
