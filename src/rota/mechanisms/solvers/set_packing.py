"""Set packing: binary programs whose rows are capacities.

The relaxed program mostly has a handful of fractional choices. Rounding them greedily is often within the requested gap
of the optimum; integer search, which takes ten times as long, begins only where it is not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rota.mechanisms.arrays import Floats
from rota.mechanisms.solvers.lp import NoSolution, Program, Solution, Solver

_HARDLY = 1e-6
"""How far from an integer a solver's value may be."""


def best_choices(program: Program, present: Floats) -> Floats | NoSolution:
    """Choices within the program's gap of the optimum, as 0 and 1 by column; or why there are none.

    The present choices, with what fits in addition, are kept where that is good enough: otherwise another of many
    equally good solutions could result every time.
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
