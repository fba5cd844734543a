"""Guarantees in cells: types of cells, the physical tree, and which cells each tenant owns.

Plain values, as a file states them and checked only in so far as the words mean anything. Whether the
guarantees can be kept is checked where the trees are built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.job import TenantId

CellTypeName = NewType("CellTypeName", str)
PinnedId = NewType("PinnedId", str)

LEAF_LEVEL = 1
"""The level of a single device; a cell's level is one above its children's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellType:
    """What a cell of a type is made of. A type that no `CellType` describes is a device type."""

    child: CellTypeName
    children: int
    is_node: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEntry:
    """One physical cell as listed. What is not stated is inferred: the children's number, addresses by position."""

    type: CellTypeName | None = None
    address: str | None = None
    pinned: PinnedId | None = None
    children: tuple[CellEntry, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A number of alike cells that a tenant owns. `chain` is the type of the top cells they are cut from."""

    chain: CellTypeName
    type: CellTypeName
    cells: int
    path: tuple[CellTypeName, ...] = ()
    """The whole dotted path as written; only its ends count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantCells:
    """All that a tenant owns: cells by type, and cells that are pinned to one place."""

    quotas: tuple[Quota, ...] = ()
    pinned: tuple[PinnedId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkuSize:
    """What stands for one device when a job asks for CPUs and memory too."""

    gpu: int = 1
    cpu_milli: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPlan:
    """Everything that a file states about cells."""

    types: Mapping[CellTypeName, CellType]
    physical: tuple[CellEntry, ...]
    tenants: Mapping[TenantId, TenantCells]
    skus: Mapping[CellTypeName, SkuSize] = field(default_factory=dict)

    def ladder(self, chain: CellTypeName) -> tuple[CellTypeName, ...]:
        """The types of a chain from the device up, so that `ladder[level - 1]` is a level's type."""
        types: list[CellTypeName] = [chain]
        while types[-1] in self.types:
            child = self.types[types[-1]].child
            if child in types:
                raise RotaError(f"cellTypes.{child} contains itself; types must form a tree")
            types.append(child)
        return tuple(reversed(types))

    def node_level(self, chain: CellTypeName) -> int:
        """The level of a chain's nodes."""
        ladder = self.ladder(chain)
        marked = [
            level for level, name in enumerate(ladder, LEAF_LEVEL) if name in self.types and self.types[name].is_node
        ]
        if len(marked) != 1:
            found = "none" if not marked else f"{len(marked)}"
            raise RotaError(f"cellTypes: of the types from {ladder[-1]} down, {found} are nodes; exactly one must be")
        return marked[0]

    def unknown_type(self, name: str) -> str:
        """The end of an error message about a type that is not described."""
        return did_you_mean(name, self.types)
