"""Tenants: guarantees, devices held, borrowed and lent, and the last day's usage."""

from __future__ import annotations

from nicegui import html

from rota.live.views.recent import Day
from rota.live.views.tenant_usage import TenantUse
from rota.web import words
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import bar, card, empty, legend
from rota.web.parts.charts import chart, over_time, points

MAX_LINES = 8
TENANCY = {
    "none": "No tenancy rules: every tenant may use all devices.",
    "quota": "Quota tenancy: guarantees are device counts, and idle devices are lent.",
    "cells": "Cell tenancy: guarantees cover topology as well as device counts.",
}


async def build(context: PageContext) -> None:
    """Build the page."""
    page = TenantsPage(context)
    page.show_present()
    context.follow(page.update)


class TenantsPage:
    """The elements of the page that change."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        tenancy = context.service.scheduling.tenancy
        with heading("Tenants", TENANCY.get(tenancy, f"Tenancy: {tenancy}.")):
            pass
        with card("Usage", "devices held, last 24 hours"):
            self._chart = chart({}, "Devices held by each tenant over the last 24 hours")
        with html.div().classes("card table-card"):
            with html.table().classes("table").props('aria-label="Tenants"'):
                with html.thead(), html.tr():
                    html.th("Tenant", scope="col")
                    html.th("Guarantee", scope="col").classes("hide-phone")
                    html.th("Held", scope="col").classes("number")
                    html.th("Borrowed", scope="col").classes("number")
                    html.th("Lent", scope="col").classes("number")
                    html.th("Running", scope="col").classes("number hide-phone")
                    html.th("Waiting", scope="col").classes("number")
                    html.th("Held and guaranteed", scope="col").classes("hide-phone grow")
                self._body = html.tbody()
            self._empty_state = html.div()
        legend((("within guarantee", "own"), ("borrowed", "borrowed"), ("guaranteed, unused", "unused")))
        self._drawn: object = None

    async def update(self) -> None:
        """Show the current state and the last day."""
        self.show_present()
        self._show_day(await self._context.recent.day(), self._context.tenants())

    def show_present(self) -> None:
        """Show the current state."""
        uses = self._context.uses()
        if uses == self._drawn:
            return
        self._drawn = uses
        self._body.clear()
        self._empty_state.clear()
        most = max((max(use.held, float(use.guaranteed)) for use in uses.values()), default=1.0) or 1.0
        with self._body:
            for name, use in sorted(uses.items(), key=lambda pair: (-pair[1].held, pair[0])):
                self._row(name, use, most)
        if not uses:
            with self._empty_state:
                empty("No tenant has jobs or guarantees.", "A job belongs to the tenant that its job file names.")

    def _row(self, name: str, use: TenantUse, most: float) -> None:
        guarantee = self._context.guarantees.get(name)
        with html.tr():
            with html.td().classes("name-cell"):
                html.a(name, href=f"/jobs?tenant={name}", title=name).classes("text-link ellipsis")
            html.td("–" if guarantee is None else guarantee.words).classes("hide-phone muted")
            html.td(words.amount(use.held)).classes("number")
            html.td(words.amount(use.borrowed)).classes("number")
            html.td(words.amount(round(use.lent, 1))).classes("number")
            html.td(words.amount(use.running)).classes("number hide-phone")
            html.td(words.amount(use.waiting)).classes("number")
            with html.td().classes("hide-phone bar-cell"):
                own = max(use.held - use.borrowed, 0.0)
                unused = max(use.guaranteed - own, 0.0)
                parts = (("own", own, "own"), ("borrowed", use.borrowed, "borrowed"), ("unused", unused, "unused"))
                label = f"{name} holds {words.amount(use.held)} of {use.guaranteed} guaranteed"
                bar(parts, max(most, own + use.borrowed + unused), label)

    def _show_day(self, day: Day, allowed: tuple[str, ...] | None) -> None:
        seen = {name: used for name, used in day.used.items() if allowed is None or name in allowed}
        busiest = sorted(seen, key=lambda name: -sum(seen[name]))[:MAX_LINES]
        lines = [
            {"name": str(name), "points": points(day.edges_s, seen[name]), "stack": "all", "filled": True}
            for name in sorted(busiest)
        ]
        self._chart.options.clear()
        self._chart.options.update(over_time(lines, axes=[{"min": 0}], legend=True))
        self._chart.update()
