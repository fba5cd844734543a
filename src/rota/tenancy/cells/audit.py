"""Faults in guarantees in cells beyond those that prevent loading: for `rota check`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rota.core.errors import RotaError
from rota.core.model.cells import LEAF_LEVEL, CellEntry, CellPlan, CellTypeName, TenantCells
from rota.core.model.job import TenantId
from rota.tenancy.cells.accounts import CellAccounts


def audit(plan: CellPlan) -> list[str]:
    """One line for each finding, beginning with the path of the field."""
    findings = [*_child_counts(plan), *_pins(plan), *_quotas(plan)]
    try:
        CellAccounts(_with_one_owner_each(plan))
    except RotaError as error:
        fields = {finding.partition(" ")[0] for finding in findings}
        if str(error).partition(" ")[0] not in fields:
            findings.append(str(error))
    return findings


def _child_counts(plan: CellPlan) -> Iterator[str]:
    for position, entry in enumerate(plan.physical):
        if entry.type is not None and entry.type in plan.types:
            yield from _children(plan, entry, entry.type, f"physicalCluster.physicalCells[{position}]")


def _children(plan: CellPlan, entry: CellEntry, kind: CellTypeName, where: str) -> Iterator[str]:
    described = plan.types.get(kind)
    if entry.type is not None and entry.type != kind:
        yield f"{where}.cellType is {entry.type!r}; as part of its parent it is a {kind!r}"
    if described is None or entry.children is None:
        return
    if len(entry.children) != described.children:
        yield (
            f"{where}.cellChildren has {len(entry.children)} entries; a {kind!r} has {described.children} "
            f"(cellTypes.{kind}.childCellNumber)"
        )
    for index, child in enumerate(entry.children):
        yield from _children(plan, child, described.child, f"{where}.cellChildren[{index}]")


def _pins(plan: CellPlan) -> Iterator[str]:
    owners: dict[str, str] = {}
    for tenant, cells in plan.tenants.items():
        for position, pinned in enumerate(cells.pinned):
            where = f"virtualClusters.{tenant}.pinnedCells[{position}].pinnedCellId"
            if pinned in owners:
                yield f"{where} is {pinned!r}, which {owners[pinned]} names too; a pinned cell has one owner"
            owners.setdefault(pinned, where)


def _with_one_owner_each(plan: CellPlan) -> CellPlan:
    """The plan as if only the first owner of each pinned cell were named, so that what else is wrong is found too."""
    owned: set[str] = set()
    tenants: dict[TenantId, TenantCells] = {}
    for tenant, cells in plan.tenants.items():
        own = tuple(pinned for pinned in dict.fromkeys(cells.pinned) if pinned not in owned)
        owned.update(own)
        tenants[tenant] = replace(cells, pinned=own)
    return replace(plan, tenants=tenants)


def _quotas(plan: CellPlan) -> Iterator[str]:
    for tenant, cells in plan.tenants.items():
        levels: list[int] = []
        for position, quota in enumerate(cells.quotas):
            where = f"virtualClusters.{tenant}.virtualCells[{position}].cellType"
            try:
                ladder = plan.ladder(quota.chain)
            except RotaError:
                continue
            if quota.type not in ladder:
                continue
            levels.append(ladder.index(quota.type) + 1)
            expected = tuple(reversed(ladder[levels[-1] - 1 :]))
            if quota.path and quota.path != expected:
                yield f"{where} is {'.'.join(quota.path)!r}; the way down is {'.'.join(expected)!r}"
        if levels and max(levels) == LEAF_LEVEL and not cells.pinned:
            yield (
                f"virtualClusters.{tenant}.virtualCells: all cells are single devices, so no job of it can have a task "
                "of two devices; give it larger cells"
            )
