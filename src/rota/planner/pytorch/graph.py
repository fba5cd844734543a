"""A PyTorch model as a graph of operators, by `torch.export`."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.core.errors import RotaError
from rota.planner.description.operators import CPU, GraphOperator, OperatorGraph
from rota.planner.pytorch.costs import CUDA, analytic_ms, measured_ms, rates_of, value_bytes
from rota.planner.pytorch.load import require_torch

BACKWARD_RATIO = 2.0
"""Backward over forward time of an operator: two products where the forward pass has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfiling:
    """How a model is turned into a graph."""

    device_types: tuple[str, ...] = (CPU,)
    """`cpu` is measured here (`cuda` too, where there is one); other types are costed by their rates."""
    repeats: int = 5
    depth: int | None = None
    """Operators of one module down to this depth are one operator; None keeps every operator."""
    training: bool = False
    """Whether each operator has a backward one, on the same device."""

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise RotaError(f"{self.repeats} repeats; at least 1 is needed")
        if self.depth is not None and self.depth < 1:
            raise RotaError(f"depth {self.depth}; at least 1 is needed")


def model_graph(model: Any, inputs: Sequence[Any], profiling: ModelProfiling, source: str) -> OperatorGraph:
    """The graph of one forward pass, or of a training step."""
    torch = require_torch()
    if CUDA in profiling.device_types and not torch.cuda.is_available():
        raise RotaError("--type cuda measures on a GPU and PyTorch finds none; take cpu, or v100, a100, h100, t4")
    try:
        with _silent():
            program = torch.export.export(model.eval(), tuple(inputs))
    except Exception as err:
        first = str(err).strip().splitlines()[0][:160] if str(err).strip() else ""
        raise RotaError(f"{source}: torch.export cannot trace the model: {type(err).__name__}: {first}") from err
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    if not nodes:
        raise RotaError(f"{source}: the model has no operators")
    times = {each: _times_ms(program, nodes, inputs, profiling, each) for each in profiling.device_types}
    groups = _groups(nodes, profiling.depth)
    graph = _graph(program, nodes, groups, times, source)
    return with_backward(graph) if profiling.training else graph


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Drop what PyTorch prints and logs while it traces a model: the error says what is wrong in one line."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def _times_ms(
    program: Any, nodes: Sequence[Any], inputs: Sequence[Any], profiling: ModelProfiling, device_type: str
) -> dict[str, float]:
    if device_type in (CPU, CUDA):
        try:
            return measured_ms(program, inputs, profiling.repeats, device_type)
        except RuntimeError as err:
            first = next(iter(str(err).splitlines()), "")[:160]
            raise RotaError(f"--type {device_type}: the model does not run: {type(err).__name__}: {first}") from err
    rates = rates_of(device_type)
    return {node.name: analytic_ms(node, rates) for node in nodes}


def _groups(nodes: Sequence[Any], depth: int | None) -> dict[str, str]:
    """The group of each node: itself, or the module that it is in, cut at a depth.

    Nodes of one module that others separate are different groups, so that groups make no cycle.
    """
    if depth is None:
        return {node.name: node.name for node in nodes}
    found: dict[str, str] = {}
    current, visits = "", 0
    for node in nodes:
        stack = node.meta.get("nn_module_stack") or {}
        path = list(stack.values())[-1][0] if stack else ""
        words = path.replace("L['self'].", "").split(".")
        label = ".".join(words[:depth]) or "model"
        if label != current:
            current, visits = label, visits + 1
        found[node.name] = f"{label}#{visits}"
    return found


def _graph(
    program: Any,
    nodes: Sequence[Any],
    groups: Mapping[str, str],
    times: Mapping[str, Mapping[str, float]],
    source: str,
) -> OperatorGraph:
    names = list(dict.fromkeys(groups[node.name] for node in nodes))
    number = {name: place for place, name in enumerate(names)}
    members: list[list[Any]] = [[] for _ in names]
    for node in nodes:
        members[number[groups[node.name]]].append(node)
    weights = _weight_bytes(program, groups)
    classes = _shared_classes(program, groups)
    operators, edges = [], set()
    for place, name in enumerate(names):
        inside = {node.name for node in members[place]}
        sent = 0
        for node in members[place]:
            readers = [user for user in node.users if user.op == "call_function" and user.name not in inside]
            edges |= {(place, number[groups[user.name]]) for user in readers}
            sent += value_bytes(node.meta.get("val")) if readers or not node.users else 0
        kept = sum(value_bytes(node.meta.get("val")) for node in members[place])
        operators.append(
            GraphOperator(
                name=name,
                time_ms={each: sum(table[node.name] for node in members[place]) for each, table in times.items()},
                output_bytes=sent,
                weight_bytes=weights.get(name, 0),
                resident_bytes=kept,
                colocation=classes.get(name),
            )
        )
    return OperatorGraph(operators=tuple(operators), edges=tuple(sorted(edges)), source=source)


def _parameters(program: Any) -> list[Any]:
    signature = program.graph_signature
    named = {*signature.inputs_to_parameters, *signature.inputs_to_buffers}
    return [node for node in program.graph.nodes if node.op == "placeholder" and node.name in named]


def _weight_bytes(program: Any, groups: Mapping[str, str]) -> dict[str, int]:
    """Bytes of the parameters by the group that reads them first."""
    found: dict[str, int] = {}
    for node in _parameters(program):
        readers = [groups[user.name] for user in node.users if user.name in groups]
        if readers:
            found[readers[0]] = found.get(readers[0], 0) + value_bytes(node.meta.get("val"))
    return found


def _shared_classes(program: Any, groups: Mapping[str, str]) -> dict[str, str]:
    """Groups that read one parameter must be together."""
    found: dict[str, str] = {}
    for node in _parameters(program):
        readers = sorted({groups[user.name] for user in node.users if user.name in groups})
        if len(readers) > 1:
            known = next((found[name] for name in readers if name in found), node.name)
            found |= dict.fromkeys(readers, known)
    return found


def with_backward(graph: OperatorGraph, ratio: float = BACKWARD_RATIO) -> OperatorGraph:
    """The graph of a training step: each operator has a backward one that reads its readers' gradients."""
    count = len(graph)
    forward = [
        GraphOperator(
            name=operator.name,
            time_ms=operator.time_ms,
            output_bytes=operator.output_bytes,
            transfer_ms=operator.transfer_ms,
            weight_bytes=operator.weight_bytes,
            resident_bytes=operator.resident_bytes,
            colocation=operator.colocation or operator.name,
        )
        for operator in graph.operators
    ]
    backward = [
        GraphOperator(
            name=f"{operator.name} backward",
            time_ms={device_type: ratio * time_ms for device_type, time_ms in operator.time_ms.items()},
            output_bytes=sum(graph.operators[before].output_bytes for before in graph.predecessors[number]),
            weight_bytes=operator.weight_bytes,
            colocation=operator.colocation or operator.name,
            is_backward=True,
        )
        for number, operator in enumerate(graph.operators)
    ]
    edges = [*graph.edges, *((number, count + number) for number in range(count))]
    edges += [(count + target, count + source) for source, target in graph.edges]
    return OperatorGraph(operators=(*forward, *backward), edges=tuple(edges), source=graph.source)
