"""What is wrong or odd about shares by count: for `rota check`."""

from __future__ import annotations

from collections.abc import Iterator

from rota.core.cluster import Cluster
from rota.core.model import DeviceType
from rota.core.tenants import ANY_TYPE, TenantPlan


def audit_tenants(cluster: Cluster) -> list[str]:
    """One line for each finding, beginning with the path of the field."""
    if cluster.tenants is None:
        return []
    return [*_unknown_types(cluster, cluster.tenants), *_overcommitment(cluster, cluster.tenants)]


def _unknown_types(cluster: Cluster, plan: TenantPlan) -> Iterator[str]:
    known = cluster.devices_by_type
    for name, share in plan.shares.items():
        for field, amounts in (("gpus", share.guaranteed), ("limit", share.limit)):
            for kind in amounts:
                if kind != ANY_TYPE and kind not in known:
                    yield f"tenants.{name}.{field}.{kind}: the cluster has no {kind!r}; it has {', '.join(known)}"


def _overcommitment(cluster: Cluster, plan: TenantPlan) -> Iterator[str]:
    """Shares of one level must not add up to more than the tenant above them has, or than there is."""
    there: dict[DeviceType, int] = {**cluster.devices_by_type, ANY_TYPE: cluster.devices}
    for parent in (None, *plan.shares):
        has = there if parent is None else plan.shares[parent].guaranteed
        promised: dict[DeviceType, int] = {}
        for share in plan.shares.values():
            if share.parent == parent:
                for kind, amount in share.guaranteed.items():
                    promised[kind] = promised.get(kind, 0) + amount
        for kind, amount in promised.items():
            if kind in has and amount > has[kind]:
                above = "the cluster has" if parent is None else f"tenants.{parent} has"
                what = "devices" if kind == ANY_TYPE else f"of {kind!r}"
                yield f"tenants: shares add up to {amount} {what}; {above} {has[kind]}"
