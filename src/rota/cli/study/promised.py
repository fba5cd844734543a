"""A cluster as an option names it, refused if the tenancy can't keep what it promises."""

from __future__ import annotations

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster


def refuse_broken_promises(cluster: Cluster, tenancy: str, source: str) -> None:
    """Refuse what can't be kept before anything depends on it, naming where it was said."""
    from rota.placement import style
    from rota.tenancy import allocator, refuse_unknown
    from rota.tenancy.audit import refuse_broken_shares

    refuse_unknown(tenancy)
    try:
        allocator(tenancy, style("any"), cluster)
        refuse_broken_shares(cluster, tenancy)
    except RotaError as error:
        raise RotaError(f"{source}: {error}") from error
