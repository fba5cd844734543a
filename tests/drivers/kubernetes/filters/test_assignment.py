"""Nodes for whole gangs: against all assignments tried one by one, in every order of the pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivers.kubernetes.filters.worlds import pods, worlds
from rota.drivers.kubernetes.filters.assignment import assign, assume
from rota.drivers.kubernetes.filters.facts import HostPort, NodeFacts, PodFacts, PodNeeds
from rota.drivers.kubernetes.filters.verdict import judge
from rota.drivers.kubernetes.filters.world import World


class Slots:
    """Room for a number of pods on every node."""

    def __init__(self, names: Sequence[str], each: int) -> None:
        self._left = Counter(dict.fromkeys(names, each))

    def nodes(self, index: int) -> list[str]:
        return sorted(name for name, left in self._left.items() if left > 0)

    def take(self, index: int, node: str) -> None:
        self._left[node] -= 1

    def give(self, index: int, node: str) -> None:
        self._left[node] += 1


def suits(gang: Sequence[PodFacts], names: Sequence[str], world: World) -> bool:
    """Whether pods placed one after the other each find their node suited."""
    done: list[PodFacts] = []
    try:
        for pod, name in zip(gang, names, strict=True):
            test = judge(pod, world)
            if test is not None and test(world.nodes[name]) is not None:
                return False
            assume(pod, name, world)
            done.append(pod)
        return True
    finally:
        for pod in done:
            world.take(pod.uid)


@given(st.tuples(*(pods(f"new{number}") for number in range(3))), worlds(), st.integers(1, 3))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_an_assignment_is_found_if_there_is_one(gang: tuple[PodFacts, ...], world: World, each: int) -> None:
    names = sorted(world.nodes)
    there = [(pod.uid, node.name) for pod, node in world.placed()]

    found = assign(gang, world, Slots(names, each))

    possible = [
        chosen
        for chosen in product(names, repeat=len(gang))
        if max(Counter(chosen).values()) <= each and suits(gang, chosen, world)
    ]
    assert (found is None) == (not possible)
    assert found is None or tuple(found) in possible
    assert [(pod.uid, node.name) for pod, node in world.placed()] == there


def test_large_gang_with_a_host_port_gets_a_node_for_each_pod() -> None:
    world = World()
    for number in range(40):
        world.put_node(NodeFacts(name=f"n{number}", labels={}))
    needs = PodNeeds(ports=(HostPort(8080),))
    gang = [PodFacts(uid=f"p{number}", namespace="one", name=f"p{number}", needs=needs) for number in range(40)]

    found = assign(gang, world, Slots(sorted(world.nodes), 8))

    assert found is not None
    assert sorted(found) == sorted(world.nodes)
    assert assign([*gang, PodFacts(uid="x", namespace="one", name="x", needs=needs)], world, Slots(["n1"], 99)) is None
