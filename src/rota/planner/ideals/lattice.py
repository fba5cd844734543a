"""All ideals of a precedence order, with the sums over each that loads are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rota.planner.ideals.instance import Floats, Ints, MaxLoadInstance
from rota.planner.plan import TooManyIdeals

MOST_IDEALS = 400_000
_WORD = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class IdealTable:
    """Ideals in ascending order of their time on an accelerator; the last is the full set.

    `crossing` has one row for each ideal such that the transfers between two ideals, one within the other, are
    `open_ms[i] + open_ms[j] - crossing[i] @ crossing[j]`: nets that both leave open are counted by both, and do not
    count at all where neither of their groups lies in between.
    """

    words: NDArray[np.uint64]
    accelerator_ms: Floats
    cpu_ms: Floats
    memory_bytes: Floats
    accelerator_only: Ints
    cpu_only: Ints
    open_ms: Floats
    crossing: Floats

    def __len__(self) -> int:
        return len(self.open_ms)

    def between(self, inner: int, outer: int) -> list[int]:
        """The groups of the outer ideal that the inner one does not hold."""
        mask = self.words[outer] & ~self.words[inner]
        return [word * _WORD + bit for word, value in enumerate(mask) for bit in range(_WORD) if int(value) >> bit & 1]


def all_ideals(instance: MaxLoadInstance, most: int | None = None) -> list[int]:
    """Every ideal as the bits of an integer, level by level; more than `most` are refused."""
    most = MOST_IDEALS if most is None else most
    count = len(instance)
    needs = [0] * count
    after: list[list[int]] = [[] for _ in range(count)]
    for first, second in instance.precedence:
        needs[second] |= 1 << first
        after[first].append(second)
    level = {0: sum(1 << group for group in range(count) if not needs[group])}
    found = [0]
    while level:
        following: dict[int, int] = {}
        for ideal, available in level.items():
            rest = available
            while rest:
                bit = rest & -rest
                rest ^= bit
                larger = ideal | bit
                if larger not in following:
                    following[larger] = _available(larger, available ^ bit, after[bit.bit_length() - 1], needs)
            # A level of a wide graph may be larger than all that is allowed; stop within it.
            if len(found) + len(following) > most:
                raise TooManyIdeals(
                    f"the graph has more than {most} ideals, too many for max-load; take linear or pipedream,"
                    " or put operators together by colocation"
                )
        found += following
        level = following
    return found


def _available(larger: int, available: int, candidates: Sequence[int], needs: Sequence[int]) -> int:
    for group in candidates:
        if needs[group] & ~larger == 0:
            available |= 1 << group
    return available


def linear_ideals(instance: MaxLoadInstance) -> list[int]:
    """The prefixes of one topological order that finishes branches before it opens others."""
    count = len(instance)
    waiting = [0] * count
    after: list[list[int]] = [[] for _ in range(count)]
    for first, second in sorted(instance.precedence):
        waiting[second] += 1
        after[first].append(second)
    ready = [group for group in reversed(range(count)) if not waiting[group]]
    found = [0]
    while ready:
        group = ready.pop()
        found.append(found[-1] | 1 << group)
        for second in after[group]:
            waiting[second] -= 1
            if not waiting[second]:
                ready.append(second)
    return found


def thinned(ideals: Sequence[int], most: int) -> list[int]:
    """At most so many of a chain of ideals, evenly spaced, the first and the last among them."""
    if len(ideals) <= most:
        return list(ideals)
    return [ideals[place] for place in np.linspace(0, len(ideals) - 1, most).astype(int)]


def ideal_table(instance: MaxLoadInstance, ideals: Sequence[int]) -> IdealTable:
    """The sums over some ideals, the empty and the full set among them."""
    count = len(instance)
    words = max(1, -(-count // _WORD))
    packed = np.frombuffer(b"".join(ideal.to_bytes(words * 8, "little") for ideal in ideals), dtype="<u8")
    packed = packed.reshape(len(ideals), words).astype(np.uint64)
    bits = np.unpackbits(packed.view(np.uint8), axis=1, bitorder="little")[:, :count]
    time_ms = bits @ instance.accelerator_ms
    order = np.lexsort((bits.sum(axis=1), time_ms))
    packed, bits, time_ms = packed[order], bits[order], time_ms[order]
    open_ms, crossing = _crossing(instance, bits)
    return IdealTable(
        words=packed,
        accelerator_ms=time_ms,
        cpu_ms=bits @ instance.cpu_ms,
        memory_bytes=bits @ instance.memory_bytes,
        accelerator_only=bits @ instance.accelerator_only,
        cpu_only=bits @ instance.cpu_only,
        open_ms=open_ms,
        crossing=crossing,
    )


def _crossing(instance: MaxLoadInstance, bits: NDArray[np.uint8]) -> tuple[Floats, Floats]:
    """Per ideal the cost of its open nets, and the rows whose products correct for nets open at both of two ideals."""
    open_ms = np.zeros(len(bits))
    columns: list[Floats] = []
    for groups, cost_ms in instance.nets:
        held = bits[:, list(groups)].sum(axis=1)
        is_open = (held > 0) & (held < len(groups))
        if not cost_ms or not is_open.any():
            continue
        open_ms += cost_ms * is_open
        if len(groups) == 2:
            columns.append(np.sqrt(2 * cost_ms) * is_open)
            continue
        columns.append(np.sqrt(cost_ms) * is_open)
        columns += [np.sqrt(cost_ms) * (held == some) for some in range(1, len(groups)) if (held == some).any()]
    crossing = np.stack(columns, axis=1) if columns else np.zeros((len(bits), 0))
    return open_ms, np.ascontiguousarray(crossing)
