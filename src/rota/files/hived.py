"""HiveD's own files as they are: `physicalCluster` and `virtualClusters`, also inside OpenPAI's services file.

What HiveD does not read itself (addresses of Kubernetes, ports) is accepted and left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from rota.core.errors import RotaError
from rota.core.model.cells import (
    LEAF_LEVEL,
    CellEntry,
    CellPlan,
    CellType,
    CellTypeName,
    PinnedId,
    Quota,
    SkuSize,
    TenantCells,
)
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import DeviceType, NodeId, TenantId
from rota.files.document import read_document
from rota.files.quantities import NotAQuantity, parse_bytes, parse_cpus
from rota.files.shape import FileModel, checked
from rota.files.yaml_input import parse_yaml

_WRAPPER = "hivedscheduler"


def _bytes(value: object) -> int:
    try:
        return parse_bytes(value)
    except NotAQuantity as error:
        raise ValueError(str(error)) from error


def _cpus(value: object) -> int:
    try:
        return parse_cpus(value)
    except NotAQuantity as error:
        raise ValueError(str(error)) from error


def _nothing_is_empty(value: object) -> object:
    """A key with nothing after it (`virtualCells:`) means an empty list."""
    return () if value is None else value


Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(strict=True, ge=0)]
Positive = Annotated[int, Field(strict=True, ge=1)]


class _Sku(FileModel):
    gpu: Count = 1
    cpu: Annotated[int, BeforeValidator(_cpus)] = 0
    memory: Annotated[int, BeforeValidator(_bytes)] = 0


class _CellType(FileModel):
    child: Name = Field(validation_alias="childCellType")
    children: Positive = Field(validation_alias="childCellNumber")
    is_node: bool = Field(default=False, validation_alias="isNodeLevel", strict=True)


class _Cell(FileModel):
    type: Name | None = Field(default=None, validation_alias="cellType")
    address: Name | None = Field(default=None, validation_alias="cellAddress")
    pinned: Name | None = Field(default=None, validation_alias=AliasChoices("pinnedCellId", "reservationId"))
    children: tuple[_Cell, ...] | None = Field(default=None, validation_alias="cellChildren")


class _Physical(FileModel):
    skus: dict[Name, _Sku] = Field(default={}, validation_alias="skuTypes")
    types: dict[Name, _CellType] = Field(validation_alias="cellTypes")
    cells: Annotated[tuple[_Cell, ...], Field(min_length=1, validation_alias="physicalCells")]


class _Quota(FileModel):
    path: Name = Field(validation_alias="cellType")
    cells: Count = Field(validation_alias="cellNumber")


class _Pinned(FileModel):
    id: Name = Field(validation_alias=AliasChoices("pinnedCellId", "reservationId"))


class _Tenant(FileModel):
    quotas: Annotated[tuple[_Quota, ...], BeforeValidator(_nothing_is_empty)] = Field(
        default=(), validation_alias="virtualCells"
    )
    pinned: Annotated[tuple[_Pinned, ...], BeforeValidator(_nothing_is_empty)] = Field(
        default=(), validation_alias=AliasChoices("pinnedCells", "reservedCells")
    )


class _HivedFile(FileModel):
    physical: _Physical = Field(validation_alias="physicalCluster")
    tenants: dict[Name, _Tenant] = Field(default={}, validation_alias="virtualClusters")
    kube_address: Any = Field(default=None, validation_alias="kubeApiServerAddress")
    kube_config: Any = Field(default=None, validation_alias="kubeConfigFilePath")
    web_address: Any = Field(default=None, validation_alias="webServerAddress")
    bind_threshold: Any = Field(default=None, validation_alias="forcePodBindThreshold")
    block_ms: Any = Field(default=None, validation_alias="waitingPodSchedulingBlockMilliSec")


def is_hived(document: object) -> bool:
    """Whether a file's values are HiveD's, wrapped or not."""
    return isinstance(document, Mapping) and ("physicalCluster" in document or _WRAPPER in document)


def read_cell_plan(path: Path) -> CellPlan:
    """The guarantees in a HiveD file."""
    return plan_from(read_document(path), path)


def plan_from(document: object, path: Path) -> CellPlan:
    """The promises in a document that was read from `path`."""
    file = checked(_HivedFile, _unwrapped(document, path), path)
    return CellPlan(
        types={
            CellTypeName(name): CellType(child=CellTypeName(kind.child), children=kind.children, is_node=kind.is_node)
            for name, kind in file.physical.types.items()
        },
        physical=tuple(_entry(cell) for cell in file.physical.cells),
        tenants={TenantId(name): _tenant(tenant) for name, tenant in file.tenants.items()},
        skus={
            CellTypeName(name): SkuSize(gpu=sku.gpu, cpu_milli=sku.cpu, memory_bytes=sku.memory)
            for name, sku in file.physical.skus.items()
        },
    )


def _unwrapped(document: object, path: Path) -> object:
    """What OpenPAI's services file hands to HiveD: text in `hivedscheduler.config`, or the values themselves."""
    if not isinstance(document, Mapping) or _WRAPPER not in document:
        return document
    service = document[_WRAPPER]
    inner = service.get("config") if isinstance(service, Mapping) else None
    if inner is None:
        raise RotaError(f"{path}: {_WRAPPER}.config is missing; HiveD's own configuration belongs there")
    return parse_yaml(inner, path) if isinstance(inner, str) else inner


