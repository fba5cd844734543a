"""Each filter against the definition in Kubernetes' documentation, written down without any precomputation."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from drivers.kubernetes.filters.worlds import pods, worlds
from rota.drivers.kubernetes.filters.affinity import away_from_guarding, away_from_selected, near_selected
from rota.drivers.kubernetes.filters.facts import AffinityTerm, NodeFacts, PodFacts
from rota.drivers.kubernetes.filters.ports import free_ports
from rota.drivers.kubernetes.filters.protocol import Filter
from rota.drivers.kubernetes.filters.resources import free_amounts
from rota.drivers.kubernetes.filters.spread import spread_evenly
from rota.drivers.kubernetes.filters.verdict import FILTERS, judge, summary, verdicts
from rota.drivers.kubernetes.filters.world import World

MANY = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def suited(one: Filter, pod: PodFacts, world: World) -> set[str]:
    test = one(pod, world)
    return {name for name, node in world.nodes.items() if test is None or test(node) is None}


def selects(term: AffinityTerm, owner: PodFacts, pod: PodFacts, world: World) -> bool:
    if term.selector is None:
        return False
    named = set(term.namespaces)
    if term.namespace_selector is not None:
        named |= {name for name, labels in world.namespaces.items() if term.namespace_selector.selects(labels)}
    elif not named:
        named = {owner.namespace}
    return pod.namespace in named and term.selector.selects(pod.labels)


def together(key: str, one: NodeFacts, other: NodeFacts) -> bool:
    return key in one.labels and key in other.labels and one.labels[key] == other.labels[key]


@given(pods(), worlds())
@MANY
def test_ports_are_free_where_no_pod_listens(pod: PodFacts, world: World) -> None:
    def clash(node: str) -> bool:
        return any(
            (mine.port, mine.protocol) == (theirs.port, theirs.protocol)
            and (mine.address == theirs.address or "0.0.0.0" in (mine.address, theirs.address))
            for other in world.on(node)
            for mine in pod.needs.ports
            for theirs in other.needs.ports
        )

    assert suited(free_ports, pod, world) == {name for name in world.nodes if not clash(name)}


@given(pods(), worlds())
@MANY
def test_amounts_of_all_pods_of_a_node_stay_within_it(pod: PodFacts, world: World) -> None:
    def total(node: str) -> int:
        there = [pod, *world.on(node)]
        return sum(amount for each in there for _, amount in each.needs.amounts)

    fits = {name for name in world.nodes if not pod.needs.amounts or total(name) <= 3000}
    assert suited(free_amounts, pod, world) == fits


@given(pods(), worlds())
@MANY
def test_affinity_wants_a_pod_of_all_terms_near(pod: PodFacts, world: World) -> None:
    terms = pod.needs.affinity
    there = list(world.placed())
    matching = [(other, at) for other, at in there if all(selects(term, pod, other, world) for term in terms)]
    found = any(term.topology_key in at.labels for _, at in matching for term in terms)
    is_first = not found and all(selects(term, pod, pod, world) for term in terms)

    def suits(node: NodeFacts) -> bool:
        if not all(term.topology_key in node.labels for term in terms):
            return False
        return is_first or all(any(together(term.topology_key, node, at) for _, at in matching) for term in terms)

    assert suited(near_selected, pod, world) == {name for name, node in world.nodes.items() if suits(node)}


@given(pods(), worlds())
@MANY
def test_anti_affinity_holds_in_both_directions(pod: PodFacts, world: World) -> None:
    def mine(node: NodeFacts) -> bool:
        return any(
            together(term.topology_key, node, at) and selects(term, pod, other, world)
            for other, at in world.placed()
            for term in pod.needs.anti_affinity
        )

    def theirs(node: NodeFacts) -> bool:
        return any(
            together(term.topology_key, node, at) and selects(term, other, pod, world)
            for other, at in world.placed()
            for term in other.needs.anti_affinity
        )

    nodes = world.nodes
    assert suited(away_from_selected, pod, world) == {name for name in nodes if not mine(nodes[name])}
    assert suited(away_from_guarding, pod, world) == {name for name in nodes if not theirs(nodes[name])}


@given(pods(), worlds())
@MANY
def test_spread_keeps_every_place_near_the_emptiest(pod: PodFacts, world: World) -> None:
    def suits(name: str) -> bool:
        keys = [each.topology_key for each in pod.needs.spread]
        counted = [node for node in world.nodes.values() if all(key in node.labels for key in keys)]
        for each in pod.needs.spread:
            key = each.topology_key
            if key not in world.nodes[name].labels:
                return False
            counts = {node.labels[key]: 0 for node in counted}
            for node in counted:
                for other in world.on(node.name):
                    is_counted = other.namespace == pod.namespace and not other.ending
                    counts[node.labels[key]] += bool(
                        is_counted and each.selector is not None and each.selector.selects(other.labels)
                    )
            least = 0 if len(counts) < each.min_domains else min(counts.values(), default=0)
            itself = each.selector is not None and each.selector.selects(pod.labels)
            if counts.get(world.nodes[name].labels[key], 0) + itself - least > each.max_skew:
                return False
        return True

    assert suited(spread_evenly, pod, world) == {name for name in world.nodes if suits(name)}


@given(pods(), worlds())
@MANY
def test_verdict_is_that_of_all_filters(pod: PodFacts, world: World) -> None:
    found = verdicts(pod, world, world.nodes)

    assert {name for name, words in found.items() if words is None} == set.intersection(
        *(suited(each, pod, world) for each in FILTERS)
    )
    assert (judge(pod, world) is None) <= all(words is None for words in found.values())


def test_summary_counts_nodes_by_reason() -> None:
    assert summary({"n1": "a", "n2": "b", "n3": "b", "n4": None}) == "b (2 nodes); a (1 node)"
    assert summary({}) == "there is no node"
