"""Reads layer profiles in PipeDream's text form, as DAPPLE publishes them too.

A line `node1 -- Conv -- forward_compute_time=.., backward_compute_time=.., activation_size=.., parameter_size=..` is a
layer, a line `node1 -- node2` an edge. Times are in milliseconds, sizes in bytes. An activation may be a list `[a; b]`:
one size for each output, or the same output once for each reader. Inputs are read by every stage for itself and cost no
transfer, as in PipeDream's own planner.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from rota.core.errors import RotaError
from rota.planner.description.operators import GraphOperator, OperatorGraph

_FIELDS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_LAYER = re.compile(r"^(\S+) -- (.*?) -- ([a-z_]+=.*)$")
_EDGE = re.compile(r"^(\S+) -- (\S+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledLayer:
    """One layer of a training profile: forward and backward times, activation and weights."""

    name: str
    forward_ms: float
    backward_ms: float
    activation_bytes: float
    weight_bytes: float
    repeated: int = 1
    """How many equal sizes the activation is the sum of; 1 where it is one size, or sizes that differ."""

    @property
    def both_ms(self) -> float:
        """Forward and backward together."""
        return self.forward_ms + self.backward_ms


@dataclass(frozen=True, kw_only=True)
class LayerProfile:
    """Layers in an order in which inputs come first, and the edges between their positions."""

    layers: tuple[ProfiledLayer, ...]
    edges: tuple[tuple[int, int], ...]
    source: str

    @property
    def total_ms(self) -> float:
        """Forward and backward of all layers."""
        return sum(layer.both_ms for layer in self.layers)

    def graph(self, device_type: str = "gpu") -> OperatorGraph:
        """The profile as a graph of operators, one for each layer, forward and backward in one."""
        return OperatorGraph(
            operators=tuple(
                GraphOperator(
                    name=layer.name,
                    time_ms={device_type: layer.both_ms},
                    output_bytes=int(layer.activation_bytes),
                    weight_bytes=int(layer.weight_bytes),
                    resident_bytes=int(layer.activation_bytes),
                    backward_share=layer.backward_ms / layer.both_ms if layer.both_ms else 0.0,
                )
                for layer in self.layers
            ),
            edges=self.edges,
            source=self.source,
        )


def read_profile(path: Path) -> LayerProfile:
    """The profile of a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise RotaError(f"{path}: {getattr(err, 'strerror', None) or 'not a text file'}") from err
    return parse_profile(text, str(path))


def parse_profile(text: str, source: str) -> LayerProfile:
    """The profile of a text; a line that is neither a layer nor an edge is a mistake."""
    names: dict[str, int] = {}
    layers: list[ProfiledLayer] = []
    edges: list[tuple[int, int]] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line:
            continue
        place = f"{source}: line {number}"
        if found := _LAYER.match(line):
            if found[1] in names:
                raise RotaError(f"{place}: {found[1]!r} is there twice")
            names[found[1]] = len(layers)
            layers.append(_layer(found[1], found[2], found[3], place))
        elif found := _EDGE.match(line):
            for end in found.groups():
                if end not in names:
                    raise RotaError(f"{place}: edge to unknown layer {end!r}; layers come before edges")
            edges.append((names[found[1]], names[found[2]]))
        else:
            raise RotaError(f"{place}: neither a layer nor an edge: {line[:60]!r}")
    return _sorted(layers, edges, source)


def _layer(key: str, description: str, fields: str, place: str) -> ProfiledLayer:
    sizes: dict[str, list[float]] = {}
    for part in fields.split(","):
        name, _, value = (each.strip() for each in part.partition("="))
        if name not in _FIELDS:
            raise RotaError(f"{place}: unknown field {name!r}; known: {', '.join(_FIELDS)}")
        try:
            sizes[name] = [float(each) for each in value.strip("[]").split(";")]
        except ValueError:
            raise RotaError(f"{place}: {name} must be a number, found {value!r}") from None
        wrong = [each for each in sizes[name] if not 0 <= each < float("inf")]
        if wrong:
            raise RotaError(f"{place}: {name} is {wrong[0]:g}; it must be 0 or more")
    missing = [name for name in _FIELDS if name not in sizes]
    if missing:
        raise RotaError(f"{place}: {missing[0]} is missing")
    values = {name: sum(found) for name, found in sizes.items()}
    activation = sizes["activation_size"]
    return ProfiledLayer(
        name=f"{key} {description}",
        repeated=len(activation) if len(set(activation)) == 1 else 1,
        forward_ms=values["forward_compute_time"],
        backward_ms=values["backward_compute_time"],
        activation_bytes=values["activation_size"],
        weight_bytes=values["parameter_size"],
    )


def _sorted(layers: list[ProfiledLayer], edges: list[tuple[int, int]], source: str) -> LayerProfile:
    draft = LayerProfile(layers=tuple(layers), edges=tuple(edges), source=source).graph()
    order = draft.topological_order
    position = {number: place for place, number in enumerate(order)}
    return LayerProfile(
        layers=tuple(_sent_once(layers[number], draft, number) for number in order),
        edges=tuple((position[first], position[second]) for first, second in edges),
        source=source,
    )


def _sent_once(layer: ProfiledLayer, graph: OperatorGraph, number: int) -> ProfiledLayer:
    """The layer with one output where its list repeats it for each reader, and none where it is an input."""
    if not graph.predecessors[number] and layer.name.split(" ", 1)[1].startswith("Input"):
        return replace(layer, activation_bytes=0.0)
    if layer.repeated > 1 and layer.repeated == len(graph.successors[number]):
        return replace(layer, activation_bytes=layer.activation_bytes / layer.repeated)
    return layer
