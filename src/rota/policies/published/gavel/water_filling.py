"""Water filling and hierarchies (Narayanan et al., section 4.3): after the least served, the next least, and so on.

The levels of all jobs rise together until some can rise no further; those are frozen and the others continue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import RotaError
from rota.mechanisms.arrays import Floats
from rota.mechanisms.hooks import SimulationInput
from rota.mechanisms.rounds.rule import ShareQuestion, Shares
from rota.mechanisms.solvers.lp import NoSolution, Program, Programmed, Solution, Solver
from rota.policies.published.gavel.declare import LpParams, PackParams, SizeParams, gavel
from rota.policies.published.gavel.entries import amount_of, entry_of, names_of, unknown_names
from rota.policies.published.gavel.layout import ProgramLayout, lay_out
from rota.policies.published.gavel.least import inverse, nothing
from rota.policies.published.gavel.max_min import fair_need

_STEP = 1e-4
"""A job that can't rise by this fraction of the present level is frozen."""
_CLOSE = 1e-6


class Inside(Enum):
    """How an entity divides its share among its own jobs."""

    FAIRNESS = "fairness"
    FIFO = "fifo"


@dataclass(frozen=True, slots=True, kw_only=True)
class HierarchyParams(SizeParams):
    """As for all LP policies; `inside` applies to every entity that `entities` (a:fifo/b:fairness) does not name.

    An entity is a job's label `entity`, or its tenant. `weights` (a:2/b:1) are the entities' own, 1 by default.
    """

    inside: Inside = Inside.FAIRNESS
    entities: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        SizeParams.__post_init__(self)
        for name in names_of(self.entities):
            self.rule_of(name)
        for name in names_of(self.weights):
            self.weight_of(name)

    def remarks(self, given: SimulationInput) -> Iterator[str]:
        """Return which weights and rules are of entities that no job belongs to."""
        known = {dict(job.labels).get("entity", str(job.tenant)) for job in given.jobs}
        yield from unknown_names("weights", self.weights, known, "job's entity")
        yield from unknown_names("entities", self.entities, known, "job's entity")

    def rule_of(self, entity: str) -> Inside:
        """How this entity divides its share."""
        text = entry_of(self.entities, entity)
        if text is None:
            return self.inside
        try:
            return Inside(text)
        except ValueError:
            raise RotaError(f"entity {entity!r}: its rule is {text!r}; it must be fairness or fifo") from None

    def weight_of(self, entity: str) -> float:
        """This entity's weight."""
        return amount_of(self.weights, entity, f"entity {entity!r}: its weight") or 1.0


