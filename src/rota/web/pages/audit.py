"""The audit log of changes, for admins."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from nicegui import html

from rota.web import words
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import empty

MAX_ENTRIES = 100
ABOUT_JOBS = frozenset({"submit", "cancel", "hold", "release"})


async def build(context: PageContext) -> None:
    """Build the page."""
    if not context.is_admin:
        html.h1("Audit log")
        empty("Only admins can see the audit log.")
        return
    page = AuditPage(context)
    await page.update()
    context.follow(page.update)


class AuditPage:
    """The newest entries of the audit log."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._newest: int | None = None
        with heading("Audit log", f"The last {MAX_ENTRIES} changes, newest first. GET /audit returns more."):
            pass
        with html.div().classes("card table-card"):
            with html.table().classes("table").props('aria-label="Audit log"'):
                with html.thead(), html.tr():
                    for title in ("Time", "User", "Action", "Target"):
                        html.th(title, scope="col")
                    html.th("Details", scope="col").classes("hide-phone grow")
                self._body = html.tbody()
            self._empty_state = html.div()

    async def update(self) -> None:
        """Show new entries."""
        if not self._context.is_admin:
            self._body.clear()
            return
        rows = await asyncio.to_thread(self._context.service.records.audit, MAX_ENTRIES)
        newest = rows[0].n if rows else 0
        if newest != self._newest:
            self._newest = newest
            self._show(rows)

    def _show(self, rows: Sequence[Any]) -> None:
        self._body.clear()
        self._empty_state.clear()
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
            with self._empty_state:
                empty("No changes yet.")
