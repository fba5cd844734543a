"""The common part of the family's programs: which columns there are, what devices and time they use up.

Jobs alike in profile, size and whatever else a rule looks at are one class. A column is the time of a whole
class (or of all pairs between two classes) on a type; by symmetry nothing is lost, and it is split afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rota.mechanisms.programs import Ints, Program
from rota.mechanisms.shares import NOBODY, Contender, Floats, Party, Question, sized

_TINY = 1e-9
"""Shares below this are the solver's noise."""
_CALM = 1e-4
"""How much of its speed a job is thought to lose whenever its size doubles, so that of two ways which do the same the
one with smaller sizes is taken: fewer devices all the time need no restarts, more of them in turn do."""


@dataclass(slots=True)
class Layout:
    """Classes of alike jobs, and the columns over them: time on a type of one class or of two together."""

    question: Question
    members: list[list[int]]
    """Of each class, the numbers of its jobs in the question."""
    keys: list[Hashable]
    count: Floats
    scale: Floats
    speeds: Floats
    """Of each class alone, by type, as the rule sees it."""
    one: Ints
    other: Ints
    kind: Ints
    one_speed: Floats
    other_speed: Floats
    tasks: Ints
    """Of columns of elastic jobs at another size than usual, how many tasks that is; else 0."""
    column_scale: Floats
    """Devices that a column uses."""

    @property
    def columns(self) -> int:
        """Number of columns for shares."""
        return len(self.kind)

    def first(self, values: Floats) -> Floats:
        """Of each class, the value of its first job."""
        return values[[rows[0] for rows in self.members]]

    def program(self, extra: int = 0) -> Program:
        """Base constraints: the devices of each type, the time of each class; `extra` free columns at the end."""
        width, kinds, classes = self.columns, len(self.question.types), len(self.count)
        column_keys = [
            (self.keys[a], self.keys[b] if b >= 0 else tasks or None, at)
            for a, b, at, tasks in zip(
                self.one.tolist(), self.other.tolist(), self.kind.tolist(), self.tasks.tolist(), strict=True
            )
        ]
        program = Program(
            gain=np.zeros(width + extra),
            lower=np.concatenate([np.zeros(width), np.full(extra, -np.inf)]),
            upper=np.full(width + extra, np.inf),
            columns=[*column_keys, *(("extra", at) for at in range(extra))],
        )
        every = np.arange(width)
        low = np.full(kinds, -np.inf)
        names = [("devices", at) for at in range(kinds)]
        program.add_rows(self.kind, every, self.column_scale, low, self.question.capacity, names)
        rows, columns, ones = self._by_class(np.ones(width), np.ones(width))
        program.add_rows(
            rows, columns, ones, np.full(classes, -np.inf), self.count, [("time", key) for key in self.keys]
        )
        self._keep_gangs_whole(program)
        return program

    def _keep_gangs_whole(self, program: Program) -> None:
        """A job on several types at once has no larger part of its time on a type than that holds of its tasks.

        Otherwise it could be promised time on the few fast devices alone, on which it can't run.
        """
        for at, rows in enumerate(self.members):
            job = self.question.jobs[rows[0]]
            if not job.spans:
                continue
            own = np.nonzero(self.one == at)[0]
            for column in own.tolist():
                kind = int(self.kind[column])
                part = min(job.rooms[kind] / job.count, 1.0)
                program.add_row(own, (own == column) - part, high=0.0, key=("gang", self.keys[at], kind))

    def progress(self) -> tuple[Ints, Ints, Floats]:
        """What a class gets done, as triplets: row by class, column, speed."""
        return self._by_class(self.one_speed, self.other_speed)

    def _by_class(self, of_one: Floats, of_other: Floats) -> tuple[Ints, Ints, Floats]:
        of_one = np.where(self.other == self.one, of_one + of_other, of_one)
        paired = np.nonzero((self.other != NOBODY) & (self.other != self.one))[0]
        rows = np.concatenate([self.one, self.other[paired]])
        columns = np.concatenate([np.arange(self.columns), paired])
        return rows, columns, np.concatenate([of_one, of_other[paired]])

    def done(self, x: Floats) -> Floats:
        """What one job of each class gets done in a second under a solution."""
        rows, columns, speeds = self.progress()
        total = np.bincount(rows, weights=speeds * x[columns], minlength=len(self.count)).astype(np.float64)
        return total / self.count

    def split(self, x: Floats) -> dict[Party, list[float]]:
        """Shares of jobs and pairs; every job is named, with nothing if it comes to that."""
        kinds = len(self.question.types)
        jobs = self.question.jobs
        shares: dict[Party, list[float]] = {(job.seq,): [0.0] * kinds for job in jobs}
        for column in np.nonzero(x[: self.columns] > _TINY)[0].tolist():
            a, b, at = int(self.one[column]), int(self.other[column]), int(self.kind[column])
            total = float(x[column])
            if b == NOBODY:
                part, tasks = min(total / len(self.members[a]), 1.0), int(self.tasks[column])
                for row in self.members[a]:
                    party: Party = sized(jobs[row].seq, tasks) if tasks else (jobs[row].seq,)
                    shares.setdefault(party, [0.0] * kinds)[at] = part
                continue
            for one, other, part in _couples(self.members[a], self.members[b], a == b):
                pair = sorted((jobs[one].seq, jobs[other].seq))
                row_of = shares.setdefault((pair[0], pair[1]), [0.0] * kinds)
                row_of[at] = min(row_of[at] + part * total, 1.0)
        return shares


