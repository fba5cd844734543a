"""Devices, pools, classes and ResourceClaims as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from rota.core.model.labels import Terms

ClaimKey = tuple[str, str]
"""Namespace and name of a ResourceClaim."""
MOST_RESERVED = 256
"""Pods that may use one ResourceClaim."""
MOST_DEVICES = 32
"""Devices that one ResourceClaim may get."""


class DeviceId(NamedTuple):
    """A device of a driver's pool."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return "/".join(self)


class DomainMap(dict[str, dict[str, object]]):
    """Attributes or capacities by domain; a domain that no attribute has is empty."""

    has_default = True

    def __missing__(self, domain: str) -> dict[str, object]:
        return {}


class DeviceTaint(NamedTuple):
    """A taint of a device."""

    key: str
    value: str
    effect: str


class DeviceToleration(NamedTuple):
    """A toleration of a request; None for any."""

    key: str | None
    value: str | None
    effect: str | None

    def tolerates(self, taint: DeviceTaint) -> bool:
        """Whether it covers a taint."""
        return (
            self.key in (None, taint.key) and self.value in (None, taint.value) and self.effect in (None, taint.effect)
        )


class NodeScope(NamedTuple):
    """The nodes that can use a device: one by name, those with labels, or all."""

    name: str = ""
    terms: Terms = ()
    everywhere: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDevice:
    """One device."""

    id: DeviceId
    variables: Mapping[str, object]
    """What selectors see of it."""
    scope: NodeScope
    taints: tuple[DeviceTaint, ...] = ()
    counters: tuple[tuple[str, str, Decimal], ...] = ()
    """What it takes of the counters that partitions of one device share: set, counter, amount."""
    unusable: str = ""
    """Why no claim can get it, in words."""

    def attribute(self, name: str) -> object:
        """The value of a fully qualified attribute; None if it has none."""
        domain, _, inner = name.partition("/")
        attributes = self.variables["attributes"]
        assert isinstance(attributes, DomainMap)
        return attributes[domain].get(inner)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSlice:
    """A ResourceSlice: some devices of a pool."""

    name: str
    driver: str
    pool: str
    generation: int
    parts: int
    """Number of slices of the pool."""
    devices: tuple[PoolDevice, ...] = ()
    counters: tuple[tuple[str, str, Decimal], ...] = ()
    """The counters that devices of the pool share: set, counter, amount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePool:
    """The present devices of a pool."""

    driver: str
    name: str
    devices: tuple[PoolDevice, ...]
    counters: Mapping[tuple[str, str], Decimal]
    is_complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKind:
    """A DeviceClass."""

    name: str
    selectors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChoice:
    """One way to meet a request."""

    name: str
    """As results name it: the request, or for one of several choices `request/choice`."""
    kind: str
    """The name of its DeviceClass."""
    selectors: tuple[str, ...] = ()
    count: int = 1
    takes_all: bool = False
    is_admin: bool = False
    """Whether it takes part in devices that others use, without holding them."""
    tolerations: tuple[DeviceToleration, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """One request of a claim, with its choices in order of preference."""

    name: str
    choices: tuple[DeviceChoice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRule:
    """A constraint between the devices of a claim."""

    attribute: str
    requests: frozenset[str] = frozenset()
    """The requests that it concerns; all, if it is empty."""
    is_distinct: bool = False

    def concerns(self, name: str) -> bool:
        """Whether it concerns a request or choice."""
        return not self.requests or name in self.requests or name.partition("/")[0] in self.requests


class AllocatedDevice(NamedTuple):
    """A device that a claim has got."""

    request: str
    id: DeviceId
    is_admin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The devices of a claim, and the nodes from which they can be used."""

    devices: tuple[AllocatedDevice, ...]
    node_name: str = ""
    terms: Terms = ()
    """Labels of the nodes; with neither name nor terms, all nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClaim:
    """A ResourceClaim."""

    namespace: str
    name: str
    uid: str = ""
    requests: tuple[ClaimRequest, ...] = ()
    rules: tuple[DeviceRule, ...] = ()
    allocation: Allocation | None = None
    reserved_for: tuple[str, ...] = ()
    """Uids of the pods that use it."""
    made_for: str = ""
    """The pod for which a template made it, by uid."""
    ending: bool = False
    unsupported: str = ""
    """What it asks for that can't be honoured, in words."""

    @property
    def key(self) -> ClaimKey:
        """Its namespace and name."""
        return self.namespace, self.name


class DeviceBook:
    """Everything known about devices, and the promises to pods that are about to be bound."""

    def __init__(self) -> None:
        self.is_served = False
        """Whether the API server serves resource.k8s.io/v1."""
        self.kinds: dict[str, DeviceKind] = {}
        self.claims: dict[ClaimKey, DeviceClaim] = {}
        self.promised: dict[ClaimKey, Allocation] = {}
        self._slices: dict[str, DeviceSlice] = {}
        self._by_node: dict[str, list[DevicePool]] | None = None
        self._shared: list[DevicePool] = []

    def put(self, part: DeviceSlice) -> None:
        """Record the present form of a slice."""
        self._slices[part.name] = part
        self._by_node = None

    def drop(self, name: str) -> None:
        """Forget a slice."""
        self._slices.pop(name, None)
        self._by_node = None

    def clear(self) -> None:
        """Forget all slices."""
        self._slices.clear()
        self._by_node = None

    def pools_at(self, node: str) -> list[DevicePool]:
        """The pools with devices that a node may be able to use."""
        if self._by_node is None:
            self._by_node, self._shared = {}, []
            for pool in _pools(self._slices.values()):
                names = {device.scope.name for device in pool.devices}
                for name in names - {""}:
                    self._by_node.setdefault(name, []).append(pool)
                if "" in names:
                    self._shared.append(pool)
        own = self._by_node.get(node, [])
        return [*own, *(pool for pool in self._shared if not any(pool is each for each in own))]

    def allocation_of(self, claim: DeviceClaim) -> Allocation | None:
        """What a claim has got or was promised."""
        return claim.allocation or self.promised.get(claim.key)

    def in_use(self) -> set[DeviceId]:
        """The devices that claims hold or were promised."""
        held = [claim.allocation for claim in self.claims.values() if claim.allocation is not None]
        return {
            each.id
            for allocation in (*held, *self.promised.values())
            for each in allocation.devices
            if not each.is_admin
        }


def _pools(slices: Iterable[DeviceSlice]) -> list[DevicePool]:
    """Join the slices of the latest generation of each pool."""
    by_pool: dict[tuple[str, str], list[DeviceSlice]] = {}
    for each in sorted(slices, key=lambda each: each.name):
        by_pool.setdefault((each.driver, each.pool), []).append(each)
    found = []
    for (driver, name), parts in sorted(by_pool.items()):
        latest = max(each.generation for each in parts)
        now = [each for each in parts if each.generation == latest]
        names = [device.id for each in now for device in each.devices]
        found.append(
            DevicePool(
                driver=driver,
                name=name,
                devices=tuple(device for each in now for device in each.devices),
                counters={(kind, counter): amount for each in now for kind, counter, amount in each.counters},
                is_complete=len(now) == now[0].parts and len(set(names)) == len(names),
            )
        )
    return found
