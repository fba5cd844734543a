"""The table of forecasts: what was predicted for a job, and what then happened."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, Row, bindparam, delete, func, insert, select, update

from rota.store.schema import forecasts, jobs

Json = dict[str, Any]
MOST_KEPT = 200_000
"""Forecasts that are kept at most; the oldest are deleted first."""
_NEW = insert(forecasts)
_OUTCOME = (
    update(forecasts)
    .where(forecasts.c.job_id == bindparam("key"))
    .values(state=bindparam("state"), started_s=bindparam("started_s"), ended_s=bindparam("ended_s"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRange:
    """A predicted moment: its median, its range as computed, and the range as it was given."""

    median_s: float
    low_s: float
    high_s: float | None
    """None where it is beyond the horizon."""
    given_low_s: float
    given_high_s: float | None

    def encode(self) -> str:
        """The range as JSON."""
        return json.dumps([self.median_s, self.low_s, self.high_s, self.given_low_s, self.given_high_s])

    @classmethod
    def decode(cls, text: str | None) -> StoredRange | None:
        """The range of a column; None where nothing was predicted."""
        if text is None:
            return None
        median_s, low_s, high_s, given_low_s, given_high_s = json.loads(text)
        return cls(median_s=median_s, low_s=low_s, high_s=high_s, given_low_s=given_low_s, given_high_s=given_high_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredForecast:
    """One forecast of a job, and what became of the job."""

    job_id: str
    tenant: str
    cause: str
    """`submission`, or `asked`."""
    policy: str
    basis: str
    """What the forecast rests on."""
    gpus: float
    made_s: float
    start: StoredRange | None
    end: StoredRange | None
    state: str | None = None
    """How the job ended; None if it has not."""
    started_s: float | None = None
    ended_s: float | None = None

    def encode(self) -> Json:
        """The row of a new forecast."""
        return {
            "job_id": self.job_id,
            "tenant": self.tenant,
            "cause": self.cause,
            "policy": self.policy[:256],
            "basis": self.basis[:64],
            "gpus": self.gpus,
            "made_s": self.made_s,
            "start": None if self.start is None else self.start.encode(),
            "end": None if self.end is None else self.end.encode(),
            "state": self.state,
            "started_s": self.started_s,
            "ended_s": self.ended_s,
        }


def write_forecasts(connection: Connection, new: Sequence[Json], outcomes: Sequence[Json]) -> None:
    """Write new forecasts, and the outcomes of jobs, as part of a transaction."""
    if new:
        connection.execute(_NEW, list(new))
    if outcomes:
        connection.execute(_OUTCOME, list(outcomes))


class ForecastRecords:
    """Read access to the forecasts in the database, from any thread, and their retention."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def since(self, at_s: float, *, tenants: Sequence[str] | None = None, limit: int = 50_000) -> list[StoredForecast]:
        """Return the forecasts that were made since a time, oldest first; the newest ones if there are more."""
        wanted = select(forecasts).where(forecasts.c.made_s >= at_s)
        if tenants is not None:
            wanted = wanted.where(forecasts.c.tenant.in_(list(tenants)))
        with self._engine.connect() as connection:
            rows = connection.execute(wanted.order_by(forecasts.c.n.desc()).limit(limit)).all()
        return [_decoded(row) for row in reversed(rows)]

    def scored(self, limit: int) -> list[StoredForecast]:
        """Return the latest forecasts of jobs that have started, in the order in which these started."""
        wanted = select(forecasts).where(forecasts.c.started_s.is_not(None))
        with self._engine.connect() as connection:
            rows = connection.execute(wanted.order_by(forecasts.c.n.desc()).limit(limit)).all()
        found = [_decoded(row) for row in rows]
        return sorted(found, key=lambda each: (each.started_s or 0.0, each.made_s))

    def open(self) -> list[StoredForecast]:
        """Return the forecasts of jobs that have not ended, as far as the forecasts say."""
        with self._engine.connect() as connection:
            rows = connection.execute(
                select(forecasts).where(forecasts.c.state.is_(None)).order_by(forecasts.c.n)
            ).all()
        return [_decoded(row) for row in rows]

    def missed_outcomes(self) -> list[Json]:
        """Return outcomes that the jobs' records have and the forecasts lack: what a crash came before."""
        final = ("succeeded", "failed", "cancelled")
        wanted = (
            select(jobs.c.id, jobs.c.state, jobs.c.started_s, jobs.c.ended_s)
            .join(forecasts, forecasts.c.job_id == jobs.c.id)
            .where(forecasts.c.state.is_(None))
            .distinct()
        )
        with self._engine.connect() as connection:
            return [
                {
                    "key": row.id,
                    "state": row.state if row.state in final else None,
                    "started_s": row.started_s,
                    "ended_s": row.ended_s,
                }
                for row in connection.execute(wanted)
            ]

    def drop_before(self, at_s: float, *, most: int = MOST_KEPT) -> None:
        """Delete forecasts that were made before a time, and the oldest beyond a number."""
        with self._engine.begin() as connection:
            connection.execute(delete(forecasts).where(forecasts.c.made_s < at_s))
            last = connection.execute(select(func.max(forecasts.c.n))).scalar()
            if last is not None:
                connection.execute(delete(forecasts).where(forecasts.c.n <= int(last) - most))


def _decoded(row: Row[Any]) -> StoredForecast:
    return StoredForecast(
        job_id=row.job_id,
        tenant=row.tenant,
        cause=row.cause,
        policy=row.policy,
        basis=row.basis,
        gpus=row.gpus,
        made_s=row.made_s,
        start=StoredRange.decode(row.start),
        end=StoredRange.decode(row.end),
        state=row.state,
        started_s=row.started_s,
        ended_s=row.ended_s,
    )
