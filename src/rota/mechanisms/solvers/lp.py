"""Linear and integer programs for HiGHS: built as sparse arrays, warm-started by key.

Rows and columns have keys, so that the last basis helps the next program even when jobs came and left. A program
without a solution gives an answer with a reason, never an exception or a NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rota.mechanisms.arrays import Floats

Ints = NDArray[np.int64]
_LARGE = 1000
"""Above this many columns the primal simplex is used: six times as fast on 2,048 jobs of distinct weights."""
_PRIMAL = 4


@dataclass(frozen=True, slots=True)
class Solution:
    """The optimum; `dual` is the price of each row, 0 or more; integer programs have none."""

    x: Floats
    objective: float
    dual: Floats


@dataclass(frozen=True, slots=True)
class NoSolution:
    """Why there is no solution: `infeasible`, `unbounded`, or the solver's status."""

    reason: str


class Cut(NamedTuple):
    """A row that a solution violates: values @ x[columns] <= high."""

    columns: Ints
    values: Floats
    high: float
    key: Hashable


@dataclass(slots=True)
class Program:
    """Maximise `gain` @ x within bounds on x and on rows; rows are added in sparse form."""

    gain: Floats
    lower: Floats
    upper: Floats
    columns: Sequence[Hashable] = ()
    """Keys of the columns; none where the next program is unrelated."""
    whole: NDArray[np.bool_] | None = None
    gap: float = 0.0
    """The relative gap to the optimum at which integer search may stop."""
    cuts: Callable[[Floats], list[Cut]] | None = None
    """Returns the rows that a solution violates: many rows that hardly ever bind are added only when needed."""
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)
    row_keys: list[Hashable] = field(default_factory=list)
    _starts: list[int] = field(default_factory=lambda: [0])
    _index: list[Ints] = field(default_factory=list)
    _value: list[Floats] = field(default_factory=list)

    def add_row(
        self, columns: Ints, values: Floats, low: float = -math.inf, high: float = math.inf, key: Hashable = None
    ) -> int:
        """Add the row low <= values @ x[columns] <= high; return its number."""
        self._index.append(np.asarray(columns, dtype=np.int64))
        self._value.append(np.asarray(values, dtype=np.float64))
        self._starts.append(self._starts[-1] + len(columns))
        self.row_lower.append(low)
        self.row_upper.append(high)
        self.row_keys.append(key)
        return len(self.row_lower) - 1

    def add_rows(
        self, rows: Ints, columns: Ints, values: Floats, low: Floats, high: Floats, keys: Sequence[Hashable] = ()
    ) -> None:
        """Add many rows as triplets, `rows` numbering them from 0; no entry may be given twice."""
        order = np.argsort(rows, kind="stable")
        counts = np.bincount(rows, minlength=len(low))
        self._index.append(columns[order])
        self._value.append(values[order])
        self._starts.extend((self._starts[-1] + np.cumsum(counts)).tolist())
        self.row_lower.extend(low.tolist())
        self.row_upper.extend(high.tolist())
        self.row_keys.extend(keys if keys else [None] * len(low))

    @property
    def matrix(self) -> tuple[Ints, Ints, Floats]:
        """The rows as (starts, columns, values)."""
        if not self._index:
            return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
        return np.array(self._starts, dtype=np.int64), np.concatenate(self._index), np.concatenate(self._value)


_AT_LOWER, _BASIC = 0, 1
"""HiGHS' numbers for a column at its lower bound and for one in the basis."""


def _key(value: Any) -> Hashable:
    """Turn lists that JSON made of a key's tuples back into tuples."""
    return tuple(_key(part) for part in value) if isinstance(value, list | tuple) else value


