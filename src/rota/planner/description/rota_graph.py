"""Rota's own JSON of a planning problem: operators with their inputs by name, devices and links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.core.errors import RotaError, did_you_mean
from rota.planner.description.devices import DeviceGraph, DeviceLink, GraphDevice, refuse_many_devices
from rota.planner.description.fields import JsonFields
from rota.planner.description.operators import CPU, GraphOperator, OperatorGraph
from rota.planner.description.problem import PlanningProblem

_TOP = ("operators", "devices", "links")
_OPERATOR = (
    "name",
    "inputs",
    "time_ms",
    "output_bytes",
    "transfer_ms",
    "weight_bytes",
    "resident_bytes",
    "colocation",
    "backward",
    "backward_share",
    "occupancy",
)
_DEVICE = ("name", "type", "count", "memory_bytes", "levels", "sending_watts")
_LEVEL = ("speed", "watts")
_LINK = ("source", "target", "gb_per_s", "latency_ms", "medium")
BYTES_PER_MS = 1e6
"""One GB/s."""


def is_rota_graph(value: object) -> bool:
    """Whether a parsed file looks like one of Rota's."""
    return isinstance(value, Mapping) and "operators" in value


def rota_problem(value: Any, source: str, default: DeviceGraph | None = None) -> PlanningProblem:
    """The problem that a parsed file describes; one without devices takes `default`."""
    top = JsonFields(value, source, _TOP)
    entries = [
        JsonFields(entry, f"{source}: operator {number}", _OPERATOR)
        for number, entry in enumerate(top.items("operators"))
    ]
    graph = _graph(entries, source)
    if "devices" in top:
        return PlanningProblem(graph=graph, devices=_devices(top))
    if default is None:
        raise RotaError(f"{source}: there are no devices; add `devices`, or name some on the command line")
    return PlanningProblem(graph=graph, devices=default)


def _graph(entries: list[JsonFields], source: str) -> OperatorGraph:
    numbers: dict[str, int] = {}
    for position, entry in enumerate(entries):
        name = entry.text("name")
        if name in numbers:
            raise RotaError(f"{source}: operator {name!r} is there twice; names must differ")
        numbers[name] = position
    edges = []
    for position, entry in enumerate(entries):
        for name in entry.items("inputs") if "inputs" in entry else []:
            if not isinstance(name, str) or name not in numbers:
                raise RotaError(f"{entry.place}: unknown input {name!r}; {did_you_mean(str(name), numbers)}")
            edges.append((numbers[name], position))
    return OperatorGraph(operators=tuple(map(_operator, entries)), edges=tuple(edges), source=source)


def _operator(entry: JsonFields) -> GraphOperator:
    times = entry.raw("time_ms")
    if not isinstance(times, Mapping):
        raise RotaError(f'{entry.place}: time_ms must be times by device type, as {{"v100": 1.5}}')
    fields = JsonFields(times, f"{entry.place}: time_ms", times)
    return GraphOperator(
        name=entry.text("name"),
        time_ms=_with_fewest({device_type: fields.number(device_type) for device_type in times}),
        output_bytes=entry.count("output_bytes", 0),
        transfer_ms=entry.number("transfer_ms") if "transfer_ms" in entry else None,
        weight_bytes=entry.count("weight_bytes", 0),
        resident_bytes=entry.count("resident_bytes", 0),
        colocation=str(entry.raw("colocation")) if "colocation" in entry else None,
        is_backward=entry.flag("backward", False),
        backward_share=entry.number("backward_share", 0.0),
        occupancy=entry.number("occupancy", 1.0),
    )


def _with_fewest(times_ms: dict[str, float]) -> dict[str, float]:
    """Times with that of the best number of threads where a CPU's are given by threads only, as `cpu@4`."""
    threaded = [time_ms for name, time_ms in times_ms.items() if name.startswith(f"{CPU}@")]
    return times_ms | {CPU: min(threaded)} if threaded and CPU not in times_ms else times_ms


