"""Budgets: how much device time, or what cost, a tenant, one of its users or projects may use in a period."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from rota.core.errors import RotaError
from rota.live.accounts.prices import Prices
from rota.store.accounts.usage import HOUR_S, UsageRow

MOST_BUDGETS = 1000


class Period(Enum):
    """After what time a budget begins again; times are UTC."""

    DAY = "day"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"
    TOTAL = "total"


class AtLimit(Enum):
    """What follows when a budget is used up."""

    WARN = "warn"
    """A warning only."""
    HOLD = "hold"
    """Waiting and new jobs are held; running ones go on."""
    STOP = "stop"
    """Running jobs are stopped too, and held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageBudget:
    """One budget. Exactly one of `gpu_hours` and `cost` is given."""

    name: str
    tenant: str
    user: str | None = None
    project: str | None = None
    gpu_hours: float | None = None
    cost: float | None = None
    period: Period = Period.MONTH
    warn: tuple[float, ...] = (0.8,)
    """At which parts of it a warning is given."""
    at_limit: AtLimit = AtLimit.STOP

    def __post_init__(self) -> None:
        if (self.gpu_hours is None) == (self.cost is None):
            raise RotaError(f"budget {self.name!r}: give either gpu_hours or cost")

    @property
    def limit(self) -> float:
        """GPU hours or money."""
        found = self.gpu_hours if self.cost is None else self.cost
        assert found is not None
        return found

    def has(self, tenant: str, owner: str, project: str) -> bool:
        """Whether what a user uses for a project counts."""
        return (
            tenant == self.tenant
            and (self.user is None or owner == self.user)
            and (self.project is None or project == self.project)
        )

    def begins_s(self, now_s: float) -> float:
        """Return when the present period began, in Unix time."""
        at = datetime.fromtimestamp(now_s, UTC)
        match self.period:
            case Period.DAY:
                return datetime(at.year, at.month, at.day, tzinfo=UTC).timestamp()
            case Period.MONTH:
                return datetime(at.year, at.month, 1, tzinfo=UTC).timestamp()
            case Period.QUARTER:
                return datetime(at.year, at.month - (at.month - 1) % 3, 1, tzinfo=UTC).timestamp()
            case Period.YEAR:
                return datetime(at.year, 1, 1, tzinfo=UTC).timestamp()
            case Period.TOTAL:
                return 0.0

    def used(self, rows: Iterable[UsageRow], prices: Prices) -> float:
        """Return what rows of the period come to."""
        if self.cost is not None:
            return sum(prices.cost(row.hour_s, row.device_type, row.device_s, row.energy_j) for row in rows)
        return sum(row.device_s for row in rows) / HOUR_S

    def words(self, used: float, currency: str = "") -> str:
        """Return how much of it is used, in words."""
        unit = "GPU hours" if self.cost is None else currency or "of cost"
        scope = f"tenant {self.tenant}" + (f", user {self.user}" if self.user else "")
        scope += f", project {self.project}" if self.project else ""
        span = "in all" if self.period is Period.TOTAL else f"this {self.period.value}"
        amount = f"{used:.2f}" if used >= 1 else f"{used:.3g}"
        return f"budget {self.name} of {scope}: {amount} of {self.limit:g} {unit} used {span}"

    def encode(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self), "period": self.period.value, "warn": list(self.warn), "at_limit": self.at_limit.value}


def decode_budget(value: dict[str, Any]) -> UsageBudget:
    """Return a budget from JSON values."""
    given = {**value, "period": Period(value["period"]), "warn": tuple(value["warn"])}
    return UsageBudget(**{**given, "at_limit": AtLimit(value["at_limit"])})
