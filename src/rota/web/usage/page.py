"""Usage: GPU hours, energy and cost over time by user, tenant, project or type; budgets; the fair-share standing."""

from __future__ import annotations

import asyncio
import csv
import io
from typing import Any
from urllib.parse import quote

from nicegui import html, ui
from nicegui.events import ValueChangeEventArguments

from rota.api.accounts.usage import standing_of
from rota.live.accounts.budget import UsageBudget
from rota.live.accounts.prices import Prices, prices_of
from rota.live.accounts.report import UsageQuery, grouped
from rota.store import clock
from rota.web.forms.accounts import ask_budget, ask_prices, drop_budget
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import Tile, button, card, empty
from rota.web.parts.charts import PALETTE, chart, over_time
from rota.web.usage.tables import NO_NAME, hours, show_budgets, show_standings, show_sums
from rota.web.usage.used_time import SPANS, span_of, stacked, used_rows

GROUPS = {"user": "By user", "tenant": "By tenant", "project": "By project", "type": "By device type"}
EVERY_S = 15.0
Json = dict[str, Any]


async def build(context: PageContext) -> None:
    """Build the page."""
    if context.service.accounts is None:
        html.h1("Usage")
        empty("Accounts are kept by a manager of processes; this one schedules the jobs of another system.")
        return
    page = UsagePage(context)
    await page.update()
    context.follow(page.update, about=lambda _: False, every_s=EVERY_S)


