"""Used device time as pages show it: of a span, by day or month and by what it is grouped, running jobs included."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from rota.live.accounts.prices import Prices, prices_of
from rota.live.accounts.report import UsageQuery, grouped, month_of, open_rows, rows_of
from rota.store import clock
from rota.store.accounts.usage import UsageRow
from rota.web.page_context import PageContext

DAY_S = 86400.0
Json = dict[str, Any]
SPANS = {
    "week": "Last 7 days",
    "month": "This month",
    "last-month": "Last month",
    "quarter": "Last 90 days",
    "year": "This year",
    "last-year": "Last year",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSpan:
    """A span of whole days or months, in Unix time, and the steps of a chart of it."""

    since_s: float
    until_s: float
    step: str
    """`day` or `month`."""

    @property
    def labels(self) -> list[str]:
        """The names of its days or months, as reports have them."""
        found: dict[str, None] = {}
        at = datetime.fromtimestamp(self.since_s, UTC)
        while at.timestamp() < self.until_s:
            found[at.strftime("%Y-%m-%d" if self.step == "day" else "%Y-%m")] = None
            at += timedelta(days=1)
        return list(found)


def span_of(name: str, now_s: float) -> UsageSpan:
    """Return the span of a name; that of the present month for one that is unknown."""
    today_s = now_s - now_s % DAY_S
    month_s = month_of(now_s)
    year = datetime.fromtimestamp(now_s, UTC).year
    until_s = now_s + 1
    match name:
        case "week":
            return UsageSpan(since_s=today_s - 6 * DAY_S, until_s=until_s, step="day")
        case "last-month":
            return UsageSpan(since_s=month_of(month_s - 1), until_s=month_s, step="day")
        case "quarter":
            return UsageSpan(since_s=today_s - 89 * DAY_S, until_s=until_s, step="day")
        case "year":
            return UsageSpan(since_s=_year_s(year), until_s=until_s, step="month")
        case "last-year":
            return UsageSpan(since_s=_year_s(year - 1), until_s=_year_s(year), step="month")
    return UsageSpan(since_s=month_s, until_s=until_s, step="day")


def _year_s(year: int) -> float:
    return datetime(year, 1, 1, tzinfo=UTC).timestamp()


async def used_rows(context: PageContext, query: UsageQuery) -> tuple[list[UsageRow], Prices]:
    """Return what a query asks for, of tenants that the visitor may see, and the prices."""
    allowed = context.tenants()
    if allowed is not None:
        own = allowed if query.tenants is None else tuple(name for name in query.tenants if name in allowed)
        query = replace(query, tenants=own)
    records = context.service.records
    stored, prices = await asyncio.to_thread(lambda: (rows_of(records, query), prices_of(records)))
    return [*stored, *(row for row in open_rows(context.service.control) if query.has(row))], prices


async def my_hours(context: PageContext, days: int) -> list[tuple[str, float]]:
    """Return the device hours of the visitor on each of the last days."""
    now_s = clock.shown_s(clock.now_s())
    span = UsageSpan(since_s=now_s - now_s % DAY_S - (days - 1) * DAY_S, until_s=now_s + 1, step="day")
    owner = context.principal().name
    rows, prices = await used_rows(context, UsageQuery(since_s=span.since_s, until_s=span.until_s, owner=owner))
    hours = {row["day"]: row["gpu_hours"] for row in grouped(rows, ("day",), prices)}
    return [(day, hours.get(day, 0.0)) for day in span.labels]


def stacked(
    rows: Sequence[Json], labels: Sequence[str], step: str, by: str, most: int
) -> list[tuple[str, list[float]]]:
    """Return the hours of each step for the groups with the most; those of all others together are the last."""
    totals: dict[str, float] = {}
    for row in rows:
        totals[row[by]] = totals.get(row[by], 0.0) + row["gpu_hours"]
    order = sorted(totals, key=lambda name: (-totals[name], name))
    shown = order if len(order) <= most else order[: most - 1]
    found = {name: dict.fromkeys(labels, 0.0) for name in shown}
    others = dict.fromkeys(labels, 0.0)
    for row in rows:
        into = found.get(row[by], others)
        if row[step] in into:
            into[row[step]] += row["gpu_hours"]
    series = [(name, list(values.values())) for name, values in found.items()]
    return [*series, ("others", list(others.values()))] if len(shown) < len(order) else series
