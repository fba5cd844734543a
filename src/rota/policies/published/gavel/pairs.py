"""The pairs of jobs in Gavel's programs, in as few columns as possible.

Two classes of jobs have a column of their own, or each has one for its half of all pairs with a kind of jobs: as
neighbours, jobs of one kind are equivalent, so that only the totals of both halves need to agree, and the pairs are
formed afterwards. Pairs of n jobs with m others are n m columns, halves are n + m, with the same optimum.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rota.mechanisms.arrays import Floats
from rota.mechanisms.rounds.rule import NO_PARTNER, ShareQuestion
from rota.mechanisms.solvers.lp import Cut, Ints, Program

_TINY = 1e-9
"""Shares below this are the solver's noise."""
_BROKEN = 1e-6
"""The lack of neighbours at which a row is added: more than the solver's tolerance."""
Part = tuple[int, float]
"""The number of a job in a question, and its time."""
Couple = tuple[int, int, float]


class PairColumns(NamedTuple):
    """Columns of a program: a class with another, or its half of pairs with a kind (`partner`)."""

    one: Ints
    other: Ints
    kind: Ints
    one_speed: Floats
    other_speed: Floats
    partner: Ints
    scale: Floats


@dataclass(slots=True)
class Kinds:
    """Jobs by kind: by kind its name, its first and its last job; by class its kind."""

    names: list[Hashable]
    head: list[int]
    last: list[int]
    of: Ints

    @classmethod
    def among(cls, question: ShareQuestion, members: Sequence[list[int]]) -> Kinds:
        """The kinds of some classes."""
        numbers: dict[Hashable, int] = {}
        of: list[int] = []
        head: list[int] = []
        last: list[int] = []
        for rows in members:
            number = numbers.setdefault(question.jobs[rows[0]].kind, len(numbers))
            if number == len(head):
                head.append(rows[0])
                last.append(rows[-1])
            last[number] = rows[-1]
            of.append(number)
        return cls(list(numbers), head, last, np.array(of, dtype=np.int64))

    @property
    def classes(self) -> Ints:
        """By kind, the number of its classes."""
        return np.bincount(self.of, minlength=len(self.names)).astype(np.int64)

    def beside(self, question: ShareQuestion) -> tuple[Floats, NDArray[np.bool_]]:
        """By kind, neighbour's kind and type: the speed of the first, and whether such a pair gets a column.

        On a type with devices for all jobs nothing is gained by sharing, unless a pair is faster together.
        """
        jobs, count = question.jobs, len(self.names)
        roomy = question.capacity >= question.scale.sum()
        speed = np.zeros((count, count, len(question.types)))
        may = np.zeros(speed.shape, dtype=np.bool_)
        for k, row in enumerate(self.head):
            for m in range(k, count):
                one, other = jobs[row], jobs[self.last[m]]
                if (one.scale != other.scale and not question.mixed) or one is other:
                    continue
                both = question.pair_speeds(one, other)
                helps = ~roomy | (both > np.array([one.speeds, other.speeds])).any(axis=0)
                speed[k, m], speed[m, k] = both
                may[k, m] = may[m, k] = (both.min(axis=0) > 0) & helps
        return speed, may


def pair_columns(question: ShareQuestion, members: Sequence[list[int]], kinds: Kinds) -> PairColumns:
    """Columns for all jobs that may run together, as pairs or as halves, whichever are fewer."""
    speed, may = kinds.beside(question)
    of, classes = kinds.of, kinds.classes
    scale = question.scale[kinds.head]
    halved = np.multiply.outer(classes, classes) > np.add.outer(classes, classes)
    at, partner = np.nonzero((halved & may.any(axis=2))[of])
    line, kind = np.nonzero(may[of[at], partner])
    at, partner = at[line], partner[line]
    own = of[at]
    alone = np.full(len(at), NO_PARTNER)
    halves = (
        at,
        alone,
        kind,
        speed[own, partner, kind],
        np.zeros(len(at)),
        partner,
        np.maximum(scale[own], scale[partner]) / 2,
    )
    a, b = np.triu_indices(len(members))
    single = np.array([len(rows) < 2 for rows in members], dtype=np.bool_)
    kept = ~halved[of[a], of[b]] & ~((a == b) & single[a])
    a, b = a[kept], b[kept]
    line, kind = np.nonzero(may[of[a], of[b]])
    a, b = a[line], b[line]
    k, m = of[a], of[b]
    pairs = (
        a,
        b,
        kind,
        speed[k, m, kind],
        speed[m, k, kind],
        np.full(len(a), NO_PARTNER),
        np.maximum(scale[k], scale[m]),
    )
    return PairColumns(*(np.concatenate(part) for part in zip(pairs, halves, strict=True)))


