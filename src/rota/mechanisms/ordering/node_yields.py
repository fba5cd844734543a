"""What a node's holders would give back, the last in order first: the sums after each of them.

Many waiting jobs ask for the same node at the same moment, each with a key of its own; the sums are made once.
"""

from __future__ import annotations

from collections.abc import Iterable

from rota.core.model.job import WHOLE
from rota.core.model.placement import device_indexes
from rota.core.state.job_record import LiveJob
from rota.core.state.node_accounts import NodeAccount
from rota.mechanisms.ordering.needs import Need

Key = tuple[float, ...]


class NodeClaim:
    """What one job holds of one node, with the key and the slope by which it is ordered among the holders."""

    __slots__ = ("cpu_milli", "devices", "disk_bps", "key", "memory_bytes", "network_bps", "shares", "slope")

    def __init__(self, key: Key, slope: float) -> None:
        self.key = key
        """As at time 0; ends in the job's seq, so that no two are equal."""
        self.slope = slope
        self.cpu_milli = 0
        self.memory_bytes = 0
        self.network_bps = 0
        self.disk_bps = 0
        self.devices = 0
        """Whole devices, as a bit set."""
        self.shares: dict[int, int] | None = None
        """Thousandths of other devices, by device; None if it holds none."""

    def share(self, devices: int, milli: int) -> None:
        """Add fractions of devices."""
        shares = self.shares
        if shares is None:
            shares = self.shares = {}
        for device in device_indexes(devices):
            shares[device] = shares.get(device, 0) + milli


def claims_of(live: LiveJob, key: Key, slope: float) -> dict[int, NodeClaim]:
    """What a job holds, by node."""
    claims: dict[int, NodeClaim] = {}
    roles = live.job.roles
    for node, devices, tasks, role_index, milli, _, _ in live.placement or ():
        claim = claims.get(node)
        if claim is None:
            claim = claims[node] = NodeClaim(key, slope)
        role = roles[role_index]
        if role.needs_host:
            claim.cpu_milli += role.cpu_milli * tasks
            claim.memory_bytes += role.memory_bytes * tasks
            claim.network_bps += role.network_bps * tasks
            claim.disk_bps += role.disk_bps * tasks
        if milli == WHOLE:
            claim.devices |= devices
        else:
            claim.share(devices, milli)
    return claims


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
        self.shares: list[dict[int, int] | None] = [None]
        """Thousandths of devices, by device."""

    def add(self, claim: NodeClaim) -> None:
        """Add the claim that is next to be given back."""
        self.keys.append(claim.key)
        self.cpu_milli.append(self.cpu_milli[-1] + claim.cpu_milli)
        self.memory_bytes.append(self.memory_bytes[-1] + claim.memory_bytes)
        self.network_bps.append(self.network_bps[-1] + claim.network_bps)
        self.disk_bps.append(self.disk_bps[-1] + claim.disk_bps)
        self.devices.append(self.devices[-1] | claim.devices)
        shares = self.shares[-1]
        self.shares.append(shares if claim.shares is None else sum_of(shares, claim.shares))


def sum_of(these: dict[int, int] | None, those: dict[int, int]) -> dict[int, int]:
    """Thousandths of devices of two sources together."""
    if these is None:
        return those
    found = dict(these)
    for device, milli in those.items():
        found[device] = found.get(device, 0) + milli
    return found


def yields_of(claims: Iterable[NodeClaim]) -> list[NodeYield]:
    """The sums over the claims on a node, by slope."""
    by_slope: dict[float, list[tuple[Key, NodeClaim]]] = {}
    for claim in claims:
        by_slope.setdefault(claim.slope, []).append((claim.key, claim))
    found = []
    for slope, entries in by_slope.items():
        entries.sort(reverse=True)
        made = NodeYield(slope)
        for _, claim in entries:
            made.add(claim)
        found.append(made)
    return found


class NodeSum:
    """What several jobs would give back of one node, added up one after the other."""

    __slots__ = ("cpu_milli", "devices", "disk_bps", "memory_bytes", "network_bps", "shares")

    def __init__(self) -> None:
        self.cpu_milli = 0
        self.memory_bytes = 0
        self.network_bps = 0
        self.disk_bps = 0
        self.devices = 0
        self.shares: dict[int, int] | None = None

    def add(self, claim: NodeClaim) -> None:
        """Add what one job holds."""
        self.cpu_milli += claim.cpu_milli
        self.memory_bytes += claim.memory_bytes
        self.network_bps += claim.network_bps
        self.disk_bps += claim.disk_bps
        self.devices |= claim.devices
        if claim.shares is not None:
            self.shares = sum_of(self.shares, claim.shares)

    def has_room(self, need: Need, account: NodeAccount) -> bool:
        """Whether a task fits on the node once all of that is given back, or an exclusive job keeps that from view."""
        if account.locked:
            return True
        return account.usable and need.is_met(
            account,
            self.cpu_milli,
            self.memory_bytes,
            self.network_bps,
            self.disk_bps,
            self.devices,
            self.shares,
        )
