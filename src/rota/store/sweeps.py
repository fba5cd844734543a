"""The tables of sweeps and their trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, Row, delete, func, insert, select

from rota.store.schema import sweeps, trials

Json = dict[str, Any]
RUNNING = "running"
"""The state of a sweep that has not ended."""


def write_sweeps(
    connection: Connection, rows: Sequence[Json], trial_rows: Sequence[Json], seal: Callable[[str, str], str]
) -> None:
    """Write sweeps and trials as they are now, new or changed, as part of a transaction; the last of each counts."""
    for row in {row["id"]: row for row in rows}.values():
        connection.execute(delete(sweeps).where(sweeps.c.id == row["id"]))
        connection.execute(insert(sweeps), {**row, "job": seal(row["job"], row["id"])})
    latest = list({(row["sweep_id"], row["number"]): row for row in trial_rows}.values())
    for row in latest:
        same = (trials.c.sweep_id == row["sweep_id"]) & (trials.c.number == row["number"])
        connection.execute(delete(trials).where(same))
    if latest:
        connection.execute(insert(trials), latest)


class SweepRecords:
    """Read access to the sweeps in the database, from any thread, and their retention."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def page(
        self, *, tenants: Sequence[str] | None, live_only: bool, limit: int, owner: str | None = None
    ) -> list[Row[Any]]:
        """Return sweeps, newest first."""
        wanted = select(sweeps).order_by(sweeps.c.seq.desc()).limit(limit)
        if owner is not None:
            wanted = wanted.where(sweeps.c.owner == owner)
        if tenants is not None:
            wanted = wanted.where(sweeps.c.tenant.in_(list(tenants)))
        if live_only:
            wanted = wanted.where(sweeps.c.state == RUNNING)
        with self._engine.connect() as connection:
            return list(connection.execute(wanted).all())

    def one(self, sweep_id: str) -> Row[Any] | None:
        """Return a sweep, or None."""
        with self._engine.connect() as connection:
            return connection.execute(select(sweeps).where(sweeps.c.id == sweep_id)).first()

    def trials(self, sweep_id: str) -> list[Row[Any]]:
        """Return the trials of a sweep in order."""
        wanted = select(trials).where(trials.c.sweep_id == sweep_id).order_by(trials.c.number)
        with self._engine.connect() as connection:
            return list(connection.execute(wanted).all())

    def of_jobs(self, job_ids: Sequence[str]) -> dict[str, str]:
        """Return the sweeps of those jobs that are trials, by job."""
        wanted = select(trials.c.job_id, trials.c.sweep_id).where(trials.c.job_id.in_(list(job_ids)))
        with self._engine.connect() as connection:
            return {row.job_id: row.sweep_id for row in connection.execute(wanted)}

    def live(self) -> list[Row[Any]]:
        """Return the sweeps that have not ended, oldest first."""
        with self._engine.connect() as connection:
            wanted = select(sweeps).where(sweeps.c.state == RUNNING).order_by(sweeps.c.seq)
            return list(connection.execute(wanted).all())

    def next_seq(self) -> int:
        """Return the sequence number of the next sweep."""
        with self._engine.connect() as connection:
            last = connection.execute(select(func.max(sweeps.c.seq))).scalar()
        return 1 if last is None else int(last) + 1

    def drop_before(self, at_s: float) -> None:
        """Delete sweeps that ended before a time, but not the newest, from which numbers continue."""
        newest = select(func.max(sweeps.c.seq)).scalar_subquery()
        old = select(sweeps.c.id).where(sweeps.c.ended_s < at_s, sweeps.c.seq < newest)
        with self._engine.begin() as connection:
            connection.execute(delete(trials).where(trials.c.sweep_id.in_(old)))
            connection.execute(delete(sweeps).where(sweeps.c.ended_s < at_s, sweeps.c.seq < newest))
