"""The dynamic program: the least maximal (or total) load of a chain of ideals, one step for each device.

Only chains below a bound are followed. A step takes time on its accelerator, and what is left must fit the devices
that are left; both limit the pairs of ideals that need be looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rota.planner.description.operators import CPU
from rota.planner.description.problem import PlanningProblem
from rota.planner.ideals.instance import Floats, Ints, MaxLoadInstance
from rota.planner.ideals.lattice import IdealTable

_CHUNK = 1024
_SLACK_MS = 1e-9
CPU_KIND = -1
State = tuple[int, ...]
"""Devices in use: of each kind of accelerators, then CPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainStep:
    """One device of a chain: what lies between two ideals, and the load."""

    kind: int
    """Which of the instance's kinds of accelerators; `CPU_KIND` for a CPU."""
    inner: int
    outer: int
    load_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """Least maximal load by ideal for so many devices, and how it was reached."""

    load_ms: Floats
    before: Ints
    kind: Ints


class ChainSearch:
    """Finds the chain of ideals with the least maximal load below a bound, or with the least total load.

    The total is what one sample takes where each device waits for the one before.
    """

    def __init__(
        self, instance: MaxLoadInstance, table: IdealTable, bound_ms: float = np.inf, *, total: bool = False
    ) -> None:
        self._combined = np.add if total else np.maximum
        self._instance = instance
        self._table = table
        self._bound_ms = bound_ms
        self._layers: dict[State, _Layer] = {}
        self._counts: State = (*(len(kind.devices) for kind in instance.kinds), instance.cpus)
        self._kinds = (*range(len(instance.kinds)), CPU_KIND)

    def run(self, report: Callable[[float], None] | None = None) -> list[ChainStep] | None:
        """The best chain, from the first device to the last; None if no chain is below the bound."""
        states = list(itertools.product(*(range(count + 1) for count in self._counts)))
        for done, state in enumerate(states):
            self._layers[state] = self._layer(state)
            if report is not None:
                report((done + 1) / len(states))
        full = len(self._table) - 1
        if not np.isfinite(self._layers[self._counts].load_ms[full]):
            return None
        return self._chain(full)

    def _layer(self, state: State) -> _Layer:
        size = len(self._table)
        load_ms, before, kinds = np.full(size, np.inf), np.zeros(size, np.int64), np.zeros(size, np.int64)
        if not any(state):
            load_ms[0] = 0.0
            return _Layer(load_ms=load_ms, before=before, kind=kinds)
        sources = [(kind, source) for kind in self._kinds if (source := _fewer(state, kind)) is not None]
        for kind, source in sources:
            earlier = self._layers[source]
            is_unused = earlier.load_ms < load_ms
            load_ms[is_unused] = earlier.load_ms[is_unused]
            before[is_unused] = np.flatnonzero(is_unused)
            kinds[is_unused] = kind
        made = _Layer(load_ms=load_ms, before=before, kind=kinds)
        for kind, source in sources:
            self._extend(made, self._sources(source, kind), self._left(state), kind)
        return made

    def _left(self, state: State) -> tuple[int, int]:
        """CPUs and accelerators that a state does not use yet."""
        return self._counts[-1] - state[-1], sum(self._counts[:-1]) - sum(state[:-1])

    def _sources(self, state: State, kind: int) -> tuple[Ints, Floats]:
        """Ideals from which one more device of a kind may lead somewhere that fewer devices did not reach as well."""
        load_ms = self._layers[state].load_ms
        is_open = np.isfinite(load_ms)
        fewer = _fewer(state, kind)
        if fewer is not None:
            is_open &= load_ms < self._layers[fewer].load_ms
        is_open &= self._table.accelerator_ms >= self._least_done_ms(self._left(state))
        found = np.flatnonzero(is_open)
        return found, load_ms[found]

    def _least_done_ms(self, left: tuple[int, int]) -> float:
        """The accelerator time that must be done already if so many CPUs and accelerators are left."""
        if not np.isfinite(self._bound_ms):
            return -np.inf
        total_ms = self._table.accelerator_ms[-1]
        cpu_worth_ms = self._cpu_worth_ms() * left[0] if left[0] else 0.0
        return float(total_ms - left[1] * self._bound_ms - cpu_worth_ms - 1e-6)

    def _cpu_worth_ms(self) -> float:
        """An upper bound for the accelerator time of what one CPU does below the bound."""
        instance = self._instance
        costs = instance.cpu_ms > 0
        ratio = (instance.accelerator_ms[costs] / instance.cpu_ms[costs]).max(initial=0.0)
        return float(ratio * self._bound_ms + instance.accelerator_ms[~costs].sum())

    def _extend(self, layer: _Layer, sources: tuple[Ints, Floats], left: tuple[int, int], kind: int) -> None:
        table, is_accelerator = self._table, kind != CPU_KIND
        first_target = int(np.searchsorted(table.accelerator_ms, self._least_done_ms(left)))
        if left == (0, 0):
            first_target = len(table) - 1
        reach_ms = self._bound_ms if is_accelerator else self._cpu_worth_ms() if np.isfinite(self._bound_ms) else np.inf
        inner, inner_ms = sources
        for start in range(0, len(inner), _CHUNK):
            some, some_ms = inner[start : start + _CHUNK], inner_ms[start : start + _CHUNK]
            lowest, highest = table.accelerator_ms[some[0]], table.accelerator_ms[some[-1]]
            begin = max(first_target, int(np.searchsorted(table.accelerator_ms, lowest)))
            end = int(np.searchsorted(table.accelerator_ms, highest + reach_ms + 1e-6, side="right"))
            for low in range(begin, end, 8 * _CHUNK):
                outer = np.arange(low, min(low + 8 * _CHUNK, end))
                self._relax(layer, some, some_ms, outer, kind)

    def _relax(self, layer: _Layer, inner: Ints, inner_ms: Floats, outer: Ints, kind: int) -> None:
        loads_ms = self._loads_ms(inner, outer, is_accelerator=kind != CPU_KIND)
        self._combined(loads_ms, inner_ms[:, None], out=loads_ms)
        limit_ms = np.minimum(layer.load_ms[outer], self._bound_ms) - _SLACK_MS
        rows, columns = np.nonzero(loads_ms < limit_ms[None, :])
        if not len(rows):
            return
        values_ms = loads_ms[rows, columns]
        sources, targets = inner[rows], outer[columns]
        is_allowed = self._is_allowed(sources, targets, kind)
        sources, targets, values_ms = sources[is_allowed], targets[is_allowed], values_ms[is_allowed]
        order = np.lexsort((sources, values_ms, targets))
        best, firsts = np.unique(targets[order], return_index=True)
        chosen = order[firsts]
        layer.load_ms[best] = values_ms[chosen]
        layer.before[best] = sources[chosen]
        layer.kind[best] = kind

    def _loads_ms(self, inner: Ints, outer: Ints, *, is_accelerator: bool) -> Floats:
        """Loads of what lies between each inner and each outer ideal; without meaning where they are not nested."""
        table = self._table
        if not is_accelerator:
            return np.asarray(table.cpu_ms[outer][None, :] - table.cpu_ms[inner][:, None])
        rows = table.crossing[inner]
        used = rows.any(axis=0)
        shared_ms = rows[:, used] @ table.crossing[outer][:, used].T
        own_ms = table.accelerator_ms[outer] + table.open_ms[outer]
        other_ms = table.accelerator_ms[inner] - table.open_ms[inner]
        return np.asarray(own_ms[None, :] - other_ms[:, None] - shared_ms)

    def _is_allowed(self, inner: Ints, outer: Ints, kind: int) -> np.ndarray:
        table, is_accelerator = self._table, kind != CPU_KIND
        is_nested = ~(table.words[inner] & ~table.words[outer]).any(axis=1)
        barred = table.cpu_only if is_accelerator else table.accelerator_only
        is_nested &= barred[outer] == barred[inner]
        if is_accelerator:
            needed = table.memory_bytes[outer] - table.memory_bytes[inner]
            is_nested &= needed <= self._instance.kinds[kind].memory_cap_bytes
        return np.asarray(is_nested)

    def _chain(self, full: int) -> list[ChainStep]:
        state, outer = self._counts, full
        steps: list[ChainStep] = []
        while any(state):
            layer = self._layers[state]
            inner, kind = int(layer.before[outer]), int(layer.kind[outer])
            if inner != outer:
                pair = np.array([inner]), np.array([outer])
                load_ms = float(self._loads_ms(*pair, is_accelerator=kind != CPU_KIND)[0, 0])
                steps.append(ChainStep(kind=kind, inner=inner, outer=outer, load_ms=load_ms))
            fewer = _fewer(state, kind)
            assert fewer is not None
            state, outer = fewer, inner
        return steps[::-1]


def _fewer(state: State, kind: int) -> State | None:
    """The state with one device of a kind less; None where it uses none."""
    place = kind % len(state)
    return (*state[:place], state[place] - 1, *state[place + 1 :]) if state[place] else None


def step_devices(problem: PlanningProblem, instance: MaxLoadInstance, steps: Sequence[ChainStep]) -> list[str]:
    """The name of the device of each step."""
    free = {number: list(kind.devices) for number, kind in enumerate(instance.kinds)}
    free[CPU_KIND] = problem.devices.of_type(CPU)
    return [problem.devices.devices[free[step.kind].pop(0)].name for step in steps]
