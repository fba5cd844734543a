"""Small planning problems for tests, and the published data where ROTA_DATA says."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from rota.planner.description.devices import DeviceGraph, GraphDevice, fully_connected
from rota.planner.description.operators import ACCELERATOR, CPU, GraphOperator, OperatorGraph
from rota.planner.description.problem import PlanningProblem


def published(*parts: str) -> Path:
    """A file of the published planning data; the test is skipped where it is not there."""
    root = os.environ.get("ROTA_DATA")
    if root is None:
        pytest.skip("ROTA_DATA is not set")
    path = Path(root).joinpath("planner", *parts)
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def operator(
    name: str,
    ms: float = 1.0,
    *,
    cpu_ms: float | None = None,
    transfer_ms: float | None = 0.0,
    weight_bytes: int = 0,
    colocation: str | None = None,
    is_backward: bool = False,
    output_bytes: int = 0,
) -> GraphOperator:
    """An operator with a time on an accelerator, and ten times that on a CPU unless given."""
    return GraphOperator(
        name=name,
        time_ms={ACCELERATOR: ms, CPU: 10 * ms if cpu_ms is None else cpu_ms},
        transfer_ms=transfer_ms,
        weight_bytes=weight_bytes,
        colocation=colocation,
        is_backward=is_backward,
        output_bytes=output_bytes,
    )


def machines(accelerators: int, cpus: int = 0, memory_bytes: int | None = None) -> DeviceGraph:
    """Equal accelerators and CPUs without links."""
    return DeviceGraph(
        devices=tuple(
            GraphDevice(name=f"a{number}", type=ACCELERATOR, memory_bytes=memory_bytes)
            for number in range(accelerators)
        )
        + tuple(GraphDevice(name=f"c{number}", type=CPU) for number in range(cpus))
    )


def problem_of(
    operators: Sequence[GraphOperator], edges: Sequence[tuple[int, int]], devices: DeviceGraph
) -> PlanningProblem:
    return PlanningProblem(graph=OperatorGraph(operators=tuple(operators), edges=tuple(edges)), devices=devices)


def random_problem(
    seed: int, count: int = 7, *, accelerators: int = 2, cpus: int = 1, memory_bytes: int | None = None
) -> PlanningProblem:
    """A random graph with transfers, some operators without time, and a backward pass for odd seeds."""
    rng = random.Random(seed)
    operators, edges = [], []
    for number in range(count):
        ms = rng.choice([0.0, rng.uniform(0.5, 4.0), rng.uniform(0.5, 4.0)])
        operators.append(
            operator(
                f"f{number}",
                ms,
                cpu_ms=rng.uniform(1, 4) * ms,
                transfer_ms=rng.choice([0.0, rng.uniform(0.0, 2.0)]),
                weight_bytes=rng.randrange(1, 4),
                colocation=f"k{number}" if seed % 2 else None,
            )
        )
        edges += [(before, number) for before in range(number) if rng.random() < 0.35]
    if seed % 2:
        forward = list(edges)
        for number in range(count):
            operators.append(
                operator(
                    f"b{number}",
                    rng.uniform(0.0, 3.0),
                    cpu_ms=rng.uniform(0.0, 9.0),
                    transfer_ms=rng.uniform(0.0, 1.0),
                    weight_bytes=1,
                    colocation=f"k{number}",
                    is_backward=True,
                )
            )
            edges.append((number, count + number))
        edges += [(count + second, count + first) for first, second in forward]
    return problem_of(operators, edges, machines(accelerators, cpus, memory_bytes))


def layered_problem(count: int, seed: int = 0, *, devices: DeviceGraph | None = None) -> PlanningProblem:
    """A large graph of operators that read one or two of the operators shortly before them."""
    rng = random.Random(seed)
    operators, edges = [], set()
    for number in range(count):
        operators.append(
            GraphOperator(
                name=f"o{number}",
                time_ms={"gpu": rng.uniform(0.01, 2.0)},
                output_bytes=rng.randrange(10**4, 10**7),
                weight_bytes=rng.randrange(10**6),
            )
        )
        edges |= {(max(0, number - rng.randrange(1, 6)), number) for _ in range(rng.choice((1, 1, 2))) if number}
    chosen = devices or fully_connected("gpu", 8, memory_bytes=3 * 10**9, per_node=4)
    return problem_of(operators, sorted(edges), chosen)