class WaterFilling(Programmed):
    """Levels are progress in units of an isolated job's; `pace` is how fast each class rises while it can."""

    sees_types = True
    backfills = True

    def __init__(self, params: LpParams, *, packs: bool = False, hierarchy: bool = False) -> None:
        super().__init__()
        self.packs = packs
        self._params = params
        self._hierarchy = params if hierarchy and isinstance(params, HierarchyParams) else None

    def shares(self, question: ShareQuestion) -> Shares:
        """Raise levels until all jobs are frozen."""
        alike = None if self._hierarchy is None else self._place_in_entity(question)
        layout = lay_out(question, packs=self.packs, alike=alike, collapse=self._params.collapse)
        if not layout.columns:
            return nothing(question)
        found = self.fill(layout)
        return nothing(question) if found is None else layout.split(found)

    def _place_in_entity(self, question: ShareQuestion) -> Any:
        """Jobs of one entity are equivalent, unless the entity is first in, first out."""
        params = self._hierarchy
        assert params is not None
        fifo = {job.entity for job in question.jobs if params.rule_of(job.entity) is Inside.FIFO}
        return lambda row, job: (job.entity, job.seq if job.entity in fifo else None)

    def fill(self, layout: ProgramLayout) -> Floats | None:
        """Columns in which no job can rise unless a lower one falls."""
        need = fair_need(layout) * layout.first(layout.question.weight) ** (-1.0)
        open_ = (need > 0) & (layout.speeds.max(axis=1, initial=0.0) > 0)
        level = np.zeros(len(need))
        x: Floats | None = None
        for _ in range(len(need)):
            pace = self._pace(layout, open_)
            if not (pace > 0).any():
                break
            found = self._solver.solve(_rise(layout, need, level, pace))
            if isinstance(found, NoSolution):
                return x
            x = found.x[: layout.columns]
            level = np.maximum(level + pace * max(found.objective, 0.0) * (1 - 1e-9), level)
            stuck = self._stuck(layout, need, level, pace > 0)
            if stuck is None:
                return x
            open_ &= ~stuck
        return x

    def _pace(self, layout: ProgramLayout, open_: NDArray[np.bool_]) -> Floats:
        """Weights of jobs; in a hierarchy, an entity's weight over its open jobs, or all of it to the first."""
        weight = layout.first(layout.question.weight)
        if self._hierarchy is None:
            return np.where(open_, weight, 0.0)
        jobs = layout.question.jobs
        pace = np.zeros(len(open_))
        rows: dict[str, list[int]] = {}
        for row in np.nonzero(open_)[0].tolist():
            rows.setdefault(jobs[layout.members[row][0]].entity, []).append(row)
        for entity, of_entity in rows.items():
            share = self._hierarchy.weight_of(entity)
            if self._hierarchy.rule_of(entity) is Inside.FIFO:
                first = min(of_entity, key=lambda row: jobs[layout.members[row][0]].seq)
                pace[first] = share
                continue
            total = float((weight[of_entity] * layout.count[of_entity]).sum())
            pace[of_entity] = share * weight[of_entity] / total
        return pace

    def _stuck(
        self, layout: ProgramLayout, need: Floats, level: Floats, rising: NDArray[np.bool_]
    ) -> NDArray[np.bool_] | None:
        """Which rising classes can rise no further: at least one, or the filling would not end.

        A program with a binary column per class counts how many can rise by a step at once. Its relaxation is mostly
        integral; only where it is not is the integer program solved.
        """
        program = _can_rise(layout, need, level, rising)
        found = self._solver.solve(program)
        can = None if isinstance(found, NoSolution) else found.x[layout.columns :]
        if can is not None and ((can > _CLOSE) & (can < 1 - _CLOSE)).any():
            program.whole = np.arange(len(program.gain)) >= layout.columns
            program.columns = ()
            whole = Solver().solve(program)
            can = whole.x[layout.columns :] if isinstance(whole, Solution) else can
        if can is None:
            return None
        stuck = np.zeros(len(level), dtype=np.bool_)
        stuck[np.nonzero(rising)[0]] = can < 1 - _CLOSE
        if not stuck.any():
            return None
        return stuck


def _rise(layout: ProgramLayout, need: Floats, level: Floats, pace: Floats) -> Program:
    """Maximise t with progress_k / need_k >= level_k + pace_k t."""
    program = layout.program(extra=1)
    column = layout.columns
    program.gain[column] = 1.0
    program.lower[column] = 0.0
    rows, columns, speeds = layout.progress()
    able, scale = need > 0, inverse(need)
    rising = np.nonzero(pace > 0)[0]
    program.add_rows(
        np.concatenate([rows, rising]),
        np.concatenate([columns, np.full(len(rising), column)]),
        np.concatenate([speeds * scale[rows], -pace[rising] * layout.count[rising]]),
        np.where(able, level * layout.count, 0.0),
        np.full(len(level), np.inf),
        [("level", key) for key in layout.keys],
    )
    return program


def _can_rise(layout: ProgramLayout, need: Floats, level: Floats, rising: NDArray[np.bool_]) -> Program:
    """Maximise how many of the rising classes can be a step above their level, with no class below its own."""
    which = np.nonzero(rising)[0]
    program = layout.program(extra=len(which))
    at = layout.columns + np.arange(len(which))
    program.gain[at] = 1.0
    program.lower[at] = 0.0
    program.upper[at] = 1.0
    rows, columns, speeds = layout.progress()
    able, scale = need > 0, inverse(need)
    step = _STEP * np.maximum(level[which], _STEP)
    program.add_rows(
        np.concatenate([rows, which]),
        np.concatenate([columns, at]),
        np.concatenate([speeds * scale[rows], -step * layout.count[which]]),
        np.where(able, level * layout.count * (1 - 1e-9), 0.0),
        np.full(len(level), np.inf),
        [("level", key) for key in layout.keys],
    )
    return program


max_min_fairness_water_filling_perf = gavel(
    "max_min_fairness_water_filling_perf",
    lambda params, knowledge: WaterFilling(params),
    summary="Maximise the least effective throughput, then the next least, and so on.",
    params=SizeParams,
)
max_min_fairness_water_filling_packed = gavel(
    "max_min_fairness_water_filling_packed",
    lambda params, knowledge: WaterFilling(params, packs=True),
    summary="As water filling, with two jobs on a device where that helps.",
    params=PackParams,
    packs=True,
)
hierarchical = gavel(
    "hierarchical",
    lambda params, knowledge: WaterFilling(params, hierarchy=True),
    summary="Fair among entities by weight; within an entity fair, or first in, first out.",
    params=HierarchyParams,
)
