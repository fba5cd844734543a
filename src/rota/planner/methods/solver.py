"""Mixed-integer programs for HiGHS, on one thread so that the same program has the same answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class IntegerProgram:
    """Minimise `cost` @ x within bounds on x and on rows."""

    cost: Floats
    lower: Floats
    upper: Floats
    whole: NDArray[np.bool_]
    _starts: list[int] = field(default_factory=lambda: [0])
    _columns: list[int] = field(default_factory=list)
    _values: list[float] = field(default_factory=list)
    _row_lower: list[float] = field(default_factory=list)
    _row_upper: list[float] = field(default_factory=list)

    def add_row(self, terms: list[tuple[int, float]], low: float = -np.inf, high: float = np.inf) -> None:
        """low <= sum of value times variable <= high."""
        self._columns += [column for column, _ in terms]
        self._values += [value for _, value in terms]
        self._starts.append(len(self._columns))
        self._row_lower.append(low)
        self._row_upper.append(high)

    def solve(self, time_limit_s: float, gap: float = 1e-4) -> tuple[Floats, bool] | None:
        """The best solution found in time, and whether it is proved; None where there is none."""
        import highspy

        model: Any = highspy.Highs()  # type: ignore[no-untyped-call]  # its constructor has no annotations
        model.setOptionValue("output_flag", False)
        model.setOptionValue("threads", 1)
        model.setOptionValue("time_limit", float(time_limit_s))
        model.setOptionValue("mip_rel_gap", gap)
        model.passModel(self._model(highspy))
        model.run()
        status = model.getModelStatus()
        solution = model.getSolution()
        is_feasible = model.getInfo().primal_solution_status == 2
        if not is_feasible or not len(solution.col_value):
            return None
        return np.array(solution.col_value), bool(status == highspy.HighsModelStatus.kOptimal)

    def _model(self, highspy: Any) -> Any:
        program = highspy.HighsLp()
        program.num_col_ = len(self.cost)
        program.num_row_ = len(self._row_lower)
        program.col_cost_ = self.cost
        program.col_lower_ = self.lower
        program.col_upper_ = self.upper
        program.row_lower_ = np.array(self._row_lower)
        program.row_upper_ = np.array(self._row_upper)
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.start_ = np.array(self._starts)
        program.a_matrix_.index_ = np.array(self._columns)
        program.a_matrix_.value_ = np.array(self._values)
        kinds = highspy.HighsVarType
        program.integrality_ = [kinds.kInteger if each else kinds.kContinuous for each in self.whole]
        return program
