"""The table of jobs that a budget holds, with the reason in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, select

from rota.store.schema import budget_holds

Json = dict[str, Any]


def write_holds(connection: Connection, holds: Mapping[str, Json | None]) -> None:
    """Write or remove (None) the holds of jobs, as part of a transaction."""
    for job_id, hold in holds.items():
        connection.execute(delete(budget_holds).where(budget_holds.c.job_id == job_id))
        if hold is not None:
            connection.execute(insert(budget_holds), {"job_id": job_id, **hold})


class HoldRecords:
    """Read access to the holds of budgets."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def all(self) -> dict[str, tuple[str, str]]:
        """Return the budget and the reason of every held job."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(budget_holds)).all()
        return {row.job_id: (row.budget, row.why) for row in rows}
