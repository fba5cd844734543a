"""All sweeps: their state, how far they are, and the best value so far."""

from __future__ import annotations

import asyncio
from typing import Any

from nicegui import html

from rota.web import words
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import empty
from rota.web.sweeps.charts import sweep_chip, value_text

LIMIT = 200
COLUMNS = (
    ("Sweep", ""),
    ("Name", ""),
    ("State", ""),
    ("Tenant", "hide-phone"),
    ("Owner", "hide-narrow"),
    ("Trials", "number"),
    ("Best", "number"),
    ("Rule", "hide-phone"),
    ("Started", "hide-phone"),
)
Json = dict[str, Any]


async def build(context: PageContext) -> None:
    """Build the page."""
    page = SweepsPage(context)
    await page.update()
    context.follow(page.update, every_s=5.0)


class SweepsPage:
    """The table of sweeps, newest first."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._drawn: object = None
        with heading("Sweeps", "Searches over the parameters of a training, newest first."):
            pass
        with html.div().classes("card table-card"):
            with html.table().classes("table").props('aria-label="Sweeps"'):
                with html.thead(), html.tr():
                    for title, classes in COLUMNS:
                        html.th(title, scope="col").classes(classes)
                self._body = html.tbody()
            self._none = html.div()

    async def update(self) -> None:
        """List the sweeps that the visitor may see."""
        parts = self._context.service.sweeps
        found: list[Json] = []
        if parts is not None:
            found = await asyncio.to_thread(parts.views.listed, self._context.tenants(), live_only=False, limit=LIMIT)
        if found == self._drawn:
            return
        self._drawn = found
        self._body.clear()
        with self._body:
            for sweep in found:
                _row(sweep)
        self._none.clear()
        if not found:
            with self._none:
                empty("No sweeps yet.", "Start one with: rota sweep search.yaml")


def _row(sweep: Json) -> None:
    target = f"/sweeps/{sweep['id']}"
    with html.tr():
        with html.td():
            html.a(sweep["id"], href=target).classes("text-link mono")
        with html.td().classes("name-cell"):
            html.a(sweep["name"], href=target, title=sweep["name"]).classes("plain-link ellipsis")
        with html.td():
            sweep_chip(sweep["state"])
        html.td(sweep["tenant"]).classes("hide-phone ellipsis narrow-cell")
        html.td(sweep["owner"]).classes("hide-narrow ellipsis narrow-cell")
        html.td(f"{sweep['begun']:,} of {sweep['trials']:,}").classes("number nowrap")
        html.td(value_text(sweep["best"])).classes("number")
        html.td(f"{sweep['sampler']}, {sweep['rule']}").classes("hide-phone nowrap")
        html.td(words.ago(sweep["created_s"]), title=words.moment(sweep["created_s"])).classes("hide-phone nowrap")
