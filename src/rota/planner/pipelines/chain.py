"""A graph as a chain of layers: groups of operators in topological order, and what crosses each place to cut."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from rota.planner.description.problem import PlanningProblem
from rota.planner.ideals.instance import Floats, Ints, MaxLoadInstance, max_load_instance
from rota.planner.methods.coarsen import topological

_FAR_LESS = 0.5
BACKWARD_SHARE = 2.0 / 3.0
"""The backward pass of a layer whose profile gives one time for both passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerChain:
    """Layers in order. Sums up to a position make the cost of a stage a difference of two numbers."""

    members: tuple[tuple[int, ...], ...]
    time_ms: Floats
    """Forward and backward of one micro-batch, summed up to each position; one longer than the layers."""
    forward_ms: Floats
    weight_bytes: Floats
    resident_bytes: Floats
    cut_bytes: Floats
    """What one micro-batch sends forward where the chain is cut after so many layers."""
    cut_ms: Floats
    """The same as a time, for operators that give `transfer_ms`."""

    def __len__(self) -> int:
        return len(self.members)

    def stage_ms(self, start: int, end: int) -> float:
        """Forward and backward of the layers from start up to, not including, end."""
        return float(self.time_ms[end] - self.time_ms[start])

    def merged(self, most: int) -> tuple[LayerChain, list[int]]:
        """A chain of at most so many layers, cut where little crosses; and where its layers begin in this one."""
        if len(self) <= most:
            return self, list(range(len(self) + 1))
        total_ms = float(self.time_ms[-1])
        keep = [0]
        for part in range(1, most):
            low = max(keep[-1] + 1, int(np.searchsorted(self.time_ms, total_ms * (part - 0.5) / most)))
            high = max(low + 1, int(np.searchsorted(self.time_ms, total_ms * (part + 0.5) / most)))
            window = range(low, min(high, len(self)))
            if window:
                keep.append(min(window, key=lambda place: (self.cut_bytes[place] + self.cut_ms[place], place)))
        keep.append(len(self))
        places = np.array(keep)
        members = tuple(
            tuple(number for layer in self.members[first:second] for number in layer)
            for first, second in itertools.pairwise(keep)
        )
        merged = LayerChain(
            members=members,
            time_ms=self.time_ms[places],
            forward_ms=self.forward_ms[places],
            weight_bytes=self.weight_bytes[places],
            resident_bytes=self.resident_bytes[places],
            cut_bytes=self.cut_bytes[places],
            cut_ms=self.cut_ms[places],
        )
        return merged, keep


def layer_chain(problem: PlanningProblem) -> LayerChain:
    """The chain of a graph; operators of one class, and of one cycle of classes, are one layer."""
    graph = problem.graph
    instance = max_load_instance(problem)
    orders = [topological(len(instance), instance.precedence, breadth=breadth) for breadth in (False, True)]
    cuts = [_cuts(problem, _positions(instance, order), len(instance)) for order in orders]
    # Branches kept together, unless that leaves far more outputs open: wide graphs of short edges.
    chosen = int(_total(cuts[1]) < _FAR_LESS * _total(cuts[0]))
    order, (cut_bytes, cut_ms) = orders[chosen], cuts[chosen]
    members = tuple(instance.members[group] for group in order)
    tells = any(operator.is_backward for operator in graph.operators)
    times = instance.accelerator_ms[order]
    if tells:
        forward = np.array([_forward_ms(problem, numbers) for numbers in members])
    else:
        forward = times * (1 - BACKWARD_SHARE)
    return LayerChain(
        members=members,
        time_ms=_cumulated(times),
        forward_ms=_cumulated(forward),
        weight_bytes=_cumulated(instance.memory_bytes[order]),
        resident_bytes=_cumulated(
            np.array([float(sum(graph.operators[n].resident_bytes for n in numbers)) for numbers in members])
        ),
        cut_bytes=cut_bytes,
        cut_ms=cut_ms,
    )


def _positions(instance: MaxLoadInstance, order: list[int]) -> Ints:
    """The place of each operator's group in an order."""
    position = np.empty(sum(map(len, instance.members)), dtype=np.int64)
    for place, group in enumerate(order):
        position[list(instance.members[group])] = place
    return position


def _total(cuts: tuple[Floats, Floats]) -> float:
    return float(cuts[0].sum() + cuts[1].sum())


def _forward_ms(problem: PlanningProblem, numbers: tuple[int, ...]) -> float:
    chosen = (problem.graph.operators[number] for number in numbers)
    return sum(min(operator.time_ms.values()) for operator in chosen if not operator.is_backward)


def _cumulated(values: Floats) -> Floats:
    return np.concatenate(([0.0], np.cumsum(values)))


def _cuts(problem: PlanningProblem, position: Ints, layers: int) -> tuple[Floats, Floats]:
    """Bytes and times that cross each boundary; an output counts once however many read it."""
    graph = problem.graph
    cut_bytes, cut_ms = np.zeros(layers + 2), np.zeros(layers + 2)
    for number, readers in enumerate(graph.successors):
        operator = graph.operators[number]
        if operator.is_backward or not readers:
            continue
        forward = [int(position[reader]) for reader in readers if not graph.operators[reader].is_backward]
        last = max(forward, default=0)
        first = int(position[number])
        if last > first:
            target, amount = (
                (cut_bytes, float(operator.output_bytes))
                if operator.transfer_ms is None
                else (cut_ms, operator.transfer_ms)
            )
            target[first + 1] += amount
            target[last + 1] -= amount
    return np.cumsum(cut_bytes)[: layers + 1], np.cumsum(cut_ms)[: layers + 1]
