"""The table of used device time, by hour, tenant, user, project and device type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.dialects import postgresql, sqlite

from rota.store.schema import usage

Json = dict[str, Any]
HOUR_S = 3600
_KEY = ("hour_s", "tenant", "owner", "project", "device_type")
_AMOUNTS = ("device_s", "energy_j", "jobs")


class UsageRow(NamedTuple):
    """What one user's jobs of one project used of one device type in one hour."""

    hour_s: int
    """When the hour begins, in seconds of Unix time."""
    tenant: str
    owner: str
    project: str
    device_type: str
    device_s: float = 0.0
    energy_j: float = 0.0
    jobs: int = 0
    """Jobs that ended in it."""


def write_usage(connection: Connection, rows: Sequence[UsageRow]) -> None:
    """Add to the hours, as part of a transaction."""
    added: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        amounts = added.setdefault(row[: len(_KEY)], [0.0, 0.0, 0])
        for at, amount in enumerate((row.device_s, row.energy_j, row.jobs)):
            amounts[at] += amount
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    insert = dialect.insert(usage)
    upsert = insert.on_conflict_do_update(
        index_elements=list(_KEY), set_={name: usage.c[name] + insert.excluded[name] for name in _AMOUNTS}
    )
    connection.execute(
        upsert,
        [dict(zip((*_KEY, *_AMOUNTS), (*key, *amounts), strict=True)) for key, amounts in sorted(added.items())],
    )


class UsageRecords:
    """Read access to the used device time, from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def between(
        self, since_s: float, before_s: float, *, tenants: Sequence[str] | None = None, owner: str | None = None
    ) -> list[UsageRow]:
        """Return the rows of the hours that begin in a span of Unix time, oldest first."""
        wanted = select(*(usage.c[name] for name in (*_KEY, *_AMOUNTS))).where(
            usage.c.hour_s >= since_s, usage.c.hour_s < before_s
        )
        if tenants is not None:
            wanted = wanted.where(usage.c.tenant.in_(list(tenants)))
        if owner is not None:
            wanted = wanted.where(usage.c.owner == owner)
        with self._engine.connect() as connection:
            return [UsageRow(*row) for row in connection.execute(wanted.order_by(usage.c.hour_s)).all()]

    def used_s(
        self, since_s: float, *, tenant: str, owner: str | None = None, project: str | None = None
    ) -> dict[tuple[int, str], float]:
        """Return device-seconds by hour and device type since a moment of Unix time."""
        wanted = select(usage.c.hour_s, usage.c.device_type, func.sum(usage.c.device_s)).where(
            usage.c.hour_s >= since_s, usage.c.tenant == tenant
        )
        if owner is not None:
            wanted = wanted.where(usage.c.owner == owner)
        if project is not None:
            wanted = wanted.where(usage.c.project == project)
        with self._engine.connect() as connection:
            found = connection.execute(wanted.group_by(usage.c.hour_s, usage.c.device_type)).all()
        return {(int(hour_s), str(kind)): float(amount) for hour_s, kind, amount in found}
