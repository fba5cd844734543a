"""Other resources than devices, CPUs and memory: RDMA, EFA, MIG slices, huge pages, scratch space."""

from __future__ import annotations

from rota.drivers.kubernetes.filters.facts import NodeFacts, PodFacts
from rota.drivers.kubernetes.filters.protocol import NodeTest
from rota.drivers.kubernetes.filters.world import World


def free_amounts(pod: PodFacts, world: World) -> NodeTest | None:
    """Return the test whether a node has enough left of each resource; None if the pod asks for none."""
    wanted = pod.needs.amounts
    if not wanted:
        return None

    def test(node: NodeFacts) -> str | None:
        used: dict[str, int] = {}
        for other in world.on(node.name):
            if other.uid != pod.uid:
                for name, amount in other.needs.amounts:
                    used[name] = used.get(name, 0) + amount
        for name, amount in wanted:
            has = node.amounts.get(name, 0)
            if amount > has - used.get(name, 0):
                return f"too little {name}" if amount <= has else f"too small for {amount / 1000:g} {name}"
        return None

    return test