def _couples(one: list[int], other: list[int], same: bool) -> list[tuple[int, int, float]]:
    """Few pairs that give every member of both classes its equal part: a ring within a class, a zip between two."""
    if same:
        if len(one) == 2:
            return [(one[0], one[1], 1.0)]
        return [(one[at - 1], one[at], 1.0 / len(one)) for at in range(len(one))]
    couples = []
    i = j = 0
    left, right = 1.0 / len(one), 1.0 / len(other)
    while i < len(one) and j < len(other):
        part = min(left, right)
        couples.append((one[i], other[j], part))
        left, right = left - part, right - part
        if left <= _TINY / len(one):
            i, left = i + 1, 1.0 / len(one)
        if right <= _TINY / len(other):
            j, right = j + 1, 1.0 / len(other)
    return couples


def fastest_everywhere(question: Question) -> Floats:
    """Speeds as a rule sees them that takes all types for the fastest."""
    fastest = question.speeds.max(axis=1, keepdims=True, initial=0.0)
    return np.repeat(fastest, len(question.types), axis=1)


def lay_out(
    question: Question,
    *,
    speeds: Floats | None = None,
    packs: bool = False,
    alike: Callable[[int, Contender], Hashable] | None = None,
    collapse: bool = True,
) -> Layout:
    """Columns for a question. `speeds` replaces the real ones, `alike` adds to what tells classes apart."""
    real = question.speeds
    seen = real if speeds is None else np.where(real > 0, speeds, 0.0)
    classes: dict[Hashable, list[int]] = {}
    for row, job in enumerate(question.jobs):
        key: Hashable = (job.kind, job.weight, None if alike is None else alike(row, job))
        classes.setdefault(key if collapse else job.seq, []).append(row)
    members = list(classes.values())
    heads = [rows[0] for rows in members]
    one, kind = np.nonzero(seen[heads] > 0)
    parts: list[tuple[Any, ...]] = [(one, np.full(len(one), NOBODY), kind, seen[heads][one, kind], np.zeros(len(one)))]
    if packs:
        parts.append(_pair_columns(question, members, heads))
    usual = sum(len(part[0]) for part in parts)
    tasks, scales = [0] * usual, []
    if speeds is None:
        sizes = _size_columns(question, heads)
        parts.append(sizes[:5])
        tasks, scales = [*tasks, *sizes[5]], sizes[6]
    merged = [np.concatenate([part[at] for part in parts]) for at in range(5)]
    first, other = merged[0].astype(np.int64), merged[1].astype(np.int64)
    scale = question.scale[heads]
    usual_scale = np.maximum(scale[first], np.where(other == NOBODY, 0.0, scale[other]))[:usual]
    return Layout(
        question=question,
        members=members,
        keys=list(classes),
        count=np.array([len(rows) for rows in members], dtype=np.float64),
        scale=scale,
        speeds=seen[heads],
        one=first,
        other=other,
        kind=merged[2].astype(np.int64),
        one_speed=merged[3].astype(np.float64),
        other_speed=merged[4].astype(np.float64),
        tasks=np.array(tasks, dtype=np.int64),
        column_scale=np.concatenate([usual_scale, np.array(scales, dtype=np.float64)]),
    )


def _size_columns(question: Question, heads: Sequence[int]) -> tuple[Any, ...]:
    """Columns for other sizes of elastic jobs, as for singles; then their numbers of tasks and of devices."""
    found = [
        (a, NOBODY, at, speed * (1 - _CALM * math.log2(size.scale / question.jobs[row].scale)), 0.0, *size[:2])
        for a, row in enumerate(heads)
        for size in question.jobs[row].sizes
        for at, speed in enumerate(size.speeds)
        if speed > 0
    ]
    return tuple(zip(*found, strict=True)) if found else ((),) * 7


def _pair_columns(question: Question, members: Sequence[list[int]], heads: Sequence[int]) -> tuple[Any, ...]:
    """Columns for every two classes that can run together, and for classes of two or more.

    On a type with a device for everybody there is nothing to gain from sharing, unless two are faster together.
    """
    jobs = question.jobs
    roomy = question.capacity >= question.scale.sum()
    one, other, kind, one_speed, other_speed = [], [], [], [], []
    for a, row in enumerate(heads):
        for b in range(a, len(heads)):
            mate = jobs[heads[b]] if b != a else jobs[members[a][-1]]
            if (jobs[row].scale != mate.scale and not question.mixed) or (a == b and len(members[a]) < 2):
                continue
            both = question.beside(jobs[row], mate)
            helps = ~roomy | (both > np.array([jobs[row].speeds, mate.speeds])).any(axis=0)
            for at in np.nonzero((both.min(axis=0) > 0) & helps)[0].tolist():
                one.append(a)
                other.append(b)
                kind.append(at)
                one_speed.append(both[0, at])
                other_speed.append(both[1, at])
    return np.array(one), np.array(other), np.array(kind), np.array(one_speed), np.array(other_speed)
