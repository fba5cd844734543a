"""Times of the operators of an exported model: measured on this machine, or by a device's peak rates."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.core.errors import RotaError, did_you_mean


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
    """The median time of each node over repeated runs on a device, after one run that does not count."""
    import torch

    graph_module, flat = program.graph_module, _flat_inputs(program, inputs)
    if device != "cpu":
        graph_module, flat = _moved(program, flat, device)

    class Timed(torch.fx.Interpreter):  # type: ignore[misc]  # torch is not typed here
        """Runs the graph node by node with a clock around each."""

        def __init__(self, graph_module: Any) -> None:
            super().__init__(graph_module, garbage_collect_values=True)
            self.samples: dict[str, list[float]] = {}

        def run_node(self, node: Any) -> Any:
            if device != "cpu":
                torch.cuda.synchronize()
            began = time.perf_counter()
            result = super().run_node(node)
            if device != "cpu":
                torch.cuda.synchronize()
            self.samples.setdefault(node.name, []).append((time.perf_counter() - began) * 1e3)
            return result

    timed = Timed(graph_module)
    with torch.no_grad():
        for _ in range(repeats + 1):
            timed.run(*flat)
    return {name: statistics.median(samples[1:]) for name, samples in timed.samples.items()}


def _moved(program: Any, flat: Sequence[Any], device: str) -> tuple[Any, list[Any]]:
    """The graph and its values on a device; operators that name a device of their own are moved too."""
    from torch.export.passes import move_to_device_pass

    there = move_to_device_pass(program, device)
    return there.graph_module, [each.to(device) if hasattr(each, "to") else each for each in flat]


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
