"""Placements along one order: filled by memory, or cut so that the devices' loads add up to least."""

from __future__ import annotations

import itertools
from dataclasses import replace

from rota.planner.description.devices import GraphDevice
from rota.planner.description.operators import CPU
from rota.planner.description.problem import PlanningProblem
from rota.planner.ideals.instance import MaxLoadInstance, accelerator_type, max_load_instance, with_weightless_joined
from rota.planner.ideals.lattice import all_ideals, ideal_table, linear_ideals, thinned
from rota.planner.ideals.search import ChainSearch, step_devices
from rota.planner.plan import TooManyIdeals

_CPU_STEPS = 2
"""CPU stretches of a chain; more make the search longer and hardly ever help."""
MOST_CUTS = 600
"""Places to cut along one order that are looked at, evenly spaced."""
_MOST_IDEALS = 3000
"""Graphs with more ideals are cut along one topological order only."""


def filled_in_order(problem: PlanningProblem, *, balanced: bool = False) -> dict[int, str] | None:
    """Operators in topological order onto one accelerator after the other, each filled up to its memory.

    What is too large, or left when all are full, goes to a CPU; None where there is none. Balanced: each accelerator
    takes its share of all bytes only.
    """
    instance = max_load_instance(problem)
    fast = accelerator_type(problem)
    free = [problem.devices.devices[number] for number in problem.devices.of_type(fast)] if fast != CPU else []
    cpus = [problem.devices.devices[number].name for number in problem.devices.of_type(CPU)]
    share = float("inf")
    if balanced and free:
        share = float(instance.memory_bytes.sum()) / len(free) + float(instance.memory_bytes.max())
    device_of: dict[int, str] = {}
    held, current = 0.0, free.pop(0) if free else None
    for group in _order(instance):
        needed = float(instance.memory_bytes[group])
        is_small = any(needed <= _room(each, share) for each in [current, *free] if each is not None)
        while is_small and current is not None and held + needed > _room(current, share):
            held, current = 0.0, free.pop(0) if free else None
        fits = current is not None and needed <= _room(current, share) and not instance.cpu_only[group]
        if not fits and (not cpus or instance.accelerator_only[group]):
            return None
        home = current.name if fits and current is not None else cpus[0]
        held += needed if fits else 0.0
        device_of.update(dict.fromkeys(instance.members[group], home))
    return device_of


def _room(device: GraphDevice, share: float) -> float:
    return share if device.memory_bytes is None else min(share, float(device.memory_bytes))


def _order(instance: MaxLoadInstance) -> list[int]:
    ideals = linear_ideals(instance)
    return [(after ^ before).bit_length() - 1 for before, after in itertools.pairwise(ideals)]


def cut_by_total(problem: PlanningProblem) -> dict[int, str] | None:
    """Contiguous stages with the least sum of loads: the latency where each device waits for the one before."""
    instance = with_weightless_joined(max_load_instance(problem).scaled())
    instance = replace(instance, cpus=min(instance.cpus, _CPU_STEPS))
    try:
        ideals = all_ideals(instance, most=_MOST_IDEALS)
    except TooManyIdeals:
        ideals = thinned(linear_ideals(instance), MOST_CUTS)
    table = ideal_table(instance, ideals)
    steps = ChainSearch(instance, table, total=True).run()
    if steps is None:
        return None
    device_of: dict[int, str] = {}
    for home, step in zip(step_devices(problem, instance, steps), steps, strict=True):
        for group in table.between(step.inner, step.outer):
            device_of.update(dict.fromkeys(instance.members[group], home))
    return device_of
