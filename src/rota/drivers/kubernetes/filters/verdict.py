"""All filters together: the nodes that suit a pod, and why the others do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from rota.drivers.kubernetes.filters.affinity import away_from_guarding, away_from_selected, near_selected
from rota.drivers.kubernetes.filters.claims import allocatable_claims
from rota.drivers.kubernetes.filters.facts import NodeFacts, PodFacts
from rota.drivers.kubernetes.filters.ports import free_ports
from rota.drivers.kubernetes.filters.protocol import Filter, NodeTest
from rota.drivers.kubernetes.filters.resources import free_amounts
from rota.drivers.kubernetes.filters.spread import spread_evenly
from rota.drivers.kubernetes.filters.volumes import reachable_volumes
from rota.drivers.kubernetes.filters.world import FilterState

FILTERS: tuple[Filter, ...] = (
    free_amounts,
    free_ports,
    reachable_volumes,
    spread_evenly,
    near_selected,
    away_from_selected,
    away_from_guarding,
    allocatable_claims,
)


def judge(pod: PodFacts, world: FilterState) -> NodeTest | None:
    """Return the test of all filters for a pod; None if every node passes it."""
    tests = [found for each in FILTERS if (found := each(pod, world)) is not None]
    if not tests:
        return None

    def test(node: NodeFacts) -> str | None:
        return next((words for each in tests if (words := each(node)) is not None), None)

    return test


def verdicts(pod: PodFacts, world: FilterState, nodes: Iterable[str]) -> dict[str, str | None]:
    """Return for each of these nodes why it does not suit a pod; None for those that do."""
    test = judge(pod, world)
    if test is None:
        return dict.fromkeys(nodes)
    return {name: test(world.nodes[name]) if name in world.nodes else "it is gone" for name in nodes}


def summary(verdict_by_node: Mapping[str, str | None]) -> str:
    """Why no node suits a pod: each reason with the number of nodes, the most common first."""
    counts = Counter(words for words in verdict_by_node.values() if words is not None)
    parts = [f"{words} ({number} node{'' if number == 1 else 's'})" for words, number in _common(counts)]
    return "; ".join(parts) if parts else "there is no node"


def _common(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
