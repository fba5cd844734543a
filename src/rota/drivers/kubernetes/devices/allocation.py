"""Finds devices on a node for the ResourceClaims of a pod, as kube-scheduler's allocator does: the first that suit.

Every claim, request, choice and device is tried in order, and a choice that leads nowhere is undone. The number of
devices looked at is limited: claims are written by users.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal

from rota.core.model.labels import is_met
from rota.drivers.kubernetes.devices.cel import compiled
from rota.drivers.kubernetes.devices.cel_syntax import CelError
from rota.drivers.kubernetes.devices.device_facts import (
    MOST_DEVICES,
    AllocatedDevice,
    Allocation,
    DeviceBook,
    DeviceChoice,
    DeviceClaim,
    DeviceId,
    PoolDevice,
)
from rota.drivers.kubernetes.filters.facts import NodeFacts

MOST_LOOKS = 20_000
"""Devices looked at for one pod on one node."""
_KEEPS_OUT = ("NoSchedule", "NoExecute")


class NotAllocatable(Exception):
    """Why the claims of a pod can't be allocated on a node, in words."""


def allocate(
    claims: Sequence[DeviceClaim], node: NodeFacts, book: DeviceBook, used: AbstractSet[DeviceId]
) -> list[Allocation]:
    """Return devices for each claim that are not `used`; raise `NotAllocatable` if there are none."""
    return _AllocationSearch(claims, node, book, used).run()


def mistake(claim: DeviceClaim, book: DeviceBook) -> str:
    """Return why a claim can't be allocated on any node, in words; empty if that is not known."""
    if claim.unsupported:
        return claim.unsupported
    for request in claim.requests:
        for choice in request.choices:
            kind = book.kinds.get(choice.kind)
            if kind is None:
                return f"DeviceClass {choice.kind} does not exist"
            for expression in (*kind.selectors, *choice.selectors):
                try:
                    compiled(expression)
                except CelError as error:
                    return f"request {choice.name}: selector {expression[:80]!r}: {error}"
    return ""


