"""Reads the graphs of dnn-partitioning (Tarnawski et al., NeurIPS 2020): accelerators and CPUs of one kind each.

An edge's cost is the time to move its source's output between an accelerator and the host's memory. CPUs work in that
memory, so that only accelerators pay for transfers, and only their memory is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.core.errors import RotaError
from rota.planner.description.devices import DeviceGraph, GraphDevice, refuse_many_devices
from rota.planner.description.fields import JsonFields
from rota.planner.description.operators import ACCELERATOR, CPU, GraphOperator, OperatorGraph
from rota.planner.description.problem import PlanningProblem

_TOP = ("maxSizePerFPGA", "maxFPGAs", "maxCPUs", "nodes", "edges")
_NODE = (
    "id",
    "name",
    "supportedOnFpga",
    "cpuLatency",
    "fpgaLatency",
    "isBackwardNode",
    "colorClass",
    "layerId",
    "size",
)
_EDGE = ("sourceId", "destId", "cost", "size")
_SAME_COST_MS = 1e-6


def is_published_graph(value: object) -> bool:
    """Whether a parsed file looks like one of these graphs."""
    return isinstance(value, Mapping) and "nodes" in value


def published_problem(value: Any, source: str) -> PlanningProblem:
    """The problem that a parsed file describes."""
    top = JsonFields(value, source, _TOP)
    nodes = [JsonFields(node, f"{source}: node {number}", _NODE) for number, node in enumerate(top.items("nodes"))]
    numbers: dict[int, int] = {}
    for position, node in enumerate(nodes):
        number = node.count("id", least=-(2**31))
        if number in numbers:
            raise RotaError(f"{source}: id {number} is there twice")
        numbers[number] = position
    costs_ms, sizes, edges = _edges(top, numbers)
    graph = OperatorGraph(
        operators=tuple(
            _operator(node, costs_ms.get(position), sizes.get(position, 0)) for position, node in enumerate(nodes)
        ),
        edges=edges,
        source=source,
    )
    return PlanningProblem(graph=graph, devices=_devices(top))


def _edges(
    top: JsonFields, numbers: Mapping[int, int]
) -> tuple[dict[int, float], dict[int, int], tuple[tuple[int, int], ...]]:
    costs_ms: dict[int, float] = {}
    sizes: dict[int, int] = {}
    edges = []
    for position, value in enumerate(top.items("edges")):
        edge = JsonFields(value, f"{top.place}: edge {position}", _EDGE)
        ends = []
        for name in ("sourceId", "destId"):
            number = edge.count(name, least=-(2**31))
            if number not in numbers:
                raise RotaError(f"{edge.place}: {name} {number} is no node's id")
            ends.append(numbers[number])
        cost_ms = edge.number("cost")
        known_ms = costs_ms.setdefault(ends[0], cost_ms)
        if abs(known_ms - cost_ms) > _SAME_COST_MS:
            raise RotaError(f"{edge.place}: cost {cost_ms:g} differs from {known_ms:g} of the same source")
        sizes[ends[0]] = int(edge.number("size", 0.0))
        edges.append((ends[0], ends[1]))
    return costs_ms, sizes, tuple(edges)


def _operator(node: JsonFields, transfer_ms: float | None, output_bytes: int) -> GraphOperator:
    time_ms = {CPU: node.number("cpuLatency")}
    if node.flag("supportedOnFpga"):
        time_ms[ACCELERATOR] = node.number("fpgaLatency")
    return GraphOperator(
        name=node.text("name", f"node {node.raw('id')}"),
        time_ms=time_ms,
        output_bytes=output_bytes,
        transfer_ms=transfer_ms or 0.0,
        weight_bytes=node.size("size", 0.0),
        colocation=str(node.count("colorClass", least=-(2**31))) if "colorClass" in node else None,
        is_backward=node.flag("isBackwardNode", False),
    )


def _devices(top: JsonFields) -> DeviceGraph:
    memory_bytes = top.size("maxSizePerFPGA")
    refuse_many_devices(top.count("maxFPGAs") + top.count("maxCPUs"))
    accelerators = [
        GraphDevice(name=f"{ACCELERATOR}-{number}", type=ACCELERATOR, memory_bytes=memory_bytes)
        for number in range(1, top.count("maxFPGAs") + 1)
    ]
    cpus = [GraphDevice(name=f"{CPU}-{number}", type=CPU) for number in range(1, top.count("maxCPUs") + 1)]
    return DeviceGraph(devices=(*accelerators, *cpus))
