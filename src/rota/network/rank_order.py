"""The order of ranks in a gang: which rank of a collective runs where, so that its flows do not meet on links.

EFLOPS (Dong et al., HPCA 2020) maps recursive halving and doubling onto a BiGraph: ranks alternate between the two sets
of switches, so that each exchange crosses to the other side, where every pair of switches has a trunk of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rota.network.collectives import CollectiveKind, phases_of
from rota.network.routing import Path
from rota.network.topology import NetworkTopology
from rota.network.traffic import RankPlace

SWEEPS = 4
MOST_SEARCHED = 64
"""Ranks up to which exchanges of two ranks are tried."""
MOST_INSIDE = 16
"""Tasks on one node up to which exchanges of two are tried: its links need not be alike."""
MOST_JUDGED = 512
"""Ranks up to which the order of tasks is judged by all of them."""


def link_flows(
    kind: CollectiveKind, ranks: Sequence[RankPlace], topology: NetworkTopology, path_of: Callable[[int, int], Path]
) -> list[dict[int, int]]:
    """Return for each phase how many flows cross each link between switches."""
    found = []
    for phase in phases_of(kind, [rank.node for rank in ranks], 1.0):
        flows: dict[int, int] = {}
        for source, target, _ in phase.transfers:
            one, other = ranks[source], ranks[target]
            for link in path_of(topology.vertex(one.node, one.device), topology.vertex(other.node, other.device)):
                flows[link] = flows.get(link, 0) + 1
        found.append(flows)
    return found


def worst_contention(
    kind: CollectiveKind, ranks: Sequence[RankPlace], topology: NetworkTopology, path_of: Callable[[int, int], Path]
) -> float:
    """Return the sum over phases of the time that the busiest link takes, relative to one flow on a node's own link."""
    alone = min(topology.access_bytes_per_s(rank.node) for rank in ranks) or 1.0
    total = 0.0
    for flows in link_flows(kind, ranks, topology, path_of):
        total += max((count * alone / float(topology.capacity[link]) for link, count in flows.items()), default=0.0)
    return total


def near_order(ranks: Sequence[RankPlace], topology: NetworkTopology) -> list[int]:
    """Return ranks so that those below one switch follow each other: a ring then enters each switch once."""
    switch = {(rank.node, rank.device): _switch(rank, topology) for rank in dict.fromkeys(ranks)}
    key = [(switch[rank.node, rank.device], rank.node, rank.device or 0) for rank in ranks]
    return sorted(range(len(ranks)), key=key.__getitem__)


def alternating_order(ranks: Sequence[RankPlace], topology: NetworkTopology) -> list[int]:
    """Return the order of EFLOPS for halving and doubling on a BiGraph.

    Partners differ in one bit, so that the parity of a rank is its side. Above the lowest bit, the lowest bits are the
    switch of ranks on the upper side, and the highest that of ranks on the lower side. As no bit is left out where they
    overlap, and none is in both where they do not, the ranks below one switch have their partners spread evenly over
    the switches of the other side, in every exchange.
    """
    by_switch: dict[int, list[int]] = {}
    for rank in near_order(ranks, topology):
        by_switch.setdefault(_switch(ranks[rank], topology), []).append(rank)
    upper = [some for switch, some in sorted(by_switch.items()) if topology.vertices[switch].startswith("upper")]
    lower = [some for switch, some in sorted(by_switch.items()) if topology.vertices[switch].startswith("lower")]
    if not upper or not lower or len({len(some) for some in (*upper, *lower)}) != 1 or len(upper) != len(lower):
        return near_order(ranks, topology)
    switches, per_switch = len(upper), len(upper[0])
    if switches & (switches - 1) or per_switch & (per_switch - 1):
        return near_order(ranks, topology)
    upwards = per_switch.bit_length() - 1
    taken: dict[tuple[int, int], int] = {}
    order = []
    for number in range(len(ranks)):
        side = number.bit_count() & 1
        switch = number >> (1 + side * upwards) & (switches - 1)
        host = taken.get((side, switch), 0)
        taken[side, switch] = host + 1
        order.append((lower if side else upper)[switch][host])
    return order if len(set(order)) == len(ranks) else near_order(ranks, topology)


def best_order(
    kind: CollectiveKind, ranks: Sequence[RankPlace], topology: NetworkTopology, path_of: Callable[[int, int], Path]
) -> list[int]:
    """Return the order with the least contention: of the given one, the near and the alternating one, and exchanges."""

    def cost(order: Sequence[int]) -> float:
        return worst_contention(kind, [ranks[rank] for rank in order], topology, path_of)

    given = list(range(len(ranks)))
    choices = [given, near_order(ranks, topology), alternating_order(ranks, topology)]
    best = min(choices, key=cost)
    return best if len(ranks) > MOST_SEARCHED else _exchanged(best, cost)


def _exchanged(best: list[int], cost: Callable[[Sequence[int]], float]) -> list[int]:
    """Return an order after exchanges of two that lower its cost."""
    lowest = cost(best)
    for _ in range(SWEEPS):
        before = lowest
        for one in range(len(best)):
            for other in range(one + 1, len(best)):
                tried = list(best)
                tried[one], tried[other] = tried[other], tried[one]
                found = cost(tried)
                if found < lowest * (1 - 1e-9):
                    best, lowest = tried, found
        if lowest == before:
            break
    return best


def task_order(
    kind: CollectiveKind,
    tasks: Sequence[Sequence[RankPlace]],
    topology: NetworkTopology,
    path_of: Callable[[int, int], Path],
) -> list[int]:
    """Return the order of tasks, each of some ranks that stay together: the given, near or alternating one.

    The given order is kept unless another has less contention; a large job's is judged by one rank of each task.
    """
    heads = [ranks[0] for ranks in tasks]
    whole = sum(map(len, tasks)) <= MOST_JUDGED

    def cost(order: Sequence[int]) -> float:
        """Contention; then, as far as it is equal, the links that are crossed."""
        ranks = [rank for task in order for rank in (tasks[task] if whole else tasks[task][:1])]
        flows = link_flows(kind, ranks, topology, path_of)
        crossed = sum(count for some in flows for count in some.values())
        capacity = topology.capacity
        worst = sum(max((count / float(capacity[link]) for link, count in some.items()), default=0.0) for some in flows)
        return float(f"{worst * (1 + 1e-6 * crossed):.9g}")

    given = list(range(len(tasks)))
    choices = [given, near_order(heads, topology)]
    if kind is CollectiveKind.HALVING_DOUBLING:
        choices.append(alternating_order(heads, topology))
    different = [choice for number, choice in enumerate(choices) if choice not in choices[:number]]
    best = min(different, key=cost) if len(different) > 1 else given
    if len({rank.node for rank in heads}) > 1 or not 2 < len(tasks) <= MOST_INSIDE:
        return best
    flows = link_flows(kind, [rank for task in best for rank in tasks[task]], topology, path_of)
    return best if all(count == 1 for some in flows for count in some.values()) else _exchanged(best, cost)


def _switch(rank: RankPlace, topology: NetworkTopology) -> int:
    """Return the first switch that a rank's own link leads to; its own vertex where there is none."""
    vertices = [topology.vertex(rank.node, rank.device), topology.vertex(rank.node)]
    for vertex in vertices:
        for link in topology.out_links[vertex]:
            if topology.owner[topology.head[link]] < 0:
                return topology.head[link]
    return vertices[-1]
