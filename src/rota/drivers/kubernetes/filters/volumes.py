"""Volumes: bound ones must be reachable from the node, unbound ones must be there or be makeable there.

A claim of a class that waits for its first pod is bound together with the placement: to the smallest volume that fits
it on that node, or to one that is made for it there. Every other claim has to be bound before its pod can be placed.
"""

from __future__ import annotations

from collections.abc import Iterator

from rota.core.model.labels import is_met
from rota.drivers.kubernetes.filters.facts import NodeFacts, PodFacts
from rota.drivers.kubernetes.filters.protocol import NodeTest
from rota.drivers.kubernetes.filters.volume_facts import NO_PROVISIONER, Promise, Volume, VolumeBook, VolumeClaim
from rota.drivers.kubernetes.filters.world import World

_ZONES = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
ONE_POD = "ReadWriteOncePod"


def reachable_volumes(pod: PodFacts, world: World) -> NodeTest | None:
    """Return the test of a pod's claims; None if it has none."""
    if not pod.needs.volumes:
        return None
    book = world.volumes
    claims: list[VolumeClaim] = []
    for name in pod.needs.volumes:
        claim = book.claims.get((pod.namespace, name))
        fault = f"PersistentVolumeClaim {name} does not exist" if claim is None else _fault(claim, pod, world)
        if claim is None or fault:
            return _always(fault)
        claims.append(claim)

    def test(node: NodeFacts) -> str | None:
        for claim in claims:
            words = _unreachable(claim, node, book)
            if words is not None:
                return words
        if promises_on(claims, node, book) is None:
            return "no volume for its claims is there or can be made there"
        return _too_many(pod, claims, node, world)

    return test


def _always(words: str) -> NodeTest:
    return lambda node: words


def _fault(claim: VolumeClaim, pod: PodFacts, world: World) -> str:
    """What keeps a claim from being used on any node; empty if nothing does."""
    named = f"PersistentVolumeClaim {claim.name}"
    if claim.ending:
        return f"{named} is being deleted"
    if claim.is_lost:
        return f"{named} has lost its volume"
    if ONE_POD in claim.access_modes and _is_in_use(claim, pod, world):
        return f"{named} is used by another pod and allows one only"
    if claim.is_bound:
        return "" if claim.volume in world.volumes.volumes else f"the volume of {named} does not exist"
    kind = world.volumes.kinds.get(claim.storage_class)
    if claim.volume or kind is None or not kind.waits:
        return f"{named} is not bound yet"
    return ""


def _is_in_use(claim: VolumeClaim, pod: PodFacts, world: World) -> bool:
    return any(
        other.uid != pod.uid and other.namespace == claim.namespace and claim.name in other.needs.volumes
        for other, _ in world.placed()
    )


def _unreachable(claim: VolumeClaim, node: NodeFacts, book: VolumeBook) -> str | None:
    """Why a bound or promised volume can't be used on a node."""
    if not claim.is_bound:
        known = book.promised(claim.key)
        if known is not None and not known[0].volume:
            return None if known[1] == node.name else "the volume of its claim is being made for another node"
        if known is None:
            return None
        volume = book.volumes.get(known[0].volume)
    else:
        volume = book.volumes[claim.volume]
    if volume is None or not is_met(volume.node_terms, dict(node.labels)):
        return "the volume of its claim can't be used there"
    return None if _in_zone(volume, node) else "the volume of its claim is in another zone"


def _in_zone(volume: Volume, node: NodeFacts) -> bool:
    """Whether a node is in the zones and regions that a volume is labelled with; nodes without such labels are."""
    if not any(key in node.labels for key in _ZONES):
        return True
    return all(node.labels.get(key) in volume.labels[key].split("__") for key in _ZONES if key in volume.labels)


def promises_on(claims: list[VolumeClaim], node: NodeFacts, book: VolumeBook) -> tuple[Promise, ...] | None:
    """What the unbound claims get on a node; None if one of them gets nothing there."""
    found: list[Promise] = []
    taken: set[str] = set()
    open_claims = {claim.key: claim for claim in claims if not claim.is_bound and book.promised(claim.key) is None}
    for claim in sorted(open_claims.values(), key=lambda each: (each.bytes_wanted, each.name)):
        if claim.selected_node:
            if claim.selected_node != node.name:
                return None
            found.append(Promise(claim.key))
            continue
        volume = _smallest(claim, node, book, taken)
        if volume is not None:
            taken.add(volume.name)
            found.append(Promise(claim.key, volume.name))
        elif _makeable(claim, node, book):
            found.append(Promise(claim.key))
        else:
            return None
    return tuple(found)


def _smallest(claim: VolumeClaim, node: NodeFacts, book: VolumeBook, taken: set[str]) -> Volume | None:
    """The volume reserved for a claim, or else the smallest free one that fits it, on a node."""
    fitting = [volume for volume in _free(claim, book, taken) if is_met(volume.node_terms, dict(node.labels))]
    return min(fitting, key=lambda each: (each.claim is None, each.capacity_bytes, each.name), default=None)


def _free(claim: VolumeClaim, book: VolumeBook, taken: set[str]) -> Iterator[Volume]:
    for volume in book.volumes.values():
        is_its = volume.claim == claim.key and volume.claim_uid in ("", claim.uid)
        is_open = volume.claim is None and volume.phase == "Available" and volume.name not in taken
        if (
            (is_its or (is_open and book.promised_to(volume.name) in (None, claim.key)))
            and not volume.ending
            and volume.storage_class == claim.storage_class
            and volume.capacity_bytes >= claim.bytes_wanted
            and claim.access_modes <= volume.access_modes
            and volume.is_block == claim.is_block
            and (is_its or claim.selector is None or claim.selector.selects(volume.labels))
        ):
            yield volume


def _makeable(claim: VolumeClaim, node: NodeFacts, book: VolumeBook) -> bool:
    """Whether a volume for a claim can be made for a node."""
    kind = book.kinds.get(claim.storage_class)
    if kind is None or kind.provisioner == NO_PROVISIONER or claim.selector is not None:
        return False
    return is_met(kind.topologies, dict(node.labels))


def _too_many(pod: PodFacts, claims: list[VolumeClaim], node: NodeFacts, world: World) -> str | None:
    """Whether a node would have to attach more volumes of a driver than it can."""
    book = world.volumes
    limits = book.limits.get(node.name)
    if not limits:
        return None
    there: dict[str, set[str]] = {}
    for other in world.on(node.name):
        if other.uid != pod.uid:
            for name in other.needs.volumes:
                claim = book.claims.get((other.namespace, name))
                if claim is not None:
                    driver, handle = _attached(claim, book)
                    there.setdefault(driver, set()).add(handle)
    before = {driver: len(handles) for driver, handles in there.items()}
    for claim in claims:
        driver, handle = _attached(claim, book)
        there.setdefault(driver, set()).add(handle)
    for driver, limit in limits.items():
        if len(there.get(driver, ())) > max(limit, before.get(driver, 0)):
            return f"it can't attach more volumes of {driver}"
    return None


def _attached(claim: VolumeClaim, book: VolumeBook) -> tuple[str, str]:
    """The driver and the identity of the volume behind a claim, as far as they are known."""
    volume = book.volumes.get(claim.volume)
    if volume is not None:
        return volume.driver, volume.handle or volume.name
    kind = book.kinds.get(claim.storage_class)
    return "" if kind is None else kind.provisioner, f"{claim.namespace}/{claim.name}"
