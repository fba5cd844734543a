"""Required pod affinity and anti-affinity, in both directions, as Kubernetes defines them.

A pod with affinity needs a pod that meets all of its terms in the same place, for every term. The first pod of a group
that matches itself may go anywhere. A term of anti-affinity keeps a pod away from every place with a pod that the term
selects, and the terms of pods that are there keep it away from their places.
"""

from __future__ import annotations

from collections.abc import Callable

from rota.drivers.kubernetes.filters.facts import AffinityTerm, NodeFacts, PodFacts
from rota.drivers.kubernetes.filters.protocol import NodeTest
from rota.drivers.kubernetes.filters.world import World

Place = tuple[str, str]
"""A topology key and its value."""


def term_selects(term: AffinityTerm, owner: PodFacts, pod: PodFacts, world: World) -> bool:
    """Whether a term of one pod selects another pod."""
    if term.selector is None or not term.selector.selects(pod.labels):
        return False
    if not term.namespaces and term.namespace_selector is None:
        return pod.namespace == owner.namespace
    if pod.namespace in term.namespaces:
        return True
    wanted = term.namespace_selector
    return wanted is not None and wanted.selects(world.namespaces.get(pod.namespace, {}))


def near_selected(pod: PodFacts, world: World) -> NodeTest | None:
    """Return the test of required pod affinity; None if the pod has none."""
    terms = pod.needs.affinity
    if not terms:
        return None
    places: set[Place] = set()
    found = False
    for other, node in world.placed():
        if other.uid != pod.uid and all(term_selects(term, pod, other, world) for term in terms):
            for term in terms:
                if term.topology_key in node.labels:
                    found = True
                    places.add((term.topology_key, node.labels[term.topology_key]))
    is_first = not found and all(term_selects(term, pod, pod, world) for term in terms)

    def test(node: NodeFacts) -> str | None:
        for term in terms:
            value = node.labels.get(term.topology_key)
            if value is None:
                return f"it has no label {term.topology_key}, which pod affinity needs"
            if not is_first and (term.topology_key, value) not in places:
                return "no pod that its pod affinity requires is near"
        return None

    return test


def away_from_selected(pod: PodFacts, world: World) -> NodeTest | None:
    """Return the test of the pod's own anti-affinity; None if it has none."""
    terms = pod.needs.anti_affinity
    if not terms:
        return None
    taken: set[Place] = set()
    for other, node in world.placed():
        if other.uid != pod.uid:
            for term in terms:
                if term.topology_key in node.labels and term_selects(term, pod, other, world):
                    taken.add((term.topology_key, node.labels[term.topology_key]))
    return _outside(taken, "a pod that its anti-affinity excludes is near")


def away_from_guarding(pod: PodFacts, world: World) -> NodeTest | None:
    """Return the test of the anti-affinity of pods that are there; None if no term of theirs selects this pod."""
    taken: set[Place] = set()
    for other, node in world.guarding():
        if other.uid != pod.uid:
            for term in other.needs.anti_affinity:
                if term.topology_key in node.labels and term_selects(term, other, pod, world):
                    taken.add((term.topology_key, node.labels[term.topology_key]))
    return _outside(taken, "the anti-affinity of a pod near it excludes this pod") if taken else None


def _outside(taken: set[Place], words: str) -> Callable[[NodeFacts], str | None]:
    keys = {key for key, _ in taken}

    def test(node: NodeFacts) -> str | None:
        return words if any((key, node.labels.get(key)) in taken for key in keys) else None

    return test
