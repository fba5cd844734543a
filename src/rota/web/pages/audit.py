"""The audit log, page by page, for admins."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from nicegui import html, ui

from rota.api.guard.audit_anchor import FILE
from rota.store.audit import head_in
from rota.web import words
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import empty

PAGE_ENTRIES = 50
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
    """A page of the audit log. The newest is refreshed; the others stay as they are."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._shown: tuple[int, int] | None = None
        self._last = 0
        self._before: list[int] = []
        """Where the pages after the newest begin, up to the present one."""
        with heading("Audit log", "Changes, logins and refused requests, newest first."):
            ui.button("Verify", on_click=self._verify, color=None).props("flat no-caps").classes("button")
        with html.div().classes("card table-card"):
            with html.table().classes("table").props('aria-label="Audit log"'):
                with html.thead(), html.tr():
                    html.th("No.", scope="col").classes("hide-phone")
                    for title in ("Time", "User", "Action", "Target"):
                        html.th(title, scope="col")
                    html.th("Details", scope="col").classes("hide-phone grow")
                self._body = html.tbody()
            self._empty_state = html.div()
        with html.nav().classes("pager").props('aria-label="Pages of the audit log"'):
            self._newer = ui.button("Newer", on_click=self._go_newer, color=None).props("flat no-caps")
            self._older = ui.button("Older", on_click=self._go_older, color=None).props("flat no-caps")

    async def update(self) -> None:
        """Show the present page's entries."""
        if not self._context.is_admin:
            self._body.clear()
            return
        before = self._before[-1] if self._before else None
        rows = await asyncio.to_thread(self._context.service.audit.page, PAGE_ENTRIES + 1, before=before)
        shown = (rows[0].n, len(rows)) if rows else (0, 0)
        if shown != self._shown:
            self._shown = shown
            self._last = rows[:PAGE_ENTRIES][-1].n if rows else 0
            self._show(rows[:PAGE_ENTRIES])
        self._newer.set_enabled(bool(self._before))
        self._older.set_enabled(len(rows) > PAGE_ENTRIES)

    async def _go_older(self) -> None:
        self._before.append(self._last)
        await self.update()

    async def _go_newer(self) -> None:
        if self._before:
            self._before.pop()
        await self.update()

    async def _verify(self) -> None:
        if not self._context.is_admin:
            return
        service = self._context.service
        noted = head_in(service.home / FILE)
        found = await asyncio.to_thread(service.audit.verify, [] if noted is None else [noted])
        if found.fault is None:
            ui.notify(f"{found.entries:,} entries, unbroken", type="positive", position="top")
        else:
            ui.notify(found.fault, type="negative", position="top", timeout=0, close_button="close")

    def _show(self, rows: Sequence[Any]) -> None:
        self._body.clear()
        self._empty_state.clear()
        with self._body:
            for row in rows:
                with html.tr():
                    html.td(str(row.n)).classes("hide-phone muted mono")
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
                empty("No changes yet.", "Submissions, cancellations, tokens and settings appear here.")