def _entry(cell: _Cell) -> CellEntry:
    return CellEntry(
        type=None if cell.type is None else CellTypeName(cell.type),
        address=cell.address,
        pinned=None if cell.pinned is None else PinnedId(cell.pinned),
        children=None if cell.children is None else tuple(_entry(child) for child in cell.children),
    )


def _tenant(tenant: _Tenant) -> TenantCells:
    quotas = []
    for quota in tenant.quotas:
        parts = tuple(CellTypeName(part) for part in quota.path.split("."))
        quotas.append(Quota(chain=parts[0], type=parts[-1], cells=quota.cells, path=parts))
    return TenantCells(quotas=tuple(quotas), pinned=tuple(PinnedId(pinned.id) for pinned in tenant.pinned))


def cluster_from(plan: CellPlan) -> Cluster:
    """The machines of a plan as nodes, with the plan. A machine with devices of several types is several nodes."""
    nodes: dict[NodeId, Node] = {}
    for position, entry in enumerate(plan.physical):
        where = f"physicalCluster.physicalCells[{position}]"
        if entry.type is None or entry.type not in plan.types:
            raise RotaError(f"{where}.cellType is {entry.type!r}, which cellTypes lacks")
        ladder = plan.ladder(entry.type)
        node_level = plan.node_level(entry.type)
        top = f"{entry.type}#{position}"
        for machine, rack in _machines(plan, entry, ladder, len(ladder), node_level, top, where):
            name = machine.address or ""
            node_id = NodeId(name) if NodeId(name) not in nodes else NodeId(f"{name}+{ladder[0]}")
            if node_id in nodes:
                raise RotaError(f"{where}: node {name!r} is listed twice with the same devices")
            groups = _groups(plan, machine, ladder, node_level)
            nodes[node_id] = Node(
                id=node_id,
                device_type=DeviceType(ladder[0]),
                devices=sum(groups),
                sockets=groups if len(groups) > 1 else (),
                rack=rack,
                domain=top,
            )
    return Cluster(nodes=tuple(nodes.values()), cells=plan)


def _machines(
    plan: CellPlan,
    entry: CellEntry,
    ladder: tuple[CellTypeName, ...],
    level: int,
    node_level: int,
    rack: str,
    where: str,
) -> Iterator[tuple[CellEntry, str]]:
    """The node-level cells below an entry, each with the name of what it stands in."""
    if level == node_level:
        if entry.address is None:
            raise RotaError(f"{where}.cellAddress is missing; a node's address is its name")
        yield entry, rack
        return
    if level < node_level:
        raise RotaError(f"{where}.cellType is part of a node; top cells are nodes or larger")
    for index, child in enumerate(_children(plan, entry, ladder, level)):
        below = f"{rack}/{index}" if level - 1 > node_level else rack
        inner = f"{where}.cellChildren[{index}]"
        yield from _machines(plan, child, ladder, level - 1, node_level, below, inner)


def _groups(plan: CellPlan, entry: CellEntry, ladder: tuple[CellTypeName, ...], level: int) -> tuple[int, ...]:
    """How many devices hang off each part of a machine."""
    return tuple(_devices(plan, child, ladder, level - 1) for child in _children(plan, entry, ladder, level))


def _devices(plan: CellPlan, entry: CellEntry, ladder: tuple[CellTypeName, ...], level: int) -> int:
    if level == LEAF_LEVEL:
        return 1
    return sum(_devices(plan, child, ladder, level - 1) for child in _children(plan, entry, ladder, level))


def _children(plan: CellPlan, entry: CellEntry, ladder: tuple[CellTypeName, ...], level: int) -> tuple[CellEntry, ...]:
    if entry.children is not None:
        return entry.children
    return (CellEntry(),) * plan.types[ladder[level - 1]].children
