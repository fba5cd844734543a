"""What Gavel's programs have in common: the columns, and the devices and time that they use.

Jobs of equal profile, size and other properties that a rule reads form one class. A column is the time of a whole
class (or of all pairs between two classes) on a type; by symmetry nothing is lost, and it is divided afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rota.mechanisms.arrays import Floats
from rota.mechanisms.rounds.rule import NO_PARTNER, Contender, RoundJob, ShareQuestion, sized
from rota.mechanisms.solvers.lp import Ints, Program
from rota.policies.published.gavel.pairs import Couple, Halves, Kinds, PairColumns, pair_columns, zipped

_TINY = 1e-9
"""Shares below this are the solver's noise."""
_CALM = 1e-4
"""The assumed loss of speed when a job's size doubles, so that of two equal solutions the one with smaller sizes is
chosen: fewer devices all the time need no restarts, more devices part of the time do."""


@dataclass(slots=True)
class ProgramLayout:
    """Classes of equivalent jobs, and the columns over them: time on a type of one class or of two together."""

    question: ShareQuestion
    members: list[list[int]]
    """By class, the numbers of its jobs in the question."""
    keys: list[Hashable]
    count: Floats
    scale: Floats
    speeds: Floats
    """By class and type, its isolated speed as the rule sees it."""
    one: Ints
    other: Ints
    kind: Ints
    one_speed: Floats
    other_speed: Floats
    tasks: Ints
    """By column, the number of tasks of elastic jobs at another size than usual; else 0."""
    column_scale: Floats
    """Devices that a column uses."""
    halves: Halves | None = None
    """Columns for one side of the pairs between two kinds of jobs."""

    @property
    def columns(self) -> int:
        """Number of columns for shares."""
        return len(self.kind)

    def first(self, values: Floats) -> Floats:
        """By class, the value of its first job."""
        return values[[rows[0] for rows in self.members]]

    def program(self, extra: int = 0) -> Program:
        """Base constraints: the devices of each type, the time of each class; `extra` free columns at the end."""
        width, kinds, classes = self.columns, len(self.question.types), len(self.count)
        column_keys: list[Hashable] = [
            (self.keys[a], self.keys[b] if b >= 0 else tasks or None, at)
            for a, b, at, tasks in zip(
                self.one.tolist(), self.other.tolist(), self.kind.tolist(), self.tasks.tolist(), strict=True
            )
        ]
        if self.halves is not None:
            for column, partner in zip(self.halves.column.tolist(), self.halves.partner.tolist(), strict=True):
                key, _, at = column_keys[column]
                column_keys[column] = (key, ("beside", self.halves.names[partner]), at)
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
        if self.halves is not None:
            self.halves.constrain(program, self.members, self.keys)
        return program

    def _keep_gangs_whole(self, program: Program) -> None:
        """Limit a job that spans types to the fraction of its time on a type that its tasks there allow.

        Otherwise it could get time on the few fast devices alone, on which it can't run.
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
        """The progress of each class, as triplets: row by class, column, speed."""
        return self._by_class(self.one_speed, self.other_speed)

    def _by_class(self, of_one: Floats, of_other: Floats) -> tuple[Ints, Ints, Floats]:
        of_one = np.where(self.other == self.one, of_one + of_other, of_one)
        paired = np.nonzero((self.other != NO_PARTNER) & (self.other != self.one))[0]
        rows = np.concatenate([self.one, self.other[paired]])
        columns = np.concatenate([np.arange(self.columns), paired])
        return rows, columns, np.concatenate([of_one, of_other[paired]])

    def done(self, x: Floats) -> Floats:
        """The progress per second of one job of each class under a solution."""
        rows, columns, speeds = self.progress()
        total = np.bincount(rows, weights=speeds * x[columns], minlength=len(self.count)).astype(np.float64)
        return total / self.count

    def split(self, x: Floats) -> dict[Contender, list[float]]:
        """Shares of jobs and pairs; every job is named, if need be with zeros."""
        kinds = len(self.question.types)
        jobs = self.question.jobs
        shares: dict[Contender, list[float]] = {(job.seq,): [0.0] * kinds for job in jobs}
        for at, couples in self._couples(x):
            for one, other, part in couples:
                pair = sorted((jobs[one].seq, jobs[other].seq))
                row_of = shares.setdefault((pair[0], pair[1]), [0.0] * kinds)
                row_of[at] = min(row_of[at] + part, 1.0)
        alone = (x[: self.columns] > _TINY) & self._is_alone
        for column in np.nonzero(alone)[0].tolist():
            rows, at, tasks = self.members[int(self.one[column])], int(self.kind[column]), int(self.tasks[column])
            part = min(float(x[column]) / len(rows), 1.0)
            for row in rows:
                contender: Contender = sized(jobs[row].seq, tasks) if tasks else (jobs[row].seq,)
                shares.setdefault(contender, [0.0] * kinds)[at] = part
        return shares

    @property
    def _is_alone(self) -> NDArray[np.bool_]:
        """Which columns are of one class alone."""
        alone: NDArray[np.bool_] = self.other == NO_PARTNER
        if self.halves is not None:
            alone[self.halves.column] = False
        return alone

    def _couples(self, x: Floats) -> Iterator[tuple[int, list[Couple]]]:
        """By type, which two jobs run together for how long."""
        paired = (x[: self.columns] > _TINY) & (self.other != NO_PARTNER)
        for column in np.nonzero(paired)[0].tolist():
            a, b, total = int(self.one[column]), int(self.other[column]), float(x[column])
            yield int(self.kind[column]), list(_couples(self.members[a], self.members[b], total, a == b))
        if self.halves is not None:
            yield from self.halves.couples(x, self.members)


def _couples(one: list[int], other: list[int], total: float, same: bool) -> Iterator[Couple]:
    """Few pairs that give every member of both classes an equal share: a ring within a class, a zip between two."""
    if not same:
        return zipped(*([(row, total / len(rows)) for row in rows] for rows in (one, other)))
    if len(one) == 2:
        return iter([(one[0], one[1], total)])
    return ((one[at - 1], one[at], total / len(one)) for at in range(len(one)))


def fastest_everywhere(question: ShareQuestion) -> Floats:
    """Speeds as seen by a rule that treats all types as the fastest."""
    fastest = question.speeds.max(axis=1, keepdims=True, initial=0.0)
    return np.repeat(fastest, len(question.types), axis=1)


def lay_out(
    question: ShareQuestion,
    *,
    speeds: Floats | None = None,
    packs: bool = False,
    alike: Callable[[int, RoundJob], Hashable] | None = None,
    collapse: bool = True,
) -> ProgramLayout:
    """The columns for a question. `speeds` replaces the real ones, `alike` adds to what separates classes."""
    real = question.speeds
    seen = real if speeds is None else np.where(real > 0, speeds, 0.0)
    classes: dict[Hashable, list[int]] = {}
    for row, job in enumerate(question.jobs):
        key: Hashable = (job.kind, job.weight, None if alike is None else alike(row, job))
        classes.setdefault(key if collapse else job.seq, []).append(row)
    members = list(classes.values())
    heads = [rows[0] for rows in members]
    one, kind = np.nonzero(seen[heads] > 0)
    zeros, alone = np.zeros(len(one)), np.full(len(one), NO_PARTNER)
    parts = [PairColumns(one, alone, kind, seen[heads][one, kind], zeros, alone, question.scale[heads][one])]
    kinds = Kinds.among(question, members)
    if packs:
        parts.append(pair_columns(question, members, kinds))
    tasks = [0] * sum(len(part.one) for part in parts)
    if speeds is None:
        columns, more = _size_columns(question, heads)
        parts.append(columns)
        tasks += more
    merged = PairColumns(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    first, half = merged.one.astype(np.int64), np.nonzero(merged.partner != NO_PARTNER)[0]
    owners = first[half]
    halves = Halves(half, owners, kinds.of[owners], merged.partner[half], merged.kind[half], kinds.names)
    return ProgramLayout(
        question=question,
        members=members,
        keys=list(classes),
        count=np.array([len(rows) for rows in members], dtype=np.float64),
        scale=question.scale[heads],
        speeds=seen[heads],
        one=first,
        other=merged.other.astype(np.int64),
        kind=merged.kind.astype(np.int64),
        one_speed=merged.one_speed.astype(np.float64),
        other_speed=merged.other_speed.astype(np.float64),
        tasks=np.array(tasks, dtype=np.int64),
        column_scale=merged.scale.astype(np.float64),
        halves=halves if len(half) else None,
    )


def _size_columns(question: ShareQuestion, heads: Sequence[int]) -> tuple[PairColumns, list[int]]:
    """Columns for other sizes of elastic jobs, and their numbers of tasks."""
    found = [
        (a, at, speed * (1 - _CALM * math.log2(size.scale / question.jobs[row].scale)), size)
        for a, row in enumerate(heads)
        for size in question.jobs[row].sizes
        for at, speed in enumerate(size.speeds)
        if speed > 0
    ]
    one, kind = (np.array([each[at] for each in found], dtype=np.int64) for at in (0, 1))
    speed, scale = np.array([each[2] for each in found]), np.array([float(each[3].scale) for each in found])
    alone = np.full(len(found), NO_PARTNER)
    return PairColumns(one, alone, kind, speed, np.zeros(len(found)), alone, scale), [each[3].tasks for each in found]