class _AllocationSearch:
    def __init__(
        self, claims: Sequence[DeviceClaim], node: NodeFacts, book: DeviceBook, used: AbstractSet[DeviceId]
    ) -> None:
        self._claims = claims
        self._node = node
        self._book = book
        self._pools = [pool for pool in book.pools_at(node.name) if any(map(self._reaches, pool.devices))]
        self._used = set(used)
        self._taken: list[list[tuple[AllocatedDevice, PoolDevice]]] = [[] for _ in claims]
        self._looks = 0
        self._matches: dict[tuple[DeviceId, DeviceChoice], bool] = {}

    def run(self) -> list[Allocation]:
        if not self._claim(0):
            raise NotAllocatable("the devices that its ResourceClaims ask for are not free there")
        return [self._allocation(taken) for taken in self._taken]

    def _claim(self, index: int) -> bool:
        """Allocate the claims from this index on."""
        return index == len(self._claims) or self._request(index, 0)

    def _request(self, index: int, number: int) -> bool:
        """Allocate the requests of a claim from this number on, and the claims after it."""
        requests = self._claims[index].requests
        if number == len(requests):
            return self._claim(index + 1)
        for choice in requests[number].choices:
            devices = self._selected(choice)
            count = len(devices) if choice.takes_all else choice.count
            fits = 0 < count <= len(devices) and len(self._taken[index]) + count <= MOST_DEVICES
            if fits and self._devices(index, number, choice, devices, count, 0):
                return True
        return False

    def _devices(
        self, index: int, number: int, choice: DeviceChoice, devices: list[PoolDevice], count: int, first: int
    ) -> bool:
        """Take so many of these devices, from the first on, and go on; their order does not matter."""
        if not count:
            return self._request(index, number + 1)
        for at in range(first, len(devices) - count + 1):
            self._looks += 1
            if self._looks > MOST_LOOKS:
                raise NotAllocatable("its ResourceClaims take too long to allocate there")
            if self._take(index, choice, devices[at]):
                if self._devices(index, number, choice, devices, count - 1, at + 1):
                    return True
                self._give(index)
        return False

    def _selected(self, choice: DeviceChoice) -> list[PoolDevice]:
        """The devices that a choice may use from this node."""
        found = []
        for pool in self._pools:
            if not pool.is_complete:
                if choice.takes_all:
                    raise NotAllocatable(f"pool {pool.name} of {pool.driver} is not complete")
                continue
            found += [device for device in pool.devices if self._reaches(device) and self._suits(device, choice)]
        return found

    def _reaches(self, device: PoolDevice) -> bool:
        scope = device.scope
        if scope.name:
            return scope.name == self._node.name
        return scope.everywhere or (bool(scope.terms) and is_met(scope.terms, dict(self._node.labels)))

    def _suits(self, device: PoolDevice, choice: DeviceChoice) -> bool:
        key = (device.id, choice)
        if key not in self._matches:
            self._matches[key] = self._is_selected(device, choice)
        return self._matches[key]

    def _is_selected(self, device: PoolDevice, choice: DeviceChoice) -> bool:
        kind = self._book.kinds[choice.kind]
        for expression in (*kind.selectors, *choice.selectors):
            try:
                if not compiled(expression).holds({"device": device.variables}):
                    return False
            except CelError as error:
                raise NotAllocatable(f"selector {expression[:80]!r} fails on device {device.id}: {error}") from error
        if device.unusable and choice.takes_all:
            raise NotAllocatable(f"device {device.id} {device.unusable}")
        return not device.unusable

    def _take(self, index: int, choice: DeviceChoice, device: PoolDevice) -> bool:
        """Take a device if it is free, tolerated and meets the constraints."""
        if choice.is_admin:
            if any(each.id == device.id for each, _ in self._taken[index]):
                return False
        elif device.id in self._used or not self._has_counters(device):
            return False
        for taint in device.taints:
            if taint.effect in _KEEPS_OUT and not any(each.tolerates(taint) for each in choice.tolerations):
                return False
        if not self._meets_rules(index, choice, device):
            return False
        if not choice.is_admin:
            self._used.add(device.id)
        self._taken[index].append((AllocatedDevice(choice.name, device.id, choice.is_admin), device))
        return True

    def _give(self, index: int) -> None:
        taken, device = self._taken[index].pop()
        if not taken.is_admin:
            self._used.discard(device.id)

    def _meets_rules(self, index: int, choice: DeviceChoice, device: PoolDevice) -> bool:
        for rule in self._claims[index].rules:
            if not rule.concerns(choice.name):
                continue
            value = device.attribute(rule.attribute)
            if value is None:
                return False
            for taken, other in self._taken[index]:
                if rule.concerns(taken.request):
                    theirs = other.attribute(rule.attribute)
                    is_same = type(theirs) is type(value) and theirs == value
                    if is_same is rule.is_distinct:
                        return False
        return True

    def _has_counters(self, device: PoolDevice) -> bool:
        """Whether the counters that partitions share have enough left for a device."""
        if not device.counters:
            return True
        pool = next(each for each in self._pools if (each.driver, each.name) == device.id[:2])
        left = dict(pool.counters)
        for other in pool.devices:
            if other.id in self._used:
                _count(left, other, -1)
        _count(left, device, -1)
        return all(left.get((kind, counter), Decimal(-1)) >= 0 for kind, counter, _ in device.counters)

    def _allocation(self, taken: list[tuple[AllocatedDevice, PoolDevice]]) -> Allocation:
        """The allocation of a claim: from the node itself if one device is of this node only."""
        devices = tuple(each for each, _ in taken)
        scopes = [device.scope for _, device in taken]
        if any(scope.name for scope in scopes):
            return Allocation(devices=devices, node_name=self._node.name)
        limited = [scope.terms for scope in scopes if not scope.everywhere]
        if not limited:
            return Allocation(devices=devices)
        if all(terms == limited[0] for terms in limited):
            return Allocation(devices=devices, terms=limited[0])
        return Allocation(devices=devices, node_name=self._node.name)


def _count(left: dict[tuple[str, str], Decimal], device: PoolDevice, sign: int) -> None:
    for kind, counter, amount in device.counters:
        left[kind, counter] = left.get((kind, counter), Decimal(0)) + sign * amount
