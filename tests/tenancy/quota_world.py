"""Worlds of tenants with quotas."""

from __future__ import annotations

from typing import Any

from builders import World
from rota.core.model.cluster import Cluster
from rota.core.model.job import TenantId
from rota.core.model.tenants import ANY_TYPE, Share, TenantPlan


def world(
    shares: dict[str, Share], *, gpus: int = 4, nodes: int = 2, policy: str = "fifo:backfill=true", **rules: Any
) -> World:
    plain = Cluster.uniform(("gpu", gpus * nodes, gpus))
    plan = TenantPlan(shares={TenantId(name): share for name, share in shares.items()}, **rules)
    return World(of=Cluster(nodes=plain.nodes, tenants=plan), tenancy="quota", policy=policy)


def own(gpus: int, **fields: Any) -> Share:
    return Share(guaranteed={ANY_TYPE: gpus}, **fields)
