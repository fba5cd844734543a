"""Collective operations as flows between the ranks of a job.

A collective is a sequence of phases. The flows of one phase run at the same time; `steps` is the number of messages
that follow each other in it, each of which waits for the latency of its path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from rota.core.errors import RotaError, did_you_mean

Transfer = tuple[int, int, float]
"""Sending rank, receiving rank, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectivePhase:
    """Transfers that run at the same time, and how many messages follow each other in them."""

    steps: int
    transfers: tuple[Transfer, ...]


class CollectiveKind(Enum):
    """The collectives, by the names that files use."""

    RING = "ring"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    HALVING_DOUBLING = "halving-doubling"
    DOUBLE_TREE = "double-tree"
    BINOMIAL_TREE = "binomial-tree"
    HIERARCHICAL = "hierarchical"
    PARAMETER_SERVER = "parameter-server"
    ALL_TO_ALL = "all-to-all"


def collective_kind(name: str) -> CollectiveKind:
    """Return the collective of a name."""
    try:
        return CollectiveKind(name)
    except ValueError:
        names = [kind.value for kind in CollectiveKind]
        raise RotaError(f"unknown collective {name!r}; {did_you_mean(name, names)}") from None


def ring(ranks: int, size: float) -> list[CollectivePhase]:
    """Return an all-reduce around a ring: every rank passes 2(n-1)/n of the data on."""
    return _around(ranks, size, 2)


def reduce_scatter(ranks: int, size: float) -> list[CollectivePhase]:
    """Return half a ring: every rank passes (n-1)/n of the data on."""
    return _around(ranks, size, 1)


def _around(ranks: int, size: float, times: int) -> list[CollectivePhase]:
    if ranks < 2:
        return []
    steps = times * (ranks - 1)
    share = steps * size / ranks
    return [CollectivePhase(steps=steps, transfers=tuple((r, (r + 1) % ranks, share) for r in range(ranks)))]


def halving_doubling(ranks: int, size: float) -> list[CollectivePhase]:
    """Return recursive halving and doubling; ranks beyond a power of two fold into a partner before and after."""
    if ranks < 2:
        return []
    core = 1 << (ranks.bit_length() - 1)
    extra = ranks - core
    phases = []
    if extra:
        phases.append(CollectivePhase(steps=1, transfers=tuple((core + r, r, size) for r in range(extra))))
    distance, share = core // 2, size / 2
    exchanges = []
    while distance:
        pairs = tuple((r, r ^ distance, share) for r in range(core))
        exchanges.append(CollectivePhase(steps=1, transfers=pairs))
        distance, share = distance // 2, share / 2
    phases += [*exchanges, *reversed(exchanges)]
    if extra:
        phases.append(CollectivePhase(steps=1, transfers=tuple((r, core + r, size) for r in range(extra))))
    return phases


def double_tree(ranks: int, size: float) -> list[CollectivePhase]:
    """Return two binary trees, each with half of the data, pipelined up and down: a leaf of one is inside the other."""
    if ranks < 2:
        return []
    depth = math.ceil(math.log2(ranks))
    edges = _tree_edges(ranks)
    mirrored = [(ranks - 1 - child, ranks - 1 - parent) for child, parent in edges]
    if ranks % 2:
        mirrored = [((child + 1) % ranks, (parent + 1) % ranks) for child, parent in edges]
    up = [(child, parent, size / 2) for child, parent in (*edges, *mirrored)]
    down = [(parent, child, size / 2) for child, parent in (*edges, *mirrored)]
    return [CollectivePhase(steps=2 * depth, transfers=(*up, *down))]


def _tree_edges(ranks: int) -> list[tuple[int, int]]:
    """Return child and parent in a tree in which every odd rank (of the order from 1) is a leaf."""
    edges = []
    for rank in range(1, ranks):
        low = rank & -rank
        parent = (rank ^ low) | (low << 1)
        while parent >= ranks:
            low_parent = parent & -parent
            parent ^= low_parent
            if parent == 0:
                break
        edges.append((rank, 0 if parent == rank else parent))
    return edges


