"""ResourceClaims: the devices of allocated ones must be usable from the node, for the others devices must be free."""

from __future__ import annotations

from rota.core.model.labels import is_met
from rota.drivers.kubernetes.devices.allocation import NotAllocatable, allocate, mistake
from rota.drivers.kubernetes.devices.device_facts import (
    MOST_RESERVED,
    Allocation,
    ClaimKey,
    DeviceBook,
    DeviceClaim,
)
from rota.drivers.kubernetes.filters.facts import NodeFacts, PodFacts
from rota.drivers.kubernetes.filters.protocol import NodeTest
from rota.drivers.kubernetes.filters.world import FilterState


def allocatable_claims(pod: PodFacts, world: FilterState) -> NodeTest | None:
    """Return the test of a pod's ResourceClaims; None if it has none."""
    if not pod.needs.claims:
        return None
    book = world.devices
    claims = claims_of(pod, book)
    if isinstance(claims, str):
        words = claims
        return lambda node: words
    ready = [found for claim in claims if (found := book.allocation_of(claim)) is not None]
    to_do = [claim for claim in claims if book.allocation_of(claim) is None]
    used = book.in_use() if to_do else set()

    def test(node: NodeFacts) -> str | None:
        if not all(is_usable(allocation, node) for allocation in ready):
            return "the devices of its ResourceClaims can't be used there"
        try:
            allocate(to_do, node, book, used)
        except NotAllocatable as error:
            return str(error)
        return None

    return test


def claims_of(pod: PodFacts, book: DeviceBook) -> list[DeviceClaim] | str:
    """Return the ResourceClaims of a pod, or what keeps one of them from being used on any node, in words."""
    found: dict[ClaimKey, DeviceClaim] = {}
    for need in pod.needs.claims:
        if not need.claim:
            return f"the ResourceClaim for its {need.entry} has not been made yet"
        claim = book.claims.get((pod.namespace, need.claim))
        fault = "does not exist" if claim is None else _fault(claim, pod, book)
        if claim is None or fault:
            return f"ResourceClaim {need.claim} {fault}"
        found[claim.key] = claim
    return list(found.values())


def _fault(claim: DeviceClaim, pod: PodFacts, book: DeviceBook) -> str:
    if claim.ending:
        return "is being deleted"
    if claim.made_for and claim.made_for != pod.uid:
        return "was made for another pod"
    if len(claim.reserved_for) >= MOST_RESERVED and pod.uid not in claim.reserved_for:
        return f"is used by {MOST_RESERVED} pods, the most that may"
    words = "" if claim.allocation is not None else mistake(claim, book)
    return f"can't be allocated: {words}" if words else ""


def is_usable(allocation: Allocation, node: NodeFacts) -> bool:
    """Whether devices can be used from a node."""
    if allocation.node_name:
        return allocation.node_name == node.name
    return is_met(allocation.terms, dict(node.labels))


def allocations_on(pod: PodFacts, node: NodeFacts, book: DeviceBook) -> dict[ClaimKey, Allocation]:
    """Return what the open ResourceClaims of a pod get on a node; nothing, if they can't be allocated there."""
    claims = claims_of(pod, book)
    if isinstance(claims, str):
        return {}
    to_do = [claim for claim in claims if book.allocation_of(claim) is None]
    try:
        found = allocate(to_do, node, book, book.in_use())
    except NotAllocatable:
        return {}
    return {claim.key: allocation for claim, allocation in zip(to_do, found, strict=True)}
