"""Topology spread constraints with `DoNotSchedule`: no place may have too many more pods than the emptiest one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rota.core.model.labels import is_met
from rota.drivers.kubernetes.filters.facts import NodeFacts, PodFacts, SpreadConstraint
from rota.drivers.kubernetes.filters.protocol import NodeTest
from rota.drivers.kubernetes.filters.world import World


def spread_evenly(pod: PodFacts, world: World) -> NodeTest | None:
    """Return the test of all spread constraints; None if the pod has none."""
    constraints = pod.needs.spread
    if not constraints:
        return None
    keys = tuple(each.topology_key for each in constraints)
    counts = [_counts(pod, each, keys, world) for each in constraints]

    def test(node: NodeFacts) -> str | None:
        for constraint, by_place in zip(constraints, counts, strict=True):
            key = constraint.topology_key
            if key not in node.labels:
                return f"it has no label {key}, which a spread constraint needs"
            adds = constraint.selector is not None and constraint.selector.selects(pod.labels)
            there = by_place.get(node.labels[key], 0)
            if there + adds - _least(by_place, constraint) > constraint.max_skew:
                return f"pods would be spread too unevenly over {key}"
        return None

    return test


def _least(by_place: Mapping[str, int], constraint: SpreadConstraint) -> int:
    """Pods in the emptiest place; none, if there are fewer places than the constraint wants."""
    return 0 if len(by_place) < constraint.min_domains else min(by_place.values(), default=0)


def _counts(pod: PodFacts, constraint: SpreadConstraint, keys: tuple[str, ...], world: World) -> dict[str, int]:
    """Selected pods by place, over the nodes that count."""
    found: dict[str, int] = {}
    for node in world.nodes.values():
        if all(key in node.labels for key in keys) and _counts_node(pod, constraint, node):
            place = node.labels[constraint.topology_key]
            found[place] = found.get(place, 0) + _selected(pod, constraint, world.on(node.name))
    return found


def _counts_node(pod: PodFacts, constraint: SpreadConstraint, node: NodeFacts) -> bool:
    if constraint.honours_affinity and not is_met(pod.needs.node_terms, dict(node.labels)):
        return False
    return not constraint.honours_taints or all(_tolerates(pod, taint) for taint in node.taints)


def _tolerates(pod: PodFacts, taint: tuple[str, str, str]) -> bool:
    key, value, effect = taint
    return any(
        wanted_key in (None, key) and wanted_value in (None, value) and wanted_effect in (None, effect)
        for wanted_key, wanted_value, wanted_effect in pod.needs.tolerates
    )


def _selected(pod: PodFacts, constraint: SpreadConstraint, there: Iterable[PodFacts]) -> int:
    if constraint.selector is None:
        return 0
    return sum(
        other.uid != pod.uid
        and other.namespace == pod.namespace
        and not other.ending
        and constraint.selector.selects(other.labels)
        for other in there
    )