@dataclass(slots=True)
class Halves:
    """The halves among a program's columns: their class, the kind of their partners, and their type."""

    column: Ints
    one: Ints
    own: Ints
    partner: Ints
    kind: Ints
    names: list[Hashable]

    def _groups(self) -> dict[tuple[int, int, int], Ints]:
        """The halves of the same pairs of kinds on a type, both sides together."""
        found: dict[tuple[int, int, int], list[int]] = {}
        low, high = np.minimum(self.own, self.partner), np.maximum(self.own, self.partner)
        for number, group in enumerate(zip(low.tolist(), high.tolist(), self.kind.tolist(), strict=True)):
            found.setdefault(group, []).append(number)
        return {group: np.array(numbers, dtype=np.int64) for group, numbers in found.items()}

    def constrain(self, program: Program, members: Sequence[list[int]], keys: Sequence[Hashable]) -> None:
        """Both sides of a pair of kinds have equal time; within a kind, no job has more than all others together.

        The latter hardly ever binds, so that such rows are added once they are violated.
        """
        groups = self._groups()
        for (low, high, kind), numbers in groups.items():
            if low != high:
                sign = np.where(self.own[numbers] == low, 1.0, -1.0)
                key = ("pairs", self.names[low], self.names[high], kind)
                program.add_row(self.column[numbers], sign, low=0.0, high=0.0, key=key)
        within = [numbers for (low, high, _), numbers in groups.items() if low == high]
        size = np.array([len(rows) for rows in members], dtype=np.float64)
        if within:
            program.cuts = lambda x: [cut for numbers in within for cut in self._lonely(numbers, x, size, keys)]

    def _lonely(self, numbers: Ints, x: Floats, size: Floats, keys: Sequence[Hashable]) -> Iterator[Cut]:
        """Rows for jobs that have more than half of the time of all jobs of their kind."""
        columns = self.column[numbers]
        each = x[columns] / size[self.one[numbers]]
        for at in np.nonzero(2 * each > x[columns].sum() + _BROKEN)[0].tolist():
            one = int(self.one[numbers[at]])
            values = np.full(len(columns), -1.0)
            values[at] += 2 / size[one]
            yield Cut(columns, values, 0.0, ("lonely", keys[one], int(self.kind[numbers[at]])))

    def couples(self, x: Floats, members: Sequence[list[int]]) -> Iterator[tuple[int, list[Couple]]]:
        """By type, which two jobs are packed for how long."""
        for (low, high, kind), numbers in self._groups().items():
            sides: tuple[list[Part], list[Part]] = ([], [])
            for number in numbers.tolist():
                rows = members[int(self.one[number])]
                part = float(x[self.column[number]]) / len(rows)
                if part > _TINY:
                    sides[int(self.own[number]) != low].extend((row, part) for row in rows)
            yield kind, list(zipped(*(folded(sides[0]) if low == high else sides)))


def folded(parts: Sequence[Part]) -> tuple[list[Part], list[Part]]:
    """Divide a line of times in the middle: a job with a share below 1/2 is never paired with itself."""
    half = sum(part for _, part in parts) / 2
    first: list[Part] = []
    second: list[Part] = []
    for row, part in parts:
        before = min(part, half)
        half -= before
        if before > _TINY:
            first.append((row, before))
        if part - before > _TINY:
            second.append((row, part - before))
    return first, second


def zipped(left: Sequence[Part], right: Sequence[Part]) -> Iterator[Couple]:
    """Few pairs that give every job on both sides its time."""
    i = j = 0
    mine, yours = (side[0][1] if side else 0.0 for side in (left, right))
    while i < len(left) and j < len(right):
        part = min(mine, yours)
        if left[i][0] != right[j][0] and part > _TINY:
            yield left[i][0], right[j][0], part
        mine, yours = mine - part, yours - part
        if mine <= _TINY:
            i += 1
            mine = left[i][1] if i < len(left) else 0.0
        if yours <= _TINY:
            j += 1
            yours = right[j][1] if j < len(right) else 0.0
