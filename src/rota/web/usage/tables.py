"""The tables of the page about usage: sums by group, budgets, and the fair-share standing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from nicegui import html

from rota.live.accounts.budget import UsageBudget
from rota.live.accounts.fair_share import FairShareStanding
from rota.live.accounts.keeper import BudgetUse
from rota.web.parts.basics import bar, empty, row_actions

BudgetAction = Callable[[UsageBudget], Awaitable[None]]
Json = dict[str, Any]
MOST_ROWS = 200
NO_NAME = "(none)"


def hours(value: float) -> str:
    """Format device hours or money: two decimals, three of what is small."""
    return f"{value:,.2f}" if value >= 0.1 or value < 0.0005 else f"{value:.3f}"


def _head(titles: Sequence[tuple[str, str]]) -> None:
    with html.thead(), html.tr():
        for title, classes in titles:
            html.th(title, scope="col").classes(classes)


def show_sums(rows: Sequence[Json], by: str, currency: str) -> None:
    """Show sums by group, the largest first."""
    ordered = sorted(rows, key=lambda row: (-row["gpu_hours"], row[by]))
    most = max((row["gpu_hours"] for row in ordered), default=0.0)
    has_cost = any(row["cost"] is not None for row in ordered)
    with html.table().classes("table").props('aria-label="Usage"'):
        cost = [(f"Cost {currency}".rstrip(), "number")] if has_cost else []
        sums = [
            ("GPU hours", "number"),
            ("", "hide-phone grow"),
            ("kWh", "number hide-phone"),
            ("Ended jobs", "number"),
        ]
        _head([(by.capitalize(), ""), *sums, *cost])
        with html.tbody():
            for row in ordered[:MOST_ROWS]:
                with html.tr():
                    html.td(row[by] or NO_NAME).classes("name-cell")
                    html.td(hours(row["gpu_hours"])).classes("number")
                    with html.td().classes("hide-phone bar-cell"):
                        if most:
                            label = f"{row[by] or NO_NAME}: {hours(row['gpu_hours'])} GPU hours"
                            bar((("used", row["gpu_hours"], "busy"),), most, label)
                    html.td(f"{row['energy_kwh']:,.2f}").classes("number hide-phone")
                    html.td(f"{row['jobs']:,}").classes("number")
                    if has_cost:
                        html.td(hours(row["cost"] or 0.0)).classes("number")
    if not ordered:
        empty("Nothing was used in this time.")
    elif len(ordered) > MOST_ROWS:
        html.p(f"The first {MOST_ROWS} of {len(ordered)}; the file has all.").classes("muted padded")


def show_budgets(
    uses: Sequence[BudgetUse], currency: str, changes: tuple[BudgetAction, BudgetAction] | None = None
) -> None:
    """Show budgets with what is used of each in its present period, and buttons that change and remove it."""
    with html.table().classes("table").props('aria-label="Budgets"'):
        titles = [
            ("Budget", ""),
            ("Of", "hide-phone"),
            ("Used", "number"),
            ("", "grow"),
            ("At the limit", "hide-phone"),
        ]
        _head([*titles, ("Actions", "number")] if changes else titles)
        with html.tbody():
            for use in uses:
                budget = use.budget
                unit = "GPU hours" if budget.cost is None else currency or "of cost"
                text = f"{hours(use.used)} of {hours(budget.limit)} {unit}"
                with html.tr():
                    with html.td().classes("name-cell"):
                        html.span(budget.name)
                        if use.is_reached:
                            html.span("used up").classes("chip chip-failed")
                    scope = [budget.tenant, *(part for part in (budget.user, budget.project) if part)]
                    period = "in all" if budget.period.value == "total" else f"a {budget.period.value}"
                    html.td(f"{', '.join(scope)}, {period}").classes("hide-phone")
                    html.td(text).classes("number")
                    with html.td().classes("bar-cell"):
                        share = 1.0 if not budget.limit else min(use.used / budget.limit, 1.0)
                        bar((("used", share, "bad" if use.is_reached else "busy"),), 1.0, f"{budget.name}: {text}")
                    html.td(budget.at_limit.value).classes("hide-phone")
                    if changes is not None:
                        change, remove = (partial(each, budget) for each in changes)
                        row_actions(f"budget {budget.name}", change, remove)


def show_standings(found: Sequence[FairShareStanding]) -> None:
    """Show how tenants and their users stand, with the columns of `sshare`."""
    with html.table().classes("table").props('aria-label="Fair shares"'):
        titles = [("Tenant", ""), ("User", ""), ("Shares", "number hide-phone"), ("Norm shares", "number")]
        _head([*titles, ("Usage, GPU hours", "number hide-phone"), ("Effective usage", "number"), ("Factor", "number")])
        with html.tbody():
            for each in found[:MOST_ROWS]:
                with html.tr():
                    html.td("" if each.user else each.tenant).classes("name-cell strong")
                    html.td(each.user)
                    html.td(f"{each.shares:g}").classes("number hide-phone")
                    html.td(f"{each.norm_shares:.3f}").classes("number")
                    html.td(hours(each.raw_usage_s / 3600)).classes("number hide-phone")
                    html.td(f"{each.usage:.3f}").classes("number")
                    html.td(f"{each.factor:.3f}").classes("number")
    if len(found) > MOST_ROWS:
        html.p(f"The first {MOST_ROWS} of {len(found)}; `rota shares` lists all.").classes("muted padded")
