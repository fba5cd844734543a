"""`pesto`: placement and order by an integer program on a coarsened graph (Hafeez et al., Middleware 2021).

The program is solved by HiGHS within a time limit. List schedules and the best split along one order give the bound
that it must beat; what is handed back is the best of all on the full graph, by the evaluator.
"""

from __future__ import annotations

import time

import numpy as np

from rota.core.errors import RotaError
from rota.planner.description.operators import CPU
from rota.planner.description.problem import PlanningProblem
from rota.planner.ideals.instance import accelerator_type
from rota.planner.methods.baechi import favourite_children
from rota.planner.methods.chains import cut_by_total, filled_in_order
from rota.planner.methods.coarsen import GroupGraph, coarsened
from rota.planner.methods.list_schedule import MemoryListScheduler
from rota.planner.methods.pesto_program import PlacementProgram, ProgramAnswer
from rota.planner.options import DEFAULTS, PlannerOptions
from rota.planner.plan import PlacementPlan, PlanObjective, PlanStage, ReportProgress
from rota.planner.simulate.latency import is_called, placement_latency_ms, stages_of

_SOLVER_SHARE = 0.8
"""Of the time limit: starting points and the program; the rest judges the program's placement on the full graph."""
Candidate = tuple[float, str, tuple[PlanStage, ...], tuple[int, ...]]


def plan_pesto(
    problem: PlanningProblem, options: PlannerOptions = DEFAULTS, report: ReportProgress | None = None
) -> PlacementPlan:
    """The best placement by latency that the program and its starting points find."""
    began_s = time.process_time()
    found = _starting_points(problem)
    if report is not None:
        report(0.3)
    bound_ms = min((each[0] for each in found), default=np.inf)
    notes = []
    groups = coarsened(problem, options.coarsen_to, heaviest_bytes=_cap(problem))
    left_s = options.time_limit_s * _SOLVER_SHARE - (time.process_time() - began_s)
    answer = _solved(problem, groups, left_s, bound_ms) if left_s > 0 else None
    is_exact = len(groups) == len(problem.graph)
    if answer is None:
        notes.append(f"the program on {len(groups)} groups found nothing below the starting points")
    else:
        notes.append(
            f"the program on {len(groups)} groups {'is solved' if answer.is_optimal else 'reached its limit'}"
            f" at {answer.value_ms:.3f} ms"
        )
        found += _candidate(problem, groups, answer)
    if not found:
        raise RotaError(f"{problem.graph.source}: no placement fits the devices' memory; add devices or memory")
    value_ms, name, stages, order = min(found, key=lambda each: each[0])
    is_proved = is_exact and answer is not None and answer.is_optimal and _is_lower_bound(problem)
    return PlacementPlan(
        planner="pesto",
        objective=PlanObjective.LATENCY,
        value_ms=value_ms,
        stages=stages,
        seconds=time.process_time() - began_s,
        proved_optimal=bool(is_proved and answer is not None and value_ms <= answer.value_ms * (1 + 1e-4)),
        notes=(f"best: {name}", *(f"{each[1]}: {each[0]:.3f} ms" for each in found), *notes),
        order=order,
    )


def _is_lower_bound(problem: PlanningProblem) -> bool:
    """Whether the program's optimum bounds every placement: links alike, at most one CPU, and no model of calls."""
    alike = {(link.bytes_per_ms, link.latency_ms) for link in problem.devices.links}
    caps = {
        problem.devices.devices[number].memory_bytes for number in problem.devices.of_type(accelerator_type(problem))
    }
    is_even = len(alike) == 1 and len(caps) == 1
    return is_even and len(problem.devices.of_type(CPU)) <= 1 and not is_called(problem)


def _starting_points(problem: PlanningProblem) -> list[Candidate]:
    found: list[Candidate] = []
    for name, device_of in (
        ("cut by total load", cut_by_total(problem)),
        ("filled in order", filled_in_order(problem)),
        ("filled evenly in order", filled_in_order(problem, balanced=True)),
    ):
        if device_of is not None:
            stages = stages_of(problem, device_of)
            found.append((placement_latency_ms(problem, stages), name, stages, ()))
    for name, favourites in (("list schedule", {}), ("list schedule, favourites first", favourite_children(problem))):
        scheduler = MemoryListScheduler(problem, favourites)
        try:
            stages = stages_of(problem, scheduler.run())
        except RotaError:
            continue
        order = tuple(scheduler.order)
        found.append((placement_latency_ms(problem, stages, order), name, stages, order))
    return found


def _cap(problem: PlanningProblem) -> float:
    fast = accelerator_type(problem)
    caps = [problem.devices.devices[number].memory_bytes for number in problem.devices.of_type(fast)]
    return min((float(cap) for cap in caps if cap is not None), default=np.inf)


def _solved(problem: PlanningProblem, groups: GroupGraph, time_limit_s: float, bound_ms: float) -> ProgramAnswer | None:
    fast = accelerator_type(problem)
    accelerators = len(problem.devices.of_type(fast)) if fast != CPU else 0
    if not np.isfinite(bound_ms):
        bound_ms = float(np.maximum(groups.accelerator_ms, groups.cpu_ms).sum() + sum(groups.edges.values()))
    program = PlacementProgram(
        groups,
        accelerators=accelerators,
        has_cpu=bool(problem.devices.of_type(CPU)),
        memory_cap_bytes=_cap(problem),
        transfers=2.0 if is_called(problem) else 1.0,
        bound_ms=bound_ms,
    )
    return program.solve(time_limit_s)


def _candidate(problem: PlanningProblem, groups: GroupGraph, answer: ProgramAnswer) -> list[Candidate]:
    """The program's placement on the full graph; none where rounding has let it exceed a device's memory."""
    fast = accelerator_type(problem)
    names = [problem.devices.devices[number].name for number in problem.devices.of_type(fast)] if fast != CPU else []
    names += [problem.devices.devices[number].name for number in problem.devices.of_type(CPU)[:1]]
    device_of: dict[int, str] = {}
    for group, device in enumerate(answer.device_of):
        device_of.update(dict.fromkeys(groups.members[group], names[device]))
    place = {number: answer.start_ms[group] for group, members in enumerate(groups.members) for number in members}
    rank = {number: position for position, number in enumerate(problem.graph.topological_order)}
    order = tuple(sorted(range(len(problem.graph)), key=lambda number: (place[number], rank[number])))
    stages = stages_of(problem, device_of)
    caps = {device.name: device.memory_bytes for device in problem.devices.devices}
    if any((cap := caps[stage.devices[0]]) is not None and stage.memory_bytes > cap for stage in stages):
        return []
    return [(placement_latency_ms(problem, stages, order), "integer program", stages, order)]
