"""Volumes, claims for them, storage classes and attach limits as plain values, and what was promised to claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rota.core.model.labels import Terms
from rota.drivers.kubernetes.filters.selectors import Selector

NO_PROVISIONER = "kubernetes.io/no-provisioner"


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeClaim:
    """A PersistentVolumeClaim."""

    namespace: str
    name: str
    uid: str = ""
    bytes_wanted: int = 0
    storage_class: str = ""
    access_modes: frozenset[str] = frozenset()
    is_block: bool = False
    selector: Selector | None = None
    """Which volumes would do, by their labels; None: any."""
    volume: str = ""
    is_bound: bool = False
    is_lost: bool = False
    ending: bool = False
    selected_node: str = ""
    """The node for which a volume is being made."""
    resizes: bool = field(default=False, compare=False)

    @property
    def key(self) -> tuple[str, str]:
        """Its namespace and name."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A PersistentVolume."""

    name: str
    capacity_bytes: int = 0
    storage_class: str = ""
    access_modes: frozenset[str] = frozenset()
    is_block: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    node_terms: Terms = ()
    phase: str = "Available"
    ending: bool = False
    claim: tuple[str, str] | None = None
    """Namespace and name of the claim that it is reserved for or bound to."""
    claim_uid: str = ""
    driver: str = ""
    """The CSI driver that attaches it; empty for other kinds."""
    handle: str = ""
    kind: str = ""
    """The kind of source, as `csi`, `nfs` or `hostPath`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageKind:
    """A StorageClass."""

    name: str
    provisioner: str = NO_PROVISIONER
    waits: bool = False
    """Whether volumes are bound when a pod is placed (`WaitForFirstConsumer`)."""
    topologies: Terms = ()
    """Where volumes can be made; anywhere without any."""


class Promise(NamedTuple):
    """What an unbound claim gets on a node: a volume that is there, or, without its name, one that will be made."""

    claim: tuple[str, str]
    volume: str = ""


class VolumeBook:
    """Everything known about volumes, and the promises to pods that are about to be bound."""

    def __init__(self) -> None:
        self.claims: dict[tuple[str, str], VolumeClaim] = {}
        self.volumes: dict[str, Volume] = {}
        self.kinds: dict[str, StorageKind] = {}
        self.limits: dict[str, dict[str, int]] = {}
        """By node, how many volumes of each CSI driver it can attach."""
        self._node_by_claim: dict[tuple[str, str], str] = {}
        self._promised: dict[tuple[str, str], Promise] = {}
        self._claim_by_volume: dict[str, tuple[str, str]] = {}

    def promise(self, promises: tuple[Promise, ...], node: str) -> None:
        """Reserve what claims get if their pod goes to this node."""
        for each in promises:
            self._promised[each.claim] = each
            self._node_by_claim[each.claim] = node
            if each.volume:
                self._claim_by_volume[each.volume] = each.claim

    def forget(self, claims: tuple[tuple[str, str], ...]) -> None:
        """Give up the promises to these claims."""
        for key in claims:
            known = self._promised.pop(key, None)
            self._node_by_claim.pop(key, None)
            if known is not None and known.volume:
                self._claim_by_volume.pop(known.volume, None)

    def promised(self, claim: tuple[str, str]) -> tuple[Promise, str] | None:
        """What was promised to a claim, and on which node."""
        known = self._promised.get(claim)
        return None if known is None else (known, self._node_by_claim[claim])

    def promised_to(self, volume: str) -> tuple[str, str] | None:
        """The claim to which a volume was promised."""
        return self._claim_by_volume.get(volume)
