"""Maximum-weight matching, as the blossom algorithm finds it.

Items of one class are equivalent, so that it is enough to find the number of pairs of each two classes: an exactly
solved integer program whose size grows with the number of classes, not of items.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import numpy as np

from rota.core.errors import InvariantBroken
from rota.mechanisms.solvers.lp import NoSolution, Program, Solver

Class = TypeVar("Class", bound=Hashable)
Pair = tuple[int, int]


def best_pairs(
    classes: Sequence[Class],
    weight: Callable[[Class, Class], float],
    near: Callable[[int, int], bool] = lambda one, other: False,
) -> list[Pair]:
    """The pairs of items, each item in at most one, with the largest sum of weights; heaviest first.

    `classes` holds the class of each item. Only pairs with a weight above 0 are made; among equal ones, items that are
    `near` each other come first, then earlier ones.
    """
    items: dict[Class, list[int]] = {}
    for at, kind in enumerate(classes):
        items.setdefault(kind, []).append(at)
    kinds = list(items)
    edges = [
        (weight(kinds[one], kinds[other]), one, other)
        for one in range(len(kinds))
        for other in range(one, len(kinds))
        if one != other or len(items[kinds[one]]) > 1
    ]
    edges = [edge for edge in edges if edge[0] > 0]
    counts = _counts(edges, [len(items[kind]) for kind in kinds])
    pairs: list[tuple[float, bool, int, int]] = []
    for is_near in (True, False):
        for at, (gain, one, other) in enumerate(edges):
            found = _take_pairs(items[kinds[one]], items[kinds[other]], counts[at], near if is_near else None)
            counts[at] -= len(found)
            pairs += [(-gain, not is_near, *pair) for pair in found]
    return [(first, second) for _, _, first, second in sorted(pairs)]


def _take_pairs(one: list[int], other: list[int], most: int, near: Callable[[int, int], bool] | None) -> list[Pair]:
    """Remove at most `most` pairs from two lists, which may be the same; with `near`, only pairs of such items."""
    found: list[Pair] = []
    for first in list(one):
        if len(found) == most:
            break
        partner = next((each for each in other if each != first and (near is None or near(first, each))), None)
        if partner is not None and first in one:
            one.remove(first)
            other.remove(partner)
            found.append((min(first, partner), max(first, partner)))
    return found


def _counts(edges: Sequence[tuple[float, int, int]], members: Sequence[int]) -> list[int]:
    """The number of pairs of each two classes: maximum weight, with no more of a class than it has members."""
    if not edges:
        return []
    size = len(edges)
    program = Program(
        gain=np.array([gain for gain, _, _ in edges]),
        lower=np.zeros(size),
        upper=np.full(size, float(max(members))),
        whole=np.ones(size, dtype=np.bool_),
    )
    for kind, most in enumerate(members):
        used = np.array([(one == kind) + (other == kind) for _, one, other in edges], dtype=np.float64)
        program.add_row(np.flatnonzero(used), used[used > 0], high=float(most))
    found = Solver().solve(program)
    if isinstance(found, NoSolution):
        raise InvariantBroken(f"no matching of {len(members)} classes: {found.reason}")
    return [round(count) for count in found.x]
