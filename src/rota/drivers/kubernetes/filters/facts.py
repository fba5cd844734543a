"""What the filters know of pods and nodes, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rota.core.model.labels import Terms
from rota.drivers.kubernetes.filters.selectors import Selector

ANY_ADDRESS = "0.0.0.0"  # how Kubernetes writes "all addresses of the node"


class HostPort(NamedTuple):
    """A port of the node that a pod uses."""

    port: int
    protocol: str = "TCP"
    address: str = ANY_ADDRESS

    def conflicts(self, other: HostPort) -> bool:
        """Whether both can't be used on one node."""
        same = (self.port, self.protocol) == (other.port, other.protocol)
        return same and (self.address == other.address or ANY_ADDRESS in (self.address, other.address))

    def __str__(self) -> str:
        where = "" if self.address == ANY_ADDRESS else f" of {self.address}"
        return f"{self.port}/{self.protocol}{where}"


class AffinityTerm(NamedTuple):
    """One required term of pod affinity or anti-affinity: which pods, and what has to be the same on both nodes."""

    topology_key: str
    selector: Selector | None
    """None selects no pod."""
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector | None = None
    """Selects namespaces in addition to the named ones; None selects none."""


class SpreadConstraint(NamedTuple):
    """One topology spread constraint with `DoNotSchedule`."""

    max_skew: int
    topology_key: str
    selector: Selector | None
    min_domains: int = 1
    honours_affinity: bool = True
    honours_taints: bool = False


class ClaimNeed(NamedTuple):
    """A ResourceClaim of a pod: its name in the pod, and the name of the object, empty while there is none."""

    entry: str
    claim: str


class PodNeeds(NamedTuple):
    """What a pod needs of a node beyond devices, CPUs and memory; equal for equivalent pods."""

    amounts: tuple[tuple[str, int], ...] = ()
    """Other resources in thousandths, sorted by name."""
    ports: tuple[HostPort, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    volumes: tuple[str, ...] = ()
    """Names of its PersistentVolumeClaims."""
    claims: tuple[ClaimNeed, ...] = ()
    node_terms: Terms = ()
    """Node selector and required node affinity, complete, for constraints that count nodes."""
    tolerates: tuple[tuple[str | None, str | None, str | None], ...] = ()
    """Tolerations as (key, value, effect), None for any, for constraints that honour taints."""


NO_NEEDS = PodNeeds()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """A pod as the filters see it."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    needs: PodNeeds = NO_NEEDS
    ending: bool = False
    """Whether it is being deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node as the filters see it; `labels` contain Rota's label with its name."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    amounts: Mapping[str, int] = field(default_factory=dict)
    """What it offers of other resources than devices, CPUs and memory, in thousandths."""
    taints: tuple[tuple[str, str, str], ...] = ()
    """Taints as (key, value, effect)."""
