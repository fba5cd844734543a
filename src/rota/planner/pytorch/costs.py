"""Times of the operators of an exported model: measured on this machine, or by a device's peak rates."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.core.errors import RotaError, did_you_mean

CUDA = "cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRates:
    """What a device does at best, what of it operators reach, and the cost of starting one."""

    flops_per_ms: float
    bytes_per_ms: float
    efficiency: float = 0.5
    launch_ms: float = 0.005


RATES: Mapping[str, DeviceRates] = {
    "v100": DeviceRates(flops_per_ms=15.7e9, bytes_per_ms=900e6),
    "a100": DeviceRates(flops_per_ms=19.5e9, bytes_per_ms=1555e6),
    "h100": DeviceRates(flops_per_ms=66.9e9, bytes_per_ms=3350e6),
    "t4": DeviceRates(flops_per_ms=8.1e9, bytes_per_ms=320e6),
}
"""Published peak rates in single precision."""


def rates_of(device_type: str) -> DeviceRates:
    """The rates of a device type."""
    if device_type not in RATES:
        raise RotaError(f"no rates for {device_type!r}; {did_you_mean(device_type, RATES)}")
    return RATES[device_type]


def measured_ms(program: Any, inputs: Sequence[Any], repeats: int, device: str) -> dict[str, float]:
    """The median time of each node over repeated runs on a device, after one run that does not count.

    On a GPU it is the time between events around the node: launches count only where the GPU waits for them.
    """
    import torch

    graph_module, flat = _placed(program, _flat_inputs(program, inputs), device)

    class Timed(torch.fx.Interpreter):  # type: ignore[misc]  # torch is not typed here
        """Runs the graph node by node with a mark before and after each."""

        def __init__(self, graph_module: Any) -> None:
            super().__init__(graph_module, garbage_collect_values=True)
            self.marks: list[tuple[str, Any, Any]] = []

        def run_node(self, node: Any) -> Any:
            before = _mark(torch, device)
            result = super().run_node(node)
            self.marks.append((node.name, before, _mark(torch, device)))
            return result

    timed = Timed(graph_module)
    samples: dict[str, list[float]] = {}
    with torch.no_grad():
        for _ in range(repeats + 1):
            timed.run(*flat)
            if device == CUDA:
                torch.cuda.synchronize()
            for name, before, after in timed.marks:
                samples.setdefault(name, []).append(_between_ms(before, after))
            timed.marks.clear()
    return {name: statistics.median(times[1:]) for name, times in samples.items()}


def _mark(torch: Any, device: str) -> Any:
    """A moment of a run: of the clock, or on a GPU an event among its work."""
    if device != CUDA:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between_ms(before: Any, after: Any) -> float:
    """The time between two marks of one kind."""
    return float((after - before) * 1e3 if isinstance(before, float) else before.elapsed_time(after))


def _placed(program: Any, flat: Sequence[Any], device: str) -> tuple[Any, list[Any]]:
    """A copy of the graph and its values on a device; operators that name a device name this one.

    The order in which values lie in memory differs between devices: a view that was traced on one may need a copy.
    """
    import torch

    graph_module = copy.deepcopy(program.graph_module)
    for node in graph_module.graph.nodes:
        if node.kwargs.get("device") is not None:
            node.kwargs = {**node.kwargs, "device": torch.device(device)}
        if node.target is torch.ops.aten.view.default:
            node.target = torch.ops.aten.reshape.default
        if node.target is torch.ops.aten.to.device:
            node.args = (node.args[0], torch.device(device), *node.args[2:])
    return graph_module, [each.to(device) if hasattr(each, "to") else each for each in flat]


def _flat_inputs(program: Any, inputs: Sequence[Any]) -> list[Any]:
    """Parameters, buffers and inputs in the order of the graph's placeholders."""
    import torch

    flat, _ = torch.utils._pytree.tree_flatten((tuple(inputs), {}))
    values = dict(program.state_dict) | dict(program.constants)
    signature = program.graph_signature
    named = dict(signature.inputs_to_parameters) | dict(signature.inputs_to_buffers)
    named |= dict(getattr(signature, "inputs_to_lifted_tensor_constants", {}))
    users = iter(flat)
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    return [values[named[node.name]] if node.name in named else next(users) for node in nodes]


def analytic_ms(node: Any, rates: DeviceRates) -> float:
    """The time of one node: its floating-point work or its traffic, whichever takes longer, and its start."""
    flops = node_flops(node)
    moved = value_bytes(node.meta.get("val")) + sum(value_bytes(each.meta.get("val")) for each in node.all_input_nodes)
    slower_ms = max(flops / rates.flops_per_ms, moved / rates.bytes_per_ms)
    return slower_ms / rates.efficiency + rates.launch_ms


def node_flops(node: Any) -> float:
    """Floating-point operations: by PyTorch's own formulas, one for each element where there is none."""
    from torch.utils._pytree import tree_map
    from torch.utils.flop_counter import flop_registry

    packet = getattr(node.target, "overloadpacket", None)
    result = node.meta.get("val")
    if packet in flop_registry:
        args, kwargs = tree_map(
            lambda each: each.meta["val"] if hasattr(each, "meta") else each, (node.args, node.kwargs)
        )
        return float(flop_registry[packet](*args, **kwargs, out_val=result))
    return float(sum(each.numel() for each in tensors(result)))


def tensors(value: Any) -> list[Any]:
    """The tensors in a node's value."""
    if hasattr(value, "numel") and hasattr(value, "element_size"):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for each in value for tensor in tensors(each)]
    return []


def value_bytes(value: Any) -> int:
    """Bytes of a node's value."""
    return sum(int(tensor.numel()) * int(tensor.element_size()) for tensor in tensors(value))
