"""`max-load`: the contiguous split with the least maximal load, exactly.

Tarnawski et al., NeurIPS 2020: devices hold the differences of a chain of ideals, which a dynamic program over pairs of
ideals optimises. Here transfers of many pairs are one matrix product, and a split along one topological order bounds
the search. Training graphs: backward operators follow the forward operators of their class.
"""

from __future__ import annotations

import time

from rota.core.errors import RotaError
from rota.planner.description.problem import PlanningProblem
from rota.planner.ideals.instance import (
    MaxLoadInstance,
    max_load_instance,
    with_weightless_joined,
)
from rota.planner.ideals.lattice import IdealTable, all_ideals, ideal_table, linear_ideals, thinned
from rota.planner.ideals.search import ChainSearch, ChainStep, step_devices
from rota.planner.methods.chains import MOST_CUTS
from rota.planner.options import DEFAULTS, PlannerOptions
from rota.planner.plan import PlacementPlan, PlanObjective, PlanStage, ReportProgress
from rota.planner.simulate.loads import max_load_ms, placed_stage

_ABOVE_MS = 1e-6
_SAME_MS = 1e-6
_SMALL = 20_000
"""Tables of fewer ideals are searched below one bound."""
_FACTORS = (1.08, 1.18, 1.35, 1.7, 2.5)
"""Bounds that are tried, as multiples of the load if accelerators shared all work evenly."""


def plan_max_load(
    problem: PlanningProblem, options: PlannerOptions = DEFAULTS, report: ReportProgress | None = None
) -> PlacementPlan:
    """The plan with the least maximal load among contiguous ones, proved."""
    began_s = time.process_time()
    instance = max_load_instance(problem).scaled()
    joined = with_weightless_joined(instance)
    solved = _solved(joined, report)
    # Joining groups is free of loss only where memory is not the limit.
    if len(joined) < len(instance) and not _is_memory_free(joined, solved):
        solved = _solved(instance, report)
    else:
        instance = joined
    if solved is None:
        raise RotaError(
            f"{problem.graph.source}: no contiguous split fits the devices' memory{_rounded(instance)};"
            " add devices, memory or a CPU"
        )
    table, steps = solved
    stages = tuple(_stages(problem, instance, table, steps))
    return PlacementPlan(
        planner="max-load",
        objective=PlanObjective.THROUGHPUT,
        value_ms=max_load_ms(stages),
        stages=stages,
        seconds=time.process_time() - began_s,
        proved_optimal=not instance.rounds_memory,
        notes=(f"{len(table)} ideals of {len(instance)} groups{_rounded(instance)}",),
    )


def plan_linear(
    problem: PlanningProblem, options: PlannerOptions = DEFAULTS, report: ReportProgress | None = None
) -> PlacementPlan:
    """The best split along one topological order: an upper bound, fast for graphs of any size."""
    began_s = time.process_time()
    instance = with_weightless_joined(max_load_instance(problem).scaled())
    table = ideal_table(instance, thinned(linear_ideals(instance), MOST_CUTS))
    steps = ChainSearch(instance, table).run(report)
    if steps is None:
        raise RotaError(
            f"{problem.graph.source}: no split along one order fits the devices' memory; add memory or devices"
        )
    stages = tuple(_stages(problem, instance, table, steps))
    return PlacementPlan(
        planner="linear",
        objective=PlanObjective.THROUGHPUT,
        value_ms=max_load_ms(stages),
        stages=stages,
        seconds=time.process_time() - began_s,
    )


def _solved(instance: MaxLoadInstance, report: ReportProgress | None) -> tuple[IdealTable, list[ChainStep]] | None:
    """All ideals and the best chain of them, searched below the best chain along one order."""
    first = ChainSearch(instance, ideal_table(instance, linear_ideals(instance))).run()
    bound_ms = max(step.load_ms for step in first) + _ABOVE_MS if first else float("inf")
    table = ideal_table(instance, all_ideals(instance))
    for guess_ms in _guesses(instance, table, bound_ms):
        best = ChainSearch(instance, table, guess_ms).run(report)
        if best is not None:
            return table, best
    return None


def _guesses(instance: MaxLoadInstance, table: IdealTable, bound_ms: float) -> list[float]:
    """Bounds to search below, the known one last: below a low one few pairs of ideals need be looked at.

    What is found below any of them is the least. Small tables are searched once.
    """
    devices = sum(len(kind.devices) for kind in instance.kinds)
    least_ms = max(float(table.accelerator_ms[-1]) / max(devices, 1), 1.0)  # times are scaled: 1 is the longest group
    guesses_ms = [least_ms * factor for factor in _FACTORS] if len(table) > _SMALL else []
    return [guess_ms for guess_ms in guesses_ms if guess_ms < bound_ms] + [bound_ms]


def _rounded(instance: MaxLoadInstance) -> str:
    return ", accelerators of similar memory taken to have the least of it" if instance.rounds_memory else ""


def _is_memory_free(instance: MaxLoadInstance, solved: tuple[IdealTable, list[ChainStep]] | None) -> bool:
    """Whether the same load is the least without any bound on memory."""
    if solved is None:
        return False
    table, steps = solved
    total = float(instance.memory_bytes.sum())
    if total <= instance.memory_cap_bytes:
        return True
    value_ms = max(step.load_ms for step in steps)
    return ChainSearch(instance.without_memory(), table, value_ms - _SAME_MS).run() is None


def _stages(
    problem: PlanningProblem, instance: MaxLoadInstance, table: IdealTable, steps: list[ChainStep]
) -> list[PlanStage]:
    stages = []
    for name, step in zip(step_devices(problem, instance, steps), steps, strict=True):
        operators = [number for group in table.between(step.inner, step.outer) for number in instance.members[group]]
        stages.append(placed_stage(problem, name, operators))
    return stages
