"""Who changed what: the audit log, for admins."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from nicegui import html

from rota.web import words
from rota.web.desk import PageContext
from rota.web.frame import heading
from rota.web.parts.basics import empty

MOST = 100
ABOUT_JOBS = frozenset({"submit", "cancel", "hold", "release"})


async def build(desk: PageContext) -> None:
    """The whole page."""
    if not desk.is_admin:
        html.h1("Audit")
        empty("The audit log is for admins.")
        return
    page = AuditPage(desk)
    await page.update()
    desk.follow(page.update)


class AuditPage:
    """The newest entries."""

    def __init__(self, desk: PageContext) -> None:
        self._desk = desk
        self._newest: int | None = None
        with heading("Audit", f"The last {MOST} changes, newest first; GET /audit has more."):
            pass
        with html.div().classes("card table-card"):
            with html.table().classes("table").props('aria-label="Audit log"'):
                with html.thead(), html.tr():
                    for title in ("When", "Who", "What", "Thing"):
                        html.th(title, scope="col")
                    html.th("Detail", scope="col").classes("hide-phone grow")
                self._body = html.tbody()
            self._nothing = html.div()

    async def update(self) -> None:
        """Show what came since."""
        if not self._desk.is_admin:
            self._body.clear()
            return
        rows = await asyncio.to_thread(self._desk.service.records.audit, MOST)
        newest = rows[0].n if rows else 0
        if newest != self._newest:
            self._newest = newest
            self._show(rows)

    def _show(self, rows: Sequence[Any]) -> None:
        self._body.clear()
        self._nothing.clear()
        with self._body:
            for row in rows:
                with html.tr():
                    html.td(words.moment(row.at_s)).classes("nowrap mono")
                    html.td(row.who).classes("ellipsis narrow-cell")
                    html.td(row.what)
                    with html.td():
                        if row.what in ABOUT_JOBS:
                            html.a(row.thing, href=f"/jobs/{row.thing}").classes("text-link mono")
                        else:
                            html.span(row.thing)
                    html.td(row.detail, title=row.detail).classes("hide-phone muted note-cell")
        if not rows:
            with self._nothing:
                empty("Nothing has been changed yet.")