def _devices(top: JsonFields) -> DeviceGraph:
    devices: list[GraphDevice] = []
    for position, value in enumerate(top.items("devices")):
        entry = JsonFields(value, f"{top.place}: device {position}", _DEVICE)
        device_type = entry.text("type")
        memory_bytes = entry.count("memory_bytes") if "memory_bytes" in entry else None
        count = entry.count("count", 1, least=1)
        refuse_many_devices(len(devices) + count)
        name = entry.text("name", device_type)
        names = [name] if count == 1 else [f"{name}-{number}" for number in range(count)]
        levels = tuple(
            (level.number("speed"), level.number("watts"))
            for level in (
                JsonFields(one, f"{entry.place}: level {number}", _LEVEL)
                for number, one in enumerate(entry.items("levels") if "levels" in entry else [])
            )
        )
        devices += [
            GraphDevice(
                name=each,
                type=device_type,
                memory_bytes=memory_bytes,
                levels=levels,
                sending_watts=entry.number("sending_watts", 0.0),
            )
            for each in names
        ]
    links = [
        _link(JsonFields(value, f"{top.place}: link {position}", _LINK))
        for position, value in enumerate(top.items("links") if "links" in top else [])
    ]
    return DeviceGraph(devices=tuple(devices), links=tuple(links))


def _link(entry: JsonFields) -> DeviceLink:
    return DeviceLink(
        source=entry.text("source"),
        target=entry.text("target"),
        bytes_per_ms=entry.number("gb_per_s") * BYTES_PER_MS,
        latency_ms=entry.number("latency_ms", 0.0),
        medium=entry.text("medium") if "medium" in entry else None,
    )


def as_rota_graph(problem_or_graph: PlanningProblem | OperatorGraph) -> dict[str, Any]:
    """The JSON value of a problem, or of operators alone; reading it gives the same back."""
    is_problem = isinstance(problem_or_graph, PlanningProblem)
    graph = problem_or_graph.graph if isinstance(problem_or_graph, PlanningProblem) else problem_or_graph
    value: dict[str, Any] = {"operators": [_as_entry(graph, number) for number in range(len(graph))]}
    if is_problem and isinstance(problem_or_graph, PlanningProblem):
        devices = problem_or_graph.devices
        value["devices"] = [
            {"name": each.name, "type": each.type}
            | ({} if each.memory_bytes is None else {"memory_bytes": each.memory_bytes})
            | ({"levels": [{"speed": a, "watts": b} for a, b in each.levels]} if each.levels else {})
            | ({"sending_watts": each.sending_watts} if each.sending_watts else {})
            for each in devices.devices
        ]
        value["links"] = [
            {
                "source": link.source,
                "target": link.target,
                "gb_per_s": link.bytes_per_ms / BYTES_PER_MS,
                "latency_ms": link.latency_ms,
            }
            | ({} if link.medium is None else {"medium": link.medium})
            for link in devices.links
        ]
    return value


def _as_entry(graph: OperatorGraph, number: int) -> dict[str, Any]:
    operator = graph.operators[number]
    entry: dict[str, Any] = {
        "name": operator.name,
        "inputs": [graph.operators[before].name for before in graph.predecessors[number]],
        "time_ms": dict(operator.time_ms),
        "output_bytes": operator.output_bytes,
        "weight_bytes": operator.weight_bytes,
        "resident_bytes": operator.resident_bytes,
    }
    if operator.transfer_ms is not None:
        entry["transfer_ms"] = operator.transfer_ms
    if operator.colocation is not None:
        entry["colocation"] = operator.colocation
    if operator.is_backward:
        entry["backward"] = True
    if operator.backward_share:
        entry["backward_share"] = operator.backward_share
    if operator.occupancy != 1.0:
        entry["occupancy"] = operator.occupancy
    return entry
