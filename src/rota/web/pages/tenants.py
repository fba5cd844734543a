"""Tenants: what each is promised, what it holds, borrows and lends, and how that went over the day."""

from __future__ import annotations

from nicegui import html

from rota.live.views.recent import Day
from rota.live.views.tenant_usage import TenantUse
from rota.web import words
from rota.web.desk import PageContext
from rota.web.frame import heading
from rota.web.parts.basics import bar, card, empty, legend
from rota.web.parts.charts import chart, over_time, points

MOST_LINES = 8
TENANCY = {
    "none": "No tenancy is in use: every tenant may use everything.",
    "quota": "Tenancy by quota: shares by count, what is idle is lent.",
    "cells": "Tenancy by cells: shapes are guaranteed, not only counts.",
}


async def build(desk: PageContext) -> None:
    """The whole page."""
    page = TenantsPage(desk)
    page.show_present()
    desk.follow(page.update)


class TenantsPage:
    """What is on the page and changes."""

    def __init__(self, desk: PageContext) -> None:
        self._desk = desk
        tenancy = desk.service.scheduling.tenancy
        with heading("Tenants", TENANCY.get(tenancy, f"Tenancy: {tenancy}.")):
            pass
        with card("Use over time", "devices held, last 24 hours"):
            self._chart = chart({}, "Devices that each tenant held over the last 24 hours")
        with html.div().classes("card table-card"):
            with html.table().classes("table").props('aria-label="Tenants"'):
                with html.thead(), html.tr():
                    html.th("Tenant", scope="col")
                    html.th("Promised", scope="col").classes("hide-phone")
                    html.th("Holds", scope="col").classes("number")
                    html.th("Borrowed", scope="col").classes("number")
                    html.th("Lent", scope="col").classes("number")
                    html.th("Running", scope="col").classes("number hide-phone")
                    html.th("Waiting", scope="col").classes("number")
                    html.th("Use against guarantee", scope="col").classes("hide-phone grow")
                self._body = html.tbody()
            self._nothing = html.div()
        legend((("within guarantee", "own"), ("borrowed", "borrowed"), ("guaranteed, not used", "unused")))
        self._drawn: object = None

    async def update(self) -> None:
        """Show how things are now, and how the day went."""
        self.show_present()
        self._show_day(await self._desk.recent.day(), self._desk.tenants())

    def show_present(self) -> None:
        """Show how things are now."""
        uses = self._desk.uses()
        if uses == self._drawn:
            return
        self._drawn = uses
        self._body.clear()
        self._nothing.clear()
        most = max((max(use.held, float(use.guaranteed)) for use in uses.values()), default=1.0) or 1.0
        with self._body:
            for name, use in sorted(uses.items(), key=lambda pair: (-pair[1].held, pair[0])):
                self._row(name, use, most)
        if not uses:
            with self._nothing:
                empty("No tenant has jobs, or is promised anything.", "A job's tenant is the field tenant of its file.")

    def _row(self, name: str, use: TenantUse, most: float) -> None:
        promise = self._desk.promises.get(name)
        with html.tr():
            with html.td().classes("name-cell"):
                html.a(name, href=f"/jobs?tenant={name}", title=name).classes("text-link ellipsis")
            html.td("–" if promise is None else promise.words).classes("hide-phone muted")
            html.td(words.amount(use.held)).classes("number")
            html.td(words.amount(use.borrowed)).classes("number")
            html.td(words.amount(round(use.lent, 1))).classes("number")
            html.td(words.amount(use.running)).classes("number hide-phone")
            html.td(words.amount(use.waiting)).classes("number")
            with html.td().classes("hide-phone bar-cell"):
                own = max(use.held - use.borrowed, 0.0)
                unused = max(use.guaranteed - own, 0.0)
                parts = (("own", own, "own"), ("borrowed", use.borrowed, "borrowed"), ("unused", unused, "unused"))
                said = f"{name} holds {words.amount(use.held)} of {use.guaranteed} guaranteed"
                bar(parts, max(most, own + use.borrowed + unused), said)

    def _show_day(self, day: Day, allowed: tuple[str, ...] | None) -> None:
        seen = {name: used for name, used in day.used.items() if allowed is None or name in allowed}
        busiest = sorted(seen, key=lambda name: -sum(seen[name]))[:MOST_LINES]
        lines = [
            {"name": str(name), "points": points(day.edges_s, seen[name]), "stack": "all", "filled": True}
            for name in sorted(busiest)
        ]
        self._chart.options.clear()
        self._chart.options.update(over_time(lines, axes=[{"min": 0}], legend=True))
        self._chart.update()
