"""Faults in shares by count: `rota check` lists them, and a tenancy that would have to keep the shares refuses them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType
from rota.core.model.tenants import ANY_TYPE, TenantPlan


def audit_tenants(cluster: Cluster) -> list[str]:
    """One line for each finding, beginning with the path of the field."""
    if cluster.tenants is None:
        return []
    return [*_unknown_types(cluster, cluster.tenants), *_overcommitment(cluster, cluster.tenants)]


def refuse_broken_shares(cluster: Cluster, tenancy: str) -> None:
    """Refuse shares that can't all be satisfied at once, naming the fields, where the tenancy would have to keep them.

    Called when shares are stated. Nodes that are lost while a manager runs do not invalidate them.
    """
    broken = audit_tenants(cluster) if tenancy == "quota" else []
    if broken:
        raise RotaError("; ".join(broken))


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
        parts = {name: share.guaranteed for name, share in plan.shares.items() if share.parent == parent}
        if not has:
            continue
        promised = _sums(parts.values())
        for kind, amount in promised.items():
            if kind in has and amount > has[kind]:
                where = "tenants" if parent is None else f"tenants.{parent}"
                what = "devices" if kind == ANY_TYPE else f"of {kind!r}"
                above = "the cluster has" if parent is None else "it has"
                whose = ", ".join(name for name, share in parts.items() if kind == ANY_TYPE or kind in share)
                yield f"{where}: the shares of {whose} add up to {amount} {what}; {above} {has[kind]}"


def _sums(shares: Iterable[Mapping[DeviceType, int]]) -> dict[DeviceType, int]:
    """Guaranteed devices by type, and of all types together."""
    sums: dict[DeviceType, int] = {}
    for share in shares:
        typed = sum(amount for kind, amount in share.items() if kind != ANY_TYPE)
        for kind, amount in share.items():
            if kind != ANY_TYPE:
                sums[kind] = sums.get(kind, 0) + amount
        sums[ANY_TYPE] = sums.get(ANY_TYPE, 0) + max(typed, share.get(ANY_TYPE, 0))
    return sums
