"""The network file: a topology by name or link by link, its routing, and what jobs send on it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from rota.core.errors import RotaError, did_you_mean
from rota.files.cluster_file import BitsPerSecond, Bytes, Name, Positive, expand_names
from rota.files.document import read_document
from rota.files.json_input import parse_json
from rota.files.network.measured_table import read_measured_table
from rota.files.quantities import NotAQuantity, parse_duration
from rota.files.shape import FileModel, checked
from rota.network import fabrics
from rota.network.calibration import fit_table
from rota.network.collectives import CollectiveKind
from rota.network.demand import IterationDemand, model_demand
from rota.network.model import LinkMechanism, MemoryInterference, NetworkModel, PhaseAlignment
from rota.network.topology import NetworkLink, NetworkTopology, duplex, joined

BITS = 8
_MICRO = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ns|us|µs)", re.ASCII)
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6}


def _short_time(value: object) -> float:
    found = _MICRO.fullmatch(value.strip()) if isinstance(value, str) and len(value) < 64 else None
    if found is not None:
        return float(found[1]) * _UNITS[found[2]]
    try:
        return parse_duration(value)
    except NotAQuantity as error:
        raise ValueError(f"{error}, 5us or 800ns") from error


ShortTime = Annotated[float, BeforeValidator(_short_time), Field(ge=0, lt=1e9)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Ratio = Annotated[float, Field(gt=0, lt=1e6)]
Rate = Annotated[BitsPerSecond, Field(gt=0)]


class TopologyKind(Enum):
    """The topologies that a file can name."""

    FAT_TREE = "fat-tree"
    RAIL = "rail-optimised"
    BIGRAPH = "bigraph"
    TORUS = "torus"
    LINKS = "links"


class IslandEntry(FileModel):
    """The fast links between the devices of a node."""

    gpus: Positive = 8
    link: Rate = 2_400_000_000_000
    latency: ShortTime = 0.0


class LinkEntry(FileModel):
    """One cable, or one direction of it with `duplex: false`."""

    between: Annotated[tuple[Name, Name], Field()]
    rate: Rate | None = None
    latency: ShortTime | None = None
    duplex: bool = True


class IterationEntry(FileModel):
    """What an iteration of a model computes and sends; what is not given is as the table of known models has it."""

    compute: ShortTime | None = None
    bytes: Bytes | None = None
    overlap: Fraction | None = None
    collective: CollectiveKind | None = None
    memory_pressure: Fraction | None = None


class InterferenceEntry(FileModel):
    """How communication and computing slow each other down while they overlap."""

    communication: Annotated[float, Field(ge=0, lt=1)] = 0.9
    computing: Annotated[float, Field(ge=0, lt=100)] = 0.1256


class NetworkFile(FileModel):
    """The whole file. Fields that the topology does not use are refused."""

    topology: TopologyKind
    nodes: tuple[Name, ...] = ()
    link: Rate = 100_000_000_000
    latency: ShortTime = 0.0
    per_leaf: Positive | None = None
    spines: Positive | None = None
    leaves_per_pod: Positive | None = None
    cores: Positive | None = None
    oversubscription: Ratio | None = None
    core_oversubscription: Ratio | None = None
    rails: Positive | None = None
    switches: Positive | None = None
    trunk: Rate | None = None
    shape: tuple[Positive, ...] | None = None
    island: IslandEntry | None = None
    links: tuple[LinkEntry, ...] = ()
    nodes_forward: bool = False
    routing: Annotated[str, Field(pattern="^(ecmp|single)$")] = "ecmp"
    seed: int = 0
    message_latency: ShortTime = 0.0
    efficiency: Annotated[float, Field(gt=0, le=1)] = 1.0
    inside: dict[Positive, Name] = {}
    models: dict[Name, IterationEntry] = {}
    default: IterationEntry | None = None
    phases: PhaseAlignment = PhaseAlignment.ALIGNED
    between: LinkMechanism = LinkMechanism.FAIR
    priority_levels: Positive = 8
    interference: InterferenceEntry = InterferenceEntry()
    interface: Name | None = None
    adapters: Name | None = None


_USES = {
    TopologyKind.FAT_TREE: {
        *("per_leaf", "spines", "leaves_per_pod", "cores", "oversubscription", "core_oversubscription", "island")
    },
    TopologyKind.RAIL: {"per_leaf", "spines", "rails", "oversubscription", "island"},
    TopologyKind.BIGRAPH: {"switches", "trunk", "island"},
    TopologyKind.TORUS: {"shape", "island"},
    TopologyKind.LINKS: {"links", "island", "nodes_forward"},
}
_OPTIONS = ("between", "phases", "seed", "routing")
_SHAPES = frozenset().union(*_USES.values())


def read_network_file(path: Path, cluster_nodes: Sequence[str] = (), **over: object) -> NetworkModel:
    """Return the network of a file. Without `nodes` in it, its nodes are those of the cluster, in their order.

    `over` has fields that are given elsewhere and win.
    """
    return network_from_document(read_document(path), path, cluster_nodes, **over)


def network_from_document(
    document: object, path: Path, cluster_nodes: Sequence[str] = (), **over: object
) -> NetworkModel:
    """Return the network in a document that was read from `path`."""
    if isinstance(document, dict):
        document = {**document, **over}
    file = checked(NetworkFile, {} if document is None else document, path)
    unused = sorted((file.model_fields_set & _SHAPES) - _USES[file.topology])
    if unused:
        raise RotaError(f"{path}: a {file.topology.value} network has no field {unused[0]!r}; leave it out")
    try:
        nodes = [name for entry in file.nodes for name in expand_names(entry, "nodes")] or list(cluster_nodes)
        if not nodes:
            raise RotaError("it names no nodes; list them under nodes, or give the cluster as well")
        return _model(file, _topology(file, nodes), path)
    except RotaError as error:
        text = str(error)
        raise error if text.startswith(str(path)) else RotaError(f"{path}: {text}") from None


def _model(file: NetworkFile, topology: NetworkTopology, path: Path) -> NetworkModel:
    tables = {ranks: read_measured_table(path.parent / name) for ranks, name in file.inside.items()}
    return NetworkModel(
        topology=topology,
        source=str(path),
        ecmp=file.routing == "ecmp",
        seed=file.seed,
        message_s=file.message_latency,
        efficiency=file.efficiency,
        inside=fit_table(tables) if tables else None,
        models={name: _demand(name, entry) for name, entry in file.models.items()},
        usual=None if file.default is None else _demand("default", file.default),
        alignment=file.phases,
        mechanism=file.between,
        priority_levels=file.priority_levels,
        interference=MemoryInterference(
            on_communication=file.interference.communication, on_computing=file.interference.computing
        ),
        interface=file.interface or "",
        adapters=file.adapters or "",
    )


def _demand(name: str, entry: IterationEntry) -> IterationDemand:
    known = model_demand(name, {})
    if known is None and (entry.compute is None or entry.bytes is None):
        raise RotaError(f"models.{name}: it needs compute and bytes, since no model of that name is known")
    usual = known or IterationDemand(compute_s=0.0, bytes=0.0)
    return IterationDemand(
        compute_s=usual.compute_s if entry.compute is None else entry.compute,
        bytes=usual.bytes if entry.bytes is None else entry.bytes,
        overlap=usual.overlap if entry.overlap is None else entry.overlap,
        collective=entry.collective or usual.collective,
        memory_pressure=usual.memory_pressure if entry.memory_pressure is None else entry.memory_pressure,
    )


def _topology(file: NetworkFile, nodes: Sequence[str]) -> NetworkTopology:
    rate = file.link / BITS
    island = fabrics.NO_ISLAND
    if file.island is not None:
        entry = file.island
        island = fabrics.IslandSpec(devices=entry.gpus, bytes_per_s=entry.link / BITS, latency_s=entry.latency)
    given = {name: getattr(file, name) for name in _USES[file.topology] if getattr(file, name) is not None}
    given.pop("island", None)
    match file.topology:
        case TopologyKind.FAT_TREE:
            return fabrics.fat_tree(nodes, link_bytes_per_s=rate, latency_s=file.latency, island=island, **given)
        case TopologyKind.RAIL:
            inside = island if file.island is not None else None
            return fabrics.rail_optimised(nodes, link_bytes_per_s=rate, latency_s=file.latency, island=inside, **given)
        case TopologyKind.BIGRAPH:
            trunk = given.pop("trunk", None)
            return fabrics.bigraph(
                nodes,
                link_bytes_per_s=rate,
                latency_s=file.latency,
                island=island,
                trunk_bytes_per_s=None if trunk is None else trunk / BITS,
                **given,
            )
        case TopologyKind.TORUS:
            if file.shape is None:
                raise RotaError("a torus needs its shape, such as shape: [4, 4, 8]")
            return fabrics.torus(nodes, link_bytes_per_s=rate, latency_s=file.latency, island=island, shape=file.shape)
        case TopologyKind.LINKS:
            return _listed(file, nodes, island)


def _listed(file: NetworkFile, nodes: Sequence[str], island: fabrics.IslandSpec) -> NetworkTopology:
    """Return the links of a file one by one; a device that a link names becomes an endpoint of its node."""
    if not file.links:
        raise RotaError("a network of links needs at least one under links")
    cables: list[Sequence[NetworkLink]] = [cable for node in nodes for cable in island.links(node)]
    for entry in file.links:
        one, other = entry.between
        rate = (file.link if entry.rate is None else entry.rate) / BITS
        latency_s = file.latency if entry.latency is None else entry.latency
        both = duplex(one, other, rate, latency_s)
        cables.append(both if entry.duplex else both[:1])
    named = {name for cable in cables for link in cable for name in (link.source, link.target)}
    lonely = [node for node in nodes if node not in named]
    if lonely and len(nodes) > 1:
        raise RotaError(f"node {lonely[0]!r} has no link; {did_you_mean(lonely[0], sorted(named))}, or add one")
    return NetworkTopology(
        nodes=tuple(nodes),
        links=joined(cables),
        endpoints=tuple(map(island.endpoints, nodes)),
        nodes_forward=file.nodes_forward,
        kind="links",
    )


def network_from_spec(spec: str, cluster_nodes: Sequence[str]) -> NetworkModel:
    """Return the network of `FILE[:between=NAME,phases=NAME,seed=N]`, or of the file's contents as JSON."""
    if spec.startswith("{"):
        return network_from_document(parse_json(spec, "network"), Path("network"), cluster_nodes)
    file, _, options = spec.partition(":")
    over: dict[str, object] = {}
    for part in options.split(",") if options else []:
        key, found, value = part.partition("=")
        if not found or key not in _OPTIONS:
            raise RotaError(f"network {spec!r}: unknown option {part!r}; {did_you_mean(key, _OPTIONS)}")
        over[key] = int(value) if key == "seed" and value.lstrip("-").isdigit() else value
    return read_network_file(Path(file), cluster_nodes, **over)
