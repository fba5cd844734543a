"""Set packing: at most one choice for each owner, within capacities.

The relaxed program mostly has a handful of fractional choices. Rounding them greedily is often within the requested gap
of the optimum; integer search, which takes ten times as long, begins only where it is not. It counts how many of equal
owners get each of their choices: told apart, they would all be tried in each other's place.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rota.mechanisms.arrays import Floats
from rota.mechanisms.solvers.lp import Ints, NoSolution, Program, Solver

_HARDLY = 1e-6
"""How far from an integer a solver's value may be."""


def best_choices(program: Program, present: Floats, owner: Ints) -> Floats | NoSolution:
    """Choices within the program's gap of the optimum, as 0 and 1 by column; or why there are none.

    `owner` is the row of each column that allows its owner one choice. The present choices, with what fits in addition,
    are kept where that is good enough: otherwise another of many equally good solutions could result every time.
    """
    relaxed = Solver().solve(replace(program, whole=None))
    if isinstance(relaxed, NoSolution):
        return relaxed
    for start in (present, relaxed.x):
        chosen = rounded(program, start)
        if chosen is not None and program.gain @ chosen >= relaxed.objective * (1 - program.gap) - _HARDLY:
            return chosen
    return _searched(program, owner, equal_owners(program, present, owner))


def equal_owners(program: Program, present: Floats, owner: Ints) -> list[Ints]:
    """Groups of owners whose choices have the same gains, sizes and presence: their columns, a row for each owner."""
    starts, columns, values = program.matrix
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    takes: list[list[tuple[int, float]]] = [[] for _ in program.gain]
    for row, column, value in zip(rows.tolist(), columns.tolist(), values.tolist(), strict=True):
        if row != owner[column]:
            takes[column].append((row, value))
    groups: dict[object, list[Ints]] = {}
    order = np.argsort(owner, kind="stable")
    for mine in np.split(order, np.flatnonzero(np.diff(owner[order])) + 1):
        alike = tuple((float(program.gain[at]), float(present[at]), tuple(takes[at])) for at in mine.tolist())
        groups.setdefault(alike, []).append(mine)
    return [np.array(owners) for owners in groups.values()]


def _searched(program: Program, owner: Ints, groups: list[Ints]) -> Floats | NoSolution:
    """The choices by integer search over how many owners of each group get each choice; the first owners come first."""
    found = Solver().solve(_counting(program, owner, groups))
    if isinstance(found, NoSolution):
        return found
    chosen = np.zeros(len(program.gain))
    counts = np.round(found.x).astype(np.int64)
    at = 0
    for owners in groups:
        choices = owners.shape[1]
        given = np.repeat(np.arange(choices), counts[at : at + choices])
        chosen[owners[np.arange(len(given)), given]] = 1.0
        at += choices
    return chosen


def _counting(program: Program, owner: Ints, groups: list[Ints]) -> Program:
    """The program with the columns of one owner of each group, each up to as often as there are owners in it."""
    kept = np.concatenate([owners[0] for owners in groups])
    owners_of = np.concatenate([np.full(owners.shape[1], len(owners)) for owners in groups])
    place = np.full(len(program.gain), -1)
    place[kept] = np.arange(len(kept))
    high = np.array(program.row_upper)
    high[owner[kept]] = owners_of
    counting = Program(
        gain=program.gain[kept],
        lower=np.zeros(len(kept)),
        upper=owners_of.astype(np.float64),
        whole=np.ones(len(kept), dtype=np.bool_),
        gap=program.gap,
    )
    starts, columns, values = program.matrix
    for row in range(len(high)):
        part = slice(starts[row], starts[row + 1])
        mine = place[columns[part]]
        if (mine >= 0).any():
            counting.add_row(mine[mine >= 0], values[part][mine >= 0], high=float(high[row]))
    return counting


def rounded(program: Program, x: Floats) -> Floats | None:
    """The choices that are 1, then those that fit in the rest: the largest x first, ties by gain.

    None if the choices that are 1 do not fit.
    """
    starts, columns, values = program.matrix
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    chosen = np.where(x > 1 - _HARDLY, 1.0, 0.0)
    order = np.lexsort((-program.gain, -np.round(x, 6)))
    limits = np.array(program.row_upper)
    while True:
        left = limits - np.bincount(rows, weights=values * chosen[columns], minlength=len(limits))
        if (left < -_HARDLY).any():
            return None
        too_large = np.bincount(columns, weights=values > left[rows] + _HARDLY, minlength=len(x)) > 0
        open_ = order[((program.gain > 0) & (chosen == 0) & ~too_large)[order]]
        if not open_.size:
            return chosen
        chosen[open_[0]] = 1.0
