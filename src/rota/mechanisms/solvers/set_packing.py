"""The best choices within limits: programs of 0 and 1 whose rows only say how much of something there is.

The relaxed program mostly has a handful of choices that are not whole. Rounding those by hand is often as near to
its optimum as was asked for; a search for whole numbers, which takes ten times as long, begins only where it is not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rota.mechanisms.arrays import Floats
from rota.mechanisms.solvers.lp import NoSolution, Program, Solution, Solver

_HARDLY = 1e-6
"""How far from a whole number a solver's may be."""


def best_choices(program: Program, present: Floats) -> Floats | NoSolution:
    """Choices worth at least the optimum less the program's gap, as 0 and 1 by column; or why there are none.

    Those that are made already, with what fits beside them, are kept where that is enough: of many that are as good,
    others would be taken every time.
    """
    relaxed = Solver().solve(replace(program, whole=None))
    if isinstance(relaxed, NoSolution):
        return relaxed
    for start in (present, relaxed.x):
        chosen = rounded(program, start)
        if chosen is not None and program.gain @ chosen >= relaxed.objective * (1 - program.gap) - _HARDLY:
            return chosen
    found = Solver().solve(program)
    return np.round(found.x) if isinstance(found, Solution) else found


def rounded(program: Program, x: Floats) -> Floats | None:
    """What was chosen whole, then what fits into the rest: the most chosen first, of those the most gainful.

    None if there is too little for what was chosen.
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
