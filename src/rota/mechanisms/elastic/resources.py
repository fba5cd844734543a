"""Vectors of all resources: what stages request, what is free and what exists."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rota.core.model.job import WHOLE
from rota.core.state.inventory import Inventory
from rota.mechanisms.elastic.rule import Candidate

Floats = NDArray[np.float64]
KINDS = ("device", "cpu", "memory", "network", "disk")


def totals(inventory: Inventory) -> Floats:
    """Return the total of each resource on nodes that are up; infinite where nodes do not count it."""
    sums = np.zeros(len(KINDS))
    for account in inventory.nodes:
        if account.up and not account.drained:
            node = account.node
            host = (node.cpu_milli, node.memory_bytes, node.network_bps, node.disk_bps)
            sums += (node.devices * WHOLE, *(np.inf if amount is None else amount for amount in host))
    return sums


def free(inventory: Inventory) -> Floats:
    """Return what is free of each resource on schedulable nodes."""
    sums = np.zeros(len(KINDS))
    for account in inventory.nodes:
        if account.usable:
            shared = sum(milli for milli, _ in account.shares.values())
            host = (account.cpu_milli, account.memory_bytes, account.network_bps, account.disk_bps)
            sums += (account.free * WHOLE + shared, *host)
    return sums


def need(found: Candidate, tasks: int) -> Floats:
    """Return what a job with that many tasks requests of each resource."""
    sums = np.zeros(len(KINDS))
    for role in found.live.job.roles:
        count = tasks if found.is_elastic else role.count
        host = (role.cpu_milli, role.memory_bytes, role.network_bps, role.disk_bps)
        sums += np.array([role.device_milli, *host], np.float64) * count
    return sums
