"""Host ports: two pods can't listen on the same port of a node."""

from __future__ import annotations

from rota.drivers.kubernetes.filters.facts import NodeFacts, PodFacts
from rota.drivers.kubernetes.filters.protocol import NodeTest
from rota.drivers.kubernetes.filters.world import World


def free_ports(pod: PodFacts, world: World) -> NodeTest | None:
    """Return the test whether a node's ports are free; None if the pod uses none."""
    wanted = pod.needs.ports
    if not wanted:
        return None

    def test(node: NodeFacts) -> str | None:
        for other in world.on(node.name):
            for theirs in other.needs.ports:
                for port in wanted:
                    if other.uid != pod.uid and port.conflicts(theirs):
                        return f"host port {port} is taken"
        return None

    return test
