"""Guarantees by count, also from a file with cells: for tenancy `quota`."""

from __future__ import annotations

from rota.core.errors import RotaError
from rota.core.model.cells import CellPlan
from rota.core.model.job import DeviceType, TenantId
from rota.core.model.tenants import Share, TenantPlan
from rota.tenancy.cells.build import build


def stated_shares(cells: CellPlan | None, tenants: TenantPlan | None) -> TenantPlan:
    """Shares as a file states them, or the devices of a HiveD file's cells by count."""
    if tenants is not None:
        return tenants
    if cells is None:
        raise RotaError("tenancy 'quota' needs a cluster file with a section `tenants`, or HiveD's `virtualClusters`")
    return _shares_of(cells)


def _shares_of(plan: CellPlan) -> TenantPlan:
    """As many devices of each type for every tenant as its cells have, pinned ones included."""
    forest = build(plan)
    shares: dict[TenantId, Share] = {}
    for tenant, estate in forest.estates.items():
        owned: dict[DeviceType, int] = {}
        for roots in (*estate.roots.values(), estate.pinned.values()):
            for root in roots:
                kind = DeviceType(forest.chains[root.chain].leaf_type)
                owned[kind] = owned.get(kind, 0) + root.leaves
        shares[tenant] = Share(guaranteed=owned)
    return TenantPlan(shares=shares)
