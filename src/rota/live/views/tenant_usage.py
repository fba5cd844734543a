"""Guarantees of tenants, in devices, and what they hold now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rota.core.model.cluster import Cluster
from rota.core.model.job import OPPORTUNISTIC, WHOLE
from rota.core.model.tenants import ANY_TYPE, Share
from rota.core.state.state import State
from rota.live.loop.boot import Scheduling
from rota.live.loop.control import Control


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantGuarantee:
    """What a tenant may claim at any time."""

    devices: int
    words: str
    """The guarantee as its file states it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantUse:
    """What a tenant holds now, in devices."""

    held: float
    guaranteed: int
    borrowed: float
    """Held beyond the guarantee, or without one."""
    lent: float
    """Guaranteed, not used by the tenant, and lent to others."""
    waiting: int
    running: int


class TenantGuarantees:
    """The current guarantees, recomputed when the cluster changes."""

    def __init__(self, control: Control, scheduling: Scheduling) -> None:
        self._control = control
        self._scheduling = scheduling
        self._known: tuple[Cluster, dict[str, TenantGuarantee]] | None = None

    @property
    def cluster(self) -> Cluster:
        """The current cluster."""
        present = self._control.present
        return self._scheduling.cluster if present is None else present.cluster

    def now(self) -> dict[str, TenantGuarantee]:
        """Return the guarantee of each tenant."""
        cluster = self.cluster
        if self._known is None or self._known[0] is not cluster:
            self._known = (cluster, promises_of(cluster, self._scheduling.tenancy))
        return self._known[1]


def promises_of(cluster: Cluster, tenancy: str) -> dict[str, TenantGuarantee]:
    """Return the guarantees under the tenancy in use."""
    if tenancy == "cells" and cluster.cells is not None:
        from rota.tenancy.cells.build import build
        from rota.tenancy.cells.tree import virtual_devices_of

        estates = build(cluster.cells).estates
        promises = {}
        for tenant, cells in cluster.cells.tenants.items():
            estate = estates[tenant]
            roots = [*(root for roots in estate.roots.values() for root in roots), *estate.pinned.values()]
            words = [f"{quota.cells} × {quota.type}" for quota in cells.quotas]
            words += [f"pinned {name}" for name in cells.pinned]
            devices = sum(1 for root in roots for _ in virtual_devices_of(root))
            promises[str(tenant)] = TenantGuarantee(devices=devices, words=", ".join(words) or "nothing")
        return promises
    if tenancy == "quota":
        from rota.tenancy.quota.stated_shares import stated_shares

        shares = stated_shares(cluster.cells, cluster.tenants).shares
        return {str(name): _counted(share) for name, share in shares.items()}
    return {}


def _counted(share: Share) -> TenantGuarantee:
    words = [f"{count} {'of any type' if kind == ANY_TYPE else kind}" for kind, count in share.guaranteed.items()]
    words += [f"at most {most} {'in all' if kind == ANY_TYPE else kind}" for kind, most in share.limit.items()]
    if share.parent is not None:
        words.append(f"part of {share.parent}")
    return TenantGuarantee(devices=sum(share.guaranteed.values()), words=", ".join(words) or "no guarantee")


def uses_of(state: State, promises: Mapping[str, TenantGuarantee]) -> dict[str, TenantUse]:
    """Return what each tenant holds, of those that hold, wait for or are guaranteed devices."""
    held, lodging, waiting, running = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for live in state.jobs.values():
        if live.state.is_final:
            continue
        if not live.held:
            waiting[live.job.tenant] += 1
            continue
        running[live.job.tenant] += 1
        held[live.job.tenant] += live.gpu_milli
        if live.job.priority == OPPORTUNISTIC:
            lodging[live.job.tenant] += live.gpu_milli
    names = sorted({*promises, *held, *waiting, *running})
    borrowed = {name: _borrowed(held[name], lodging[name], promises.get(name)) for name in names}
    unused = {
        name: max(promises[name].devices * WHOLE - (held[name] - borrowed[name]), 0) if name in promises else 0
        for name in names
    }
    spare = state.inventory.devices * WHOLE - sum(promise.devices for promise in promises.values()) * WHOLE
    lent = max(sum(borrowed.values()) - max(spare, 0), 0) if promises else 0
    idle = sum(unused.values())
    return {
        name: TenantUse(
            held=held[name] / WHOLE,
            guaranteed=promises[name].devices if name in promises else 0,
            borrowed=borrowed[name] / WHOLE if promises else 0.0,
            lent=min(lent * unused[name] / idle, unused[name]) / WHOLE if idle else 0.0,
            waiting=waiting[name],
            running=running[name],
        )
        for name in names
    }


def _borrowed(held: int, lodging: int, promise: TenantGuarantee | None) -> int:
    """Return what is held by opportunistic jobs, or beyond the guarantee."""
    own = 0 if promise is None else promise.devices * WHOLE
    return max(lodging, held - own)
