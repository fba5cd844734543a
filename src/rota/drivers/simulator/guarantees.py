"""Refuses a cluster whose guarantees the tenancy can't keep, before anything depends on it."""

from __future__ import annotations

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.placement import style
from rota.tenancy import allocator, refuse_unknown
from rota.tenancy.audit import refuse_broken_shares


def refuse_broken_guarantees(cluster: Cluster, tenancy: str, source: str) -> None:
    """Raise `RotaError` naming `source` where the cluster's guarantees can't be kept."""
    refuse_unknown(tenancy)
    try:
        allocator(tenancy, style("any"), cluster)
        refuse_broken_shares(cluster, tenancy)
    except RotaError as error:
        raise RotaError(f"{source}: {error}") from error
