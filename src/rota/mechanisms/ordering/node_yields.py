"""What a node's holders would give back, the last in order first: the sums after each of them.

Many waiting jobs ask for the same node at the same moment, each with a key of its own; the sums are made once, and
kept until a holder comes or goes before them in order.
"""

from __future__ import annotations

from bisect import bisect_left

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


class NodeSum:
    """What several jobs would give back of one node."""

    __slots__ = (
        "_share_milli",
        "_stamp",
        "_whole_milli",
        "cpu_milli",
        "devices",
        "disk_bps",
        "memory_bytes",
        "network_bps",
        "shares",
    )

    def __init__(self) -> None:
        self.cpu_milli = 0
        self.memory_bytes = 0
        self.network_bps = 0
        self.disk_bps = 0
        self.devices = 0
        self.shares: dict[int, int] | None = None
        self._stamp = -1
        """The state of the node for which the following were found."""
        self._whole_milli = 0
        """Thousandths of the devices that would be wholly free."""
        self._share_milli = 0
        """Thousandths of the emptiest other device."""

    def add(self, claim: NodeClaim) -> None:
        """Add what one job holds."""
        self.cpu_milli += claim.cpu_milli
        self.memory_bytes += claim.memory_bytes
        self.network_bps += claim.network_bps
        self.disk_bps += claim.disk_bps
        self.devices |= claim.devices
        self._stamp = -1
        if claim.shares is not None:
            self.shares = sum_of(self.shares, claim.shares)

    def and_also(self, claim: NodeClaim) -> NodeSum:
        """The sum with what another job holds; this one stays as it is."""
        found = NodeSum()
        found.cpu_milli = self.cpu_milli
        found.memory_bytes = self.memory_bytes
        found.network_bps = self.network_bps
        found.disk_bps = self.disk_bps
        found.devices = self.devices
        found.shares = self.shares
        found.add(claim)
        return found

    def merge(self, other: NodeSum) -> None:
        """Add what other jobs hold."""
        self.cpu_milli += other.cpu_milli
        self.memory_bytes += other.memory_bytes
        self.network_bps += other.network_bps
        self.disk_bps += other.disk_bps
        self.devices |= other.devices
        self._stamp = -1
        if other.shares is not None:
            self.shares = sum_of(self.shares, other.shares)

    def has_room(self, need: Need, account: NodeAccount) -> bool:
        """Whether a task fits on the node once all of that is given back, or an exclusive job keeps that from view."""
        if account.locked:
            return True
        if not account.usable:
            return False
        cpu_milli = need.cpu_milli
        if cpu_milli and account.cpu_milli + self.cpu_milli < cpu_milli:
            return False
        milli = need.device_milli
        if milli:
            if self._stamp != account.stamp:
                self._look_at_devices(account)
            if milli > self._whole_milli and milli > self._share_milli:
                return False
        if need.memory_bytes and account.memory_bytes + self.memory_bytes < need.memory_bytes:
            return False
        if need.network_bps and account.network_bps + self.network_bps < need.network_bps:
            return False
        return not need.disk_bps or account.disk_bps + self.disk_bps >= need.disk_bps

    def _look_at_devices(self, account: NodeAccount) -> None:
        """Find the devices that would be free, whole or in part."""
        whole = (account.free_mask | self.devices).bit_count()
        most = 0
        given = self.shares
        for device, left in account.shares.items():
            milli = left[0]
            if given is not None:
                milli += given.get(device, 0)
            if milli >= WHOLE:
                whole += 1
            elif milli > most:
                most = milli
        self._whole_milli = whole * WHOLE
        self._share_milli = most
        self._stamp = account.stamp


def sum_of(these: dict[int, int] | None, those: dict[int, int]) -> dict[int, int]:
    """Thousandths of devices of two sources together."""
    if these is None:
        return those
    found = dict(these)
    for device, milli in those.items():
        found[device] = found.get(device, 0) + milli
    return found


class NodeYield:
    """The claims of a node's holders whose keys move along the same slope, and what the last of them give back."""

    __slots__ = ("_claims", "_sums", "keys", "slope")

    def __init__(self, slope: float) -> None:
        self.slope = slope
        self.keys: list[Key] = []
        """The holders' keys as at time 0, the last in order last."""
        self._claims: list[NodeClaim] = []
        self._sums: list[NodeSum] = [NodeSum()]
        """What is given back by none, by the last, by the last two, and so on, as far as it was asked for."""

    def add(self, claim: NodeClaim) -> None:
        """Enter a holder's claim."""
        at = bisect_left(self.keys, claim.key)
        self._forget_from(len(self.keys) - at + 1)
        self.keys.insert(at, claim.key)
        self._claims.insert(at, claim)

    def remove(self, claim: NodeClaim) -> None:
        """Strike a claim out."""
        at = bisect_left(self.keys, claim.key)
        self._forget_from(len(self.keys) - at)
        del self.keys[at]
        del self._claims[at]

    def count_after(self, key: Key) -> int:
        """How many keys, as at time 0, come after one."""
        keys = self.keys
        first = key[0]
        at = len(keys)
        while at:
            stored = keys[at - 1]
            # The first numbers mostly decide, and cost less to compare than keys.
            if stored[0] < first or (stored[0] == first and stored <= key):
                break
            at -= 1
        return len(keys) - at

    def given(self, count: int) -> NodeSum:
        """What the last so many holders give back together."""
        sums = self._sums
        while len(sums) <= count:
            sums.append(sums[-1].and_also(self._claims[-len(sums)]))
        return sums[count]

    def _forget_from(self, count: int) -> None:
        if len(self._sums) > count:
            del self._sums[count:]
