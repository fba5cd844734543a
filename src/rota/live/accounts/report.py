"""Used device time as a report: grouped by time, tenant, user, project and device type, with its cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rota.live.accounts.prices import J_PER_KWH, Prices
from rota.live.loop.control import Control
from rota.store import clock
from rota.store.accounts.usage import HOUR_S, UsageRow
from rota.store.records import Records

Json = dict[str, Any]
_TIMES = {"hour": "%Y-%m-%dT%H:00Z", "day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}
_FIELDS = {"tenant": "tenant", "user": "owner", "project": "project", "type": "device_type"}
GROUPINGS = (*_TIMES, *_FIELDS)
"""What usage can be grouped by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageQuery:
    """Which usage is asked for. Times are Unix time; None means all."""

    since_s: float
    until_s: float
    tenants: tuple[str, ...] | None = None
    owner: str | None = None
    project: str | None = None

    def has(self, row: UsageRow) -> bool:
        """Whether a row is asked for."""
        return (
            self.since_s <= row.hour_s < self.until_s
            and (self.tenants is None or row.tenant in self.tenants)
            and (self.owner is None or row.owner == self.owner)
            and (self.project is None or row.project == self.project)
        )


def open_rows(control: Control) -> list[UsageRow]:
    """Return what running jobs have used and what is not written yet; to be called in the loop's thread."""
    now_s = clock.now_s()
    rows: list[UsageRow] = []
    for job_id, live in control.state.jobs.items():
        if live.run_since_s is not None and (record := control.kept.get(job_id)) is not None:
            rows += control.ledger.unwritten(live, record.owner, now_s)
    return rows


def rows_of(records: Records, query: UsageQuery) -> list[UsageRow]:
    """Return the written rows that a query asks for, oldest first; to be read before those of `open_rows`.

    A job that ends in between then counts a moment later; in the other order it would count twice.
    """
    stored = records.usage.between(query.since_s, query.until_s, tenants=query.tenants, owner=query.owner)
    return [row for row in stored if query.has(row)]


def grouped(rows: Iterable[UsageRow], by: Sequence[str], prices: Prices) -> list[Json]:
    """Return sums by all that `by` names, in its order."""
    sums: dict[tuple[str, ...], list[float]] = {}
    named: dict[tuple[str, int], str] = {}
    for row in rows:
        key = tuple(_value(row, name, named) for name in by)
        found = sums.setdefault(key, [0.0, 0.0, 0.0, 0.0])
        found[0] += row.device_s
        found[1] += row.energy_j
        found[2] += row.jobs
        found[3] += prices.cost(row.hour_s, row.device_type, row.device_s, row.energy_j)
    return [
        {
            **dict(zip(by, key, strict=True)),
            "gpu_hours": device_s / HOUR_S,
            "cost": cost if prices.lists else None,
            "energy_kwh": energy_j / J_PER_KWH,
            "jobs": int(jobs),
        }
        for key, (device_s, energy_j, jobs, cost) in sorted(sums.items())
    ]


def _value(row: UsageRow, name: str, named: dict[tuple[str, int], str]) -> str:
    if name in _FIELDS:
        return str(getattr(row, _FIELDS[name]))
    found = named.get((name, row.hour_s))
    if found is None:
        found = named[name, row.hour_s] = datetime.fromtimestamp(row.hour_s, UTC).strftime(_TIMES[name])
    return found


def month_of(at_s: float) -> float:
    """Return when the month of a moment began, in UTC."""
    at = datetime.fromtimestamp(at_s, UTC)
    return datetime(at.year, at.month, 1, tzinfo=UTC).timestamp()