def binomial_tree(ranks: int, size: float) -> list[CollectivePhase]:
    """Return a reduction to rank 0 and a broadcast from it, the whole data at each of log2 n levels."""
    phases = []
    distance = 1
    while distance < ranks:
        pairs = tuple((r + distance, r, size) for r in range(0, ranks - distance, 2 * distance))
        phases.append(CollectivePhase(steps=1, transfers=pairs))
        distance *= 2
    back = [CollectivePhase(steps=1, transfers=tuple((b, a, s) for a, b, s in p.transfers)) for p in reversed(phases)]
    return [*phases, *back]


def hierarchical(groups: Sequence[Sequence[int]], size: float) -> list[CollectivePhase]:
    """Return a reduce-scatter inside each group, an all-reduce of each share between groups, and an all-gather inside.

    Groups of unequal size take part with as many shares as the smallest has ranks.
    """
    shares = min(len(group) for group in groups)
    inside = [phase for group in groups for phase in _renamed(reduce_scatter(len(group), size), group)]
    phases = [_together(inside)] if inside else []
    if len(groups) > 1:
        rings = [
            phase
            for share in range(shares)
            for phase in _renamed(ring(len(groups), size / shares), [group[share] for group in groups])
        ]
        phases.append(_together(rings))
    return [*phases, *([_together(inside)] if inside else [])]


def parameter_server(workers: Sequence[int], servers: Sequence[int], size: float) -> list[CollectivePhase]:
    """Return a push of gradients to all servers and a pull of parameters from them."""
    share = size / len(servers)
    push = tuple((worker, server, share) for worker in workers for server in servers if worker != server)
    pull = tuple((server, worker, share) for worker, server, _ in push)
    return [CollectivePhase(steps=1, transfers=push), CollectivePhase(steps=1, transfers=pull)] if push else []


def all_to_all(ranks: int, size: float) -> list[CollectivePhase]:
    """Return an exchange in which every rank sends an equal share of its data to every other."""
    if ranks < 2:
        return []
    pairs = tuple((a, (a + d) % ranks, size / ranks) for d in range(1, ranks) for a in range(ranks))
    return [CollectivePhase(steps=ranks - 1, transfers=pairs)]


_FLAT: dict[CollectiveKind, Callable[[int, float], list[CollectivePhase]]] = {
    CollectiveKind.RING: ring,
    CollectiveKind.REDUCE_SCATTER: reduce_scatter,
    CollectiveKind.ALL_GATHER: reduce_scatter,
    CollectiveKind.HALVING_DOUBLING: halving_doubling,
    CollectiveKind.DOUBLE_TREE: double_tree,
    CollectiveKind.BINOMIAL_TREE: binomial_tree,
    CollectiveKind.ALL_TO_ALL: all_to_all,
}


def phases_of(
    kind: CollectiveKind, nodes: Sequence[int], size: float, servers: Sequence[int] = ()
) -> list[CollectivePhase]:
    """Return the phases of a collective between ranks, given the node of each rank; `servers` are ranks that serve.

    Without named servers, one rank of each node serves, as sharded parameter servers do.
    """
    ranks = len(nodes)
    if not 0 <= size < math.inf:
        raise RotaError(f"a collective of {size:g} bytes; the size must be a number of 0 or more")
    groups: dict[int, list[int]] = {}
    for rank, node in enumerate(nodes):
        groups.setdefault(node, []).append(rank)
    if kind is CollectiveKind.HIERARCHICAL:
        return hierarchical(list(groups.values()), size) if ranks > 1 else []
    if kind is CollectiveKind.PARAMETER_SERVER:
        chosen = list(servers) or [some[0] for some in groups.values()]
        workers = [rank for rank in range(ranks) if rank not in set(servers)]
        return parameter_server(workers, chosen, size)
    return _FLAT[kind](ranks, size)


def _renamed(phases: Sequence[CollectivePhase], names: Sequence[int]) -> list[CollectivePhase]:
    return [
        CollectivePhase(steps=p.steps, transfers=tuple((names[a], names[b], size) for a, b, size in p.transfers))
        for p in phases
    ]


def _together(phases: Sequence[CollectivePhase]) -> CollectivePhase:
    """Return phases that run at the same time as one."""
    return CollectivePhase(
        steps=max(p.steps for p in phases), transfers=tuple(each for p in phases for each in p.transfers)
    )
