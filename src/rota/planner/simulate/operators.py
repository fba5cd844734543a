"""Simulates one step of operators that are placed on devices: compute, transfers that contend, memory over time.

Where operators say `transfer_ms`, data goes through the host: out of an accelerator once, and into each accelerator
that reads it, over the accelerator's own port. Otherwise it goes over the link of the two devices; transfers over
links of one medium are serialised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from rota.planner.description.operators import CPU
from rota.planner.description.problem import PlanningProblem
from rota.planner.simulate.tasks import SimTask, StepTimeline, simulate_tasks


def simulate_placement(
    problem: PlanningProblem, device_of: Mapping[int, str], order: Sequence[int] = ()
) -> StepTimeline:
    """One step; devices take ready operators in the given order, or by the longest way to the end."""
    tasks = placement_tasks(problem, device_of, order)
    resident = dict.fromkeys((device.name for device in problem.devices.devices), 0.0)
    for number, name in device_of.items():
        resident[name] += problem.graph.operators[number].weight_bytes
    return simulate_tasks(tasks, {name: ceil(held) for name, held in resident.items()})


def placement_tasks(problem: PlanningProblem, device_of: Mapping[int, str], order: Sequence[int] = ()) -> list[SimTask]:
    """The operators and their transfers as tasks; the first tasks are the operators, by number."""
    graph = problem.graph
    ranks = _ranks(problem, device_of, order)
    types = {device.name: device.type for device in problem.devices.devices}
    tasks = [
        SimTask(
            name=operator.name,
            resource=device_of[number],
            duration_ms=operator.time_ms[types[device_of[number]]],
            rank=ranks[number],
            at_start=((device_of[number], operator.output_bytes),),
        )
        for number, operator in enumerate(graph.operators)
    ]
    for number in range(len(graph)):
        arrivals = _transfers(problem, tasks, number, device_of, types)
        readers_by_device: dict[str, list[int]] = {}
        for reader in graph.successors[number]:
            tasks[reader].after.append(arrivals[device_of[reader]])
            readers_by_device.setdefault(device_of[reader], []).append(reader)
        _release(tasks, number, device_of[number], graph.operators[number].output_bytes, readers_by_device, arrivals)
    return tasks


def _transfers(
    problem: PlanningProblem,
    tasks: list[SimTask],
    number: int,
    device_of: Mapping[int, str],
    types: Mapping[str, str],
) -> dict[str, int]:
    """Add the transfers of one operator's output; the task after which each device has it."""
    home = device_of[number]
    operator = problem.graph.operators[number]
    targets = sorted({device_of[reader] for reader in problem.graph.successors[number]} - {home})
    arrivals = {home: number}
    via_host = operator.transfer_ms is not None
    leaves = number
    if via_host and targets and types[home] != CPU:
        tasks.append(_transfer(f"{operator.name} out", f"{home} port", operator.transfer_ms or 0.0, number, tasks))
        leaves = len(tasks) - 1
    for target in targets:
        if via_host:
            if types[target] == CPU:
                arrivals[target] = leaves
                continue
            made = _transfer(f"{operator.name} in", f"{target} port", operator.transfer_ms or 0.0, leaves, tasks)
        else:
            ends = problem.devices.numbers[home], problem.devices.numbers[target]
            link = problem.devices.link(*ends)
            medium = link.medium or f"{link.source}-{link.target}"
            made = _transfer(f"{operator.name} to {target}", medium, link.time_ms(operator.output_bytes), leaves, tasks)
        made.at_start = ((target, operator.output_bytes),)
        tasks.append(made)
        arrivals[target] = len(tasks) - 1
    return arrivals


def _transfer(name: str, resource: str, duration_ms: float, after: int, tasks: Sequence[SimTask]) -> SimTask:
    return SimTask(
        name=name,
        resource=resource,
        duration_ms=duration_ms,
        after=[after],
        rank=tasks[after].rank,
        kind="transfer",
    )


def _release(
    tasks: list[SimTask],
    number: int,
    home: str,
    count_bytes: int,
    readers_by_device: Mapping[str, Sequence[int]],
    arrivals: Mapping[str, int],
) -> None:
    """Free an output on each device after its last reader there, in the order of ranks."""
    if not count_bytes:
        return
    if not readers_by_device:
        return
    for device, readers in readers_by_device.items():
        last = max(readers, key=lambda reader: (tasks[reader].rank, reader))
        tasks[last].at_end = (*tasks[last].at_end, (device, -count_bytes))
    if home not in readers_by_device:
        last = max(task for device, task in arrivals.items() if device != home)
        tasks[last].at_end = (*tasks[last].at_end, (home, -count_bytes))


def _ranks(problem: PlanningProblem, device_of: Mapping[int, str], order: Sequence[int]) -> list[float]:
    if order:
        place = {number: float(position) for position, number in enumerate(order)}
        return [place.get(number, float(len(order))) for number in range(len(problem.graph))]
    upward_ms = upward_ranks(problem, device_of)
    return [-value for value in upward_ms]


def upward_ranks(problem: PlanningProblem, device_of: Mapping[int, str]) -> list[float]:
    """The longest way from each operator to the end, its own time and cut transfers included."""
    graph = problem.graph
    types = {device.name: device.type for device in problem.devices.devices}
    numbers = problem.devices.numbers
    found = [0.0] * len(graph)
    for number in reversed(graph.topological_order):
        home = device_of[number]
        longest = 0.0
        for reader in graph.successors[number]:
            moved_ms = 0.0
            if device_of[reader] != home:
                moved_ms = problem.transfer_ms(number, numbers[home], numbers[device_of[reader]])
            longest = max(longest, moved_ms + found[reader])
        found[number] = graph.operators[number].time_ms[types[home]] + longest
    return found
