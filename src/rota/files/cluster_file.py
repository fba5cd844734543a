"""The cluster file: nodes one by one, as ranges of names, or by number; racks and their domains."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import DeviceType, NodeId
from rota.files.cluster import MOST_NODES
from rota.files.document import read_document
from rota.files.hived import cluster_from, is_hived, plan_from
from rota.files.quantities import NotAQuantity, parse_bits_per_second, parse_bytes, parse_cpus
from rota.files.shape import FileModel, checked, field_path
from rota.files.tenants import FairnessEntry, TenantEntry, tenant_plan
from rota.scenario.partitions import NODE_LABEL, YES

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_PLAIN = Node(id=NodeId("plain"))
"""Stands for what holds when the file says nothing."""


def _amount(parse: Callable[[object], int]) -> BeforeValidator:
    def read(value: object) -> int:
        try:
            return parse(value)
        except NotAQuantity as error:
            raise ValueError(str(error)) from error

    return BeforeValidator(read)


Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(strict=True, ge=0)]
Positive = Annotated[int, Field(strict=True, ge=1)]
Bytes = Annotated[int, _amount(parse_bytes)]
Cpus = Annotated[int, _amount(parse_cpus)]
BitsPerSecond = Annotated[int, _amount(parse_bits_per_second)]


class NodeEntry(FileModel):
    """One line of `nodes`: one node, a range of them, or a number of alike ones without names."""

    gpus: Count
    name: Name | None = None
    count: Positive | None = None
    type: Name = "gpu"
    sockets: tuple[Count, ...] = ()
    gpu_memory: Bytes | None = None
    cpus: Cpus | None = None
    memory: Bytes | None = None
    network: BitsPerSecond | None = None
    disk: BitsPerSecond | None = None
    rack: Name | None = None
    domain: Name | None = None
    partitions: tuple[Name, ...] = ()


class ClusterFile(FileModel):
    """The whole file. `racks` says in which domain each rack is, once for all of its nodes.

    `network` names the file of the network between the nodes, relative to this one; simulations read it.
    """

    nodes: Annotated[tuple[NodeEntry, ...], Field(min_length=1)]
    racks: dict[Name, Name] = {}
    tenants: dict[Name, TenantEntry] = {}
    fairness: FairnessEntry = FairnessEntry()
    network: Name | None = None


def read_cluster_file(path: Path) -> Cluster:
    """The cluster that a YAML or JSON file describes."""
    return cluster_from_document(read_document(path), path)


def cluster_from_document(document: object, path: Path) -> Cluster:
    """The cluster in a document that was read from `path`, ours or HiveD's."""
    file = None if is_hived(document) else checked(ClusterFile, document, path)
    plan = plan_from(document, path) if file is None else None
    try:
        if plan is not None:
            return cluster_from(plan)
        assert file is not None
        tenants = tenant_plan(file.tenants, file.fairness) if file.tenants else None
        return Cluster(nodes=tuple(_nodes(file)), tenants=tenants)
    except RotaError as error:
        raise RotaError(f"{path}: {error}") from error


def _nodes(file: ClusterFile) -> Iterator[Node]:
    names = [_names(entry, field_path(("nodes", index))) for index, entry in enumerate(file.nodes)]
    total = sum(len(some) if some else entry.count or 1 for some, entry in zip(names, file.nodes, strict=True))
    if total > MOST_NODES:
        raise RotaError(f"the cluster has {total} nodes; the most is {MOST_NODES}")
    taken = {name for some in names for name in some}
    numbered = (name for number in itertools.count(1) if (name := f"n{number}") not in taken)
    for entry, given in zip(file.nodes, names, strict=True):
        for name in given or itertools.islice(numbered, entry.count or 1):
            yield _node(entry, name, file.racks)


def _node(entry: NodeEntry, name: str, domain_by_rack: dict[str, str]) -> Node:
    # A node with a domain but no rack is in a rack of that domain, not in the rack of all nodes.
    rack = entry.rack or entry.domain or _PLAIN.rack
    domain = entry.domain or domain_by_rack.get(rack) or _PLAIN.domain
    return Node(
        id=NodeId(name),
        device_type=DeviceType(entry.type),
        devices=entry.gpus,
        sockets=entry.sockets,
        device_memory_bytes=entry.gpu_memory,
        cpu_milli=entry.cpus,
        memory_bytes=entry.memory,
        network_bps=entry.network,
        disk_bps=entry.disk,
        rack=rack,
        domain=domain,
        labels=tuple((f"{NODE_LABEL}{partition}", YES) for partition in entry.partitions),
    )


def network_spec(path: Path) -> str | None:
    """The network file that a cluster file names, if it does."""
    document = read_document(path)
    if is_hived(document) or not isinstance(document, dict) or document.get("network") is None:
        return None
    file = checked(ClusterFile, document, path)
    return str(path.parent / str(file.network))


def _names(entry: NodeEntry, field: str) -> list[str]:
    """The names that the entry gives its nodes, `b[1-3]` being three; none when they are to be numbered."""
    if entry.name is None:
        return []
    if entry.count is not None:
        raise RotaError(
            f"{field} has a name ({entry.name!r}) and a count ({entry.count}); "
            f"write the name as a range, like '{entry.name}[1-{entry.count}]'"
        )
    return expand_names(entry.name, field)


def expand_names(name: str, field: str) -> list[str]:
    """The names that a range such as `b[1-3]` stands for."""
    pieces = _BRACKETS.split(name)
    if any(char in piece for piece in pieces[::2] for char in "[]"):
        raise RotaError(f"{field}.name is {name!r}; its brackets do not match")
    choices = [[piece] if index % 2 == 0 else _span(piece, name, field) for index, piece in enumerate(pieces)]
    if (nodes := math.prod(map(len, choices))) > MOST_NODES:
        raise RotaError(f"{field}.name is {name!r}, which makes {nodes} nodes; the most is {MOST_NODES}")
    return ["".join(parts) for parts in itertools.product(*choices)]


def _span(text: str, name: str, field: str) -> list[str]:
    """The numbers in `1-3,7`; leading zeros are kept."""
    numbers: list[str] = []
    for part in text.split(","):
        found = _SPAN.fullmatch(part.strip())
        first, last = (found[1], found[2] or found[1]) if found else ("1", "0")
        if not 0 <= int(last) - int(first) < MOST_NODES:
            raise RotaError(f"{field}.name is {name!r}; a range is written like [1-16]")
        numbers.extend(str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
    return numbers