class UsagePage:
    """The elements of the page that change, and what its address says."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        asked = context.request.query_params
        self._span = asked.get("span", "") if asked.get("span") in SPANS else "month"
        self._by = asked.get("by", "") if asked.get("by") in GROUPS else "user"
        self._only = {name: asked.get(name, "")[:128] for name in ("tenant", "user", "project")}
        self._drawn: dict[str, object] = {}
        self._rows: list[Json] = []
        with heading("Usage", "Used GPU hours, running jobs included. The address of this page can be shared."):
            if context.is_admin:
                button("Prices", "payments").on_click(self._ask_prices)
                button("Add budget", "add").on_click(lambda: self._ask_budget())
            button("CSV", "download").on_click(self._download)
        with html.div().classes("filters"):
            self._select(SPANS, self._span, "Time", self._set_span)
            self._select(GROUPS, self._by, "Groups", self._set_by)
            for name in ("tenant", "user", "project"):
                self._field(name)
        with html.div().classes("tiles"):
            self._hours, self._cost = Tile("GPU hours"), Tile("Cost")
            self._energy, self._jobs = Tile("Energy"), Tile("Ended jobs")
        with card("Over time", "GPU hours, UTC"):
            self._chart = chart({}, "GPU hours over time")
        with html.section().classes("card table-card").props('tabindex=0 role=region aria-label="Usage by group"'):
            self._sums = html.div()
        with (
            html.section()
            .classes("card table-card")
            .props('tabindex=0 role=region aria-label="Budgets"') as self._limits
        ):
            with html.div().classes("card-head padded"):
                html.h2("Budgets")
                html.span("in the present period").classes("muted")
            self._budgets = html.div()
        with html.section().classes("card table-card").props('tabindex=0 role=region aria-label="Fair shares"'):
            with html.div().classes("card-head padded"):
                html.h2("Fair shares")
                html.span("usage counts half after every 7 days; a factor of 0.5 is exactly its share").classes("muted")
            self._shares = html.div()

    def _select(self, options: dict[str, str], value: str, label: str, changed: Any) -> None:
        select = ui.select(options, value=value, on_change=changed)
        select.props(f'outlined dense options-dense aria-label="{label}"').classes("filter")

    def _field(self, name: str) -> None:
        async def choose() -> None:
            self._only[name] = str(field.value or "").strip()[:128]
            await self._changed()

        field = ui.input(placeholder=f"Only this {name}", value=self._only[name])
        field.props(f'outlined dense clearable aria-label="Only this {name}"').classes("filter narrow")
        field.on("keydown.enter", choose)
        field.on("clear", choose)

    async def _set_span(self, event: ValueChangeEventArguments[str]) -> None:
        self._span = event.value
        await self._changed()

    async def _set_by(self, event: ValueChangeEventArguments[str]) -> None:
        self._by = event.value
        await self._changed()

    async def _changed(self) -> None:
        """Put what is shown into the address, so that it can be shared, and show it."""
        parts = [f"span={self._span}", f"by={self._by}"]
        parts += [f"{name}={quote(value)}" for name, value in self._only.items() if value]
        ui.navigate.history.replace(f"/usage?{'&'.join(parts)}")
        await self.update()

    async def update(self) -> None:
        """Show the accounts as they are now."""
        span = span_of(self._span, clock.shown_s(clock.now_s()))
        only = {name: value or None for name, value in self._only.items()}
        query = UsageQuery(
            since_s=span.since_s,
            until_s=span.until_s,
            tenants=None if only["tenant"] is None else (only["tenant"],),
            owner=only["user"],
            project=only["project"],
        )
        rows, prices = await used_rows(self._context, query)
        self._show_tiles(grouped(rows, (), prices), prices)
        self._rows = grouped(rows, (span.step, self._by), prices)
        self._show_chart(stacked(self._rows, span.labels, span.step, self._by, len(PALETTE)), span.labels)
        sums = grouped(rows, (self._by,), prices)
        if self._is_new("sums", (self._by, sums)):
            self._sums.clear()
            with self._sums:
                show_sums(sums, self._by, prices.currency)
        self._show_budgets(prices)
        await self._show_shares()

    def _is_new(self, what: str, value: object) -> bool:
        """Whether a value differs from the one drawn last; remembers it."""
        if what in self._drawn and self._drawn[what] == value:
            return False
        self._drawn[what] = value
        return True

    def _show_tiles(self, found: list[Json], prices: Prices) -> None:
        total: Json = found[0] if found else {"gpu_hours": 0.0, "cost": None, "energy_kwh": 0.0, "jobs": 0}
        self._hours.show(hours(total["gpu_hours"]), SPANS[self._span].lower())
        priced = prices.currency or "at the prices of each hour"
        self._cost.show(hours(total["cost"] or 0.0) if prices.lists else "–", priced if prices.lists else "no prices")
        self._energy.show(f"{total['energy_kwh']:,.2f}", "kWh, where GPUs measure it")
        self._jobs.show(f"{total['jobs']:,}", "in this time")

    def _show_chart(self, series: list[tuple[str, list[float]]], labels: list[str]) -> None:
        if not self._is_new("chart", (series, labels)):
            return
        options = over_time([], axes=[{"min": 0}], legend=True)
        options["xAxis"] = {**options["xAxis"], "type": "category", "data": labels}
        options["series"] = [
            {
                "type": "bar",
                "stack": "all",
                "barMaxWidth": 40,
                "name": name or NO_NAME,
                "data": [round(value, 4) for value in values],
                "itemStyle": {"color": PALETTE[index]},
            }
            for index, (name, values) in enumerate(series)
        ]
        self._chart.options.clear()
        self._chart.options.update(options)
        self._chart.update()

    def _show_budgets(self, prices: Prices) -> None:
        accounts, principal = self._context.service.accounts, self._context.principal()
        assert accounts is not None, "the page is not built without"
        found = [use for use in accounts.budgets.all() if principal.may_see(use.budget.tenant)]
        self._limits.set_visibility(bool(found))
        if self._is_new("budgets", found):
            self._budgets.clear()
            with self._budgets:
                is_admin = self._context.is_admin
                show_budgets(found, prices.currency, (self._ask_budget, self._drop_budget) if is_admin else None)

    async def _show_shares(self) -> None:
        allowed = self._context.tenants()
        found = [each for each in await standing_of(self._context.service) if allowed is None or each.tenant in allowed]
        if self._is_new("shares", [(each.tenant, each.user, round(each.factor, 3), each.usage) for each in found]):
            self._shares.clear()
            with self._shares:
                show_standings(found)

    async def _ask_budget(self, budget: UsageBudget | None = None) -> None:
        if await ask_budget(self._context, budget):
            await self.update()

    async def _drop_budget(self, budget: UsageBudget) -> None:
        if await drop_budget(self._context, budget.name):
            await self.update()

    async def _ask_prices(self) -> None:
        prices = await asyncio.to_thread(prices_of, self._context.service.records)
        if await ask_prices(self._context, prices):
            await self.update()

    def _download(self) -> None:
        """Hand out what the chart shows, as a file."""
        text = io.StringIO()
        names = list(self._rows[0]) if self._rows else ["gpu_hours"]
        writer = csv.DictWriter(text, names)
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in self._rows)
        ui.download(text.getvalue().encode(), f"usage-{self._span}-{self._by}.csv", "text/csv")


def _cell(value: Any) -> Any:
    """A value of the file; a project that begins like a formula is text for spreadsheets too."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value