class Solver:
    """HiGHS on one thread, so that equal programs have equal answers; keeps its last basis by key."""

    def __init__(self) -> None:
        self._column_status: dict[Hashable, Any] = {}
        self._row_status: dict[Hashable, Any] = {}
        self.solves = 0

    @property
    def memory(self) -> Any:
        """The last basis: keys and statuses of all that differ from the default."""
        return {
            "columns": [[key, int(at)] for key, at in self._column_status.items() if int(at) != _AT_LOWER],
            "rows": [[key, int(at)] for key, at in self._row_status.items() if int(at) != _BASIC],
        }

    def recall(self, memory: Any) -> None:
        """Start the next program from a basis that `memory` returned."""
        import highspy

        statuses = highspy.HighsBasisStatus
        self._column_status = {_key(key): statuses(at) for key, at in memory["columns"]}
        self._row_status = {_key(key): statuses(at) for key, at in memory["rows"]}

    def solve(self, program: Program) -> Solution | NoSolution:
        """Find the optimum, or why there is none."""
        import highspy

        if not np.isfinite(program.gain).all() or any(not np.isfinite(part).all() for part in program._value):
            return NoSolution("a coefficient is not a number")
        highs = highspy.Highs()  # type: ignore[no-untyped-call] # the package has no types
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("threads", 1)
        if len(program.gain) > _LARGE:
            highs.setOptionValue("simplex_strategy", _PRIMAL)
        if program.gap:
            highs.setOptionValue("mip_rel_gap", program.gap)
        highs.passModel(_model(program))
        if program.columns:
            self._recall(highs, program)
        self.solves += 1
        x = _optimum(highs, program)
        if isinstance(x, NoSolution):
            return x
        if program.columns:
            self._remember(highs, program)
        return Solution(x, float(program.gain @ x), np.abs(np.array(highs.getSolution().row_dual, dtype=np.float64)))

    def _recall(self, highs: Any, program: Program) -> None:
        """Start from the last basis for all columns and rows that it knows."""
        import highspy

        if not self._column_status:
            return
        basis = highspy.HighsBasis()
        at_lower, basic = highspy.HighsBasisStatus.kLower, highspy.HighsBasisStatus.kBasic
        basis.col_status = [self._column_status.get(key, at_lower) for key in program.columns]
        basis.row_status = [self._row_status.get(key, basic) for key in program.row_keys]
        basis.valid = True
        basis.alien = True
        highs.setBasis(basis)

    def _remember(self, highs: Any, program: Program) -> None:
        basis = highs.getBasis()
        self._column_status = dict(zip(program.columns, basis.col_status, strict=True))
        self._row_status = dict(zip(program.row_keys, basis.row_status, strict=True))


class Programmed:
    """A rule with a solver that keeps its last basis."""

    def __init__(self) -> None:
        self._solver = Solver()

    @property
    def memory(self) -> Any:
        """The solver's last basis: it decides which of several optima is found next."""
        return self._solver.memory

    def recall(self, memory: Any) -> None:
        """Restore that basis."""
        self._solver.recall(memory)


_REASONS = {
    "kInfeasible": "infeasible",
    "kUnbounded": "unbounded",
    "kUnboundedOrInfeasible": "infeasible or unbounded",
}


def _optimum(highs: Any, program: Program) -> Floats | NoSolution:
    """Solve, and solve again with the rows that the solution violates, until it violates none."""
    import highspy

    while True:
        highs.run()
        status = highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            return NoSolution(_REASONS.get(status.name, status.name.removeprefix("k").lower()))
        x = np.clip(np.array(highs.getSolution().col_value, dtype=np.float64), program.lower, program.upper)
        known = set(program.row_keys)
        violated = [] if program.cuts is None else [cut for cut in program.cuts(x) if cut.key not in known]
        if not violated:
            return x
        for columns, values, high, key in violated:
            program.add_row(columns, values, high=high, key=key)
            highs.addRow(-highspy.kHighsInf, high, len(columns), columns.astype(np.int32), values)


def _model(program: Program) -> Any:
    import highspy

    starts, columns, values = program.matrix
    model = highspy.HighsLp()
    model.num_col_ = len(program.gain)
    model.num_row_ = len(program.row_lower)
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = program.gain
    model.col_lower_ = program.lower
    model.col_upper_ = np.where(np.isinf(program.upper), highspy.kHighsInf, program.upper)
    model.row_lower_ = np.array(program.row_lower, dtype=np.float64)
    model.row_upper_ = np.array(program.row_upper, dtype=np.float64)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = starts
    model.a_matrix_.index_ = columns
    model.a_matrix_.value_ = values
    if program.whole is not None:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[int(is_whole)] for is_whole in program.whole]
    return model
