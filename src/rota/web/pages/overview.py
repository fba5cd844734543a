"""The first page: devices, tenants, the last day's utilisation and queue, and recent failures."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from nicegui import html, ui

from rota.live.views.devices import Count, count_devices
from rota.live.views.recent import Day
from rota.live.views.tenant_usage import TenantUse
from rota.store.jobs import JobSearch
from rota.web import words
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import Tile, bar, button, card, chip, empty, legend, link
from rota.web.parts.charts import chart, over_time, points

FAILURES = 6
MAX_TENANTS = 12


async def build(context: PageContext) -> None:
    """Build the page."""
    page = OverviewPage(context)
    await page.show_present()
    context.follow(page.update)


class OverviewPage:
    """The elements of the page that change."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        with heading("Overview", f"Policy: {context.service.scheduling.policy}"):
            if context.may_submit:
                button("Submit a job", "add", primary=True).on_click(lambda: ui.navigate.to("/submit"))
        with html.div().classes("tiles"):
            self._devices = Tile("Devices allocated")
            self._queue = Tile("Waiting jobs")
            self._running = Tile("Running jobs")
            self._wait = Tile("Average wait")
        with html.div().classes("grid"):
            with card("Devices", "by type"):
                self._types = html.div().classes("stack")
            with card("Tenants", "allocation and guarantee"):
                self._tenants = html.div().classes("stack")
            with card("Allocation", "last 24 hours"):
                self._used = chart({}, "Devices allocated over the last 24 hours")
            with card("Queue", "last 24 hours"):
                self._waiting = chart({}, "Waiting jobs, and the wait before start, over the last 24 hours")
            with card("Recent failures", wide=True):
                self._failures = html.div().classes("stack")
        self._seen: dict[str, object] = {}
        self._total = 0

    async def update(self) -> None:
        """Show the current state and the last day."""
        await self.show_present()
        self._show_day(await self._context.recent.day())

    async def show_present(self) -> None:
        """Show the current state."""
        state = self._context.service.control.state
        tenants = self._context.tenants()
        failed, _ = await asyncio.to_thread(
            self._context.service.records.find,
            JobSearch(states=("failed",), tenants=tenants, order="ended_s", limit=FAILURES),
        )
        counts = count_devices(state.inventory)
        uses = self._context.uses()
        self._show_tiles(counts, uses)
        if self._is_new("types", [str(count) for count in counts]):
            self._show_types(counts)
        if self._is_new("tenants", uses):
            self._show_tenants(uses)
        if self._is_new("failures", [row.id for row in failed]):
            self._show_failures(failed)

    def _is_new(self, what: str, value: object) -> bool:
        """Whether a value differs from the one drawn last; remembers it."""
        if what in self._seen and self._seen[what] == value:
            return False
        self._seen[what] = value
        return True

    def _show_tiles(self, counts: Sequence[Count], uses: dict[str, TenantUse]) -> None:
        self._total = total = sum(count.total for count in counts)
        busy = sum(count.busy for count in counts)
        bad = sum(count.bad for count in counts)
        note = f"{words.amount(busy)} of {words.amount(total)}" + (f", {bad} unavailable" if bad else "")
        self._devices.show(words.percent(busy, total), note if total else "no devices on this machine")
        waiting = sum(use.waiting for use in uses.values())
        running = sum(use.running for use in uses.values())
        self._queue.show(words.amount(waiting), "including held jobs" if waiting else "no jobs waiting")
        self._running.show(words.amount(running), f"from {words.plural(len(uses), 'tenant')}")

    def _show_types(self, counts: Sequence[Count]) -> None:
        self._types.clear()
        with self._types:
            if not counts:
                empty(
                    "This machine has no devices.",
                    "Jobs that request no GPUs can still run; rota up --emulate gpu=8/4 emulates some.",
                )
                return
            for count in counts:
                label = f"{words.amount(count.busy)} busy, {words.amount(count.idle)} idle, {count.bad} unavailable"
                with html.div().classes("row-label"):
                    html.span(str(count.device_type)).classes("strong ellipsis")
                    html.span(label).classes("muted")
                whole = max(count.total, 1)
                parts = (("busy", count.busy, "busy"), ("idle", count.idle, "idle"), ("unavailable", count.bad, "bad"))
                bar(parts, whole, f"{count.device_type}: {label}")
            legend((("busy", "busy"), ("idle", "idle"), ("unavailable: down or drained", "bad")))

    def _show_tenants(self, uses: dict[str, TenantUse]) -> None:
        self._tenants.clear()
        with self._tenants:
            if not uses:
                empty("No tenant has active jobs.", "Submit one: rota submit --gpus 1 -- python train.py")
                return
            busiest = sorted(uses.items(), key=lambda pair: (-pair[1].held, -pair[1].waiting, pair[0]))
            most = max(max(use.held, float(use.guaranteed)) for use in uses.values()) or 1.0
            for name, use in busiest[:MAX_TENANTS]:
                guaranteed = f" of {use.guaranteed} guaranteed" if use.guaranteed else ""
                label = f"{words.amount(use.held)}{guaranteed}" + (
                    f", {words.amount(use.waiting)} waiting" if use.waiting else ""
                )
                with html.div().classes("row-label"):
                    html.a(name, href=f"/jobs?tenant={name}").classes("text-link ellipsis")
                    html.span(label).classes("muted")
                own = min(use.held, use.held - use.borrowed)
                unused = max(use.guaranteed - own, 0.0)
                parts = (("own", own, "own"), ("borrowed", use.borrowed, "borrowed"), ("unused", unused, "unused"))
                bar(parts, max(most, own + use.borrowed + unused), f"{name}: {label}")
            if any(use.guaranteed for use in uses.values()):
                legend((("within guarantee", "own"), ("borrowed", "borrowed"), ("guaranteed, unused", "unused")))
            if len(uses) > MAX_TENANTS:
                link(f"{len(uses) - MAX_TENANTS} more", "/tenants")

    def _show_failures(self, rows: Sequence[Any]) -> None:
        self._failures.clear()
        with self._failures:
            if not rows:
                empty("No failed jobs.", "Failed jobs appear here with their last message.")
                return
            for row in rows:
                with html.a(href=f"/jobs/{row.id}").classes("list-row"):
                    chip(row.state)
                    html.span(row.name).classes("strong ellipsis")
                    html.span(row.message or f"exit code {row.exit_code}").classes("muted ellipsis grow")
                    html.span(words.ago(row.ended_s)).classes("muted nowrap")

    def _show_day(self, day: Day) -> None:
        total = self._total
        waits = [wait_s for wait_s in day.wait_s if wait_s is not None]
        average = sum(waits) / len(waits) if waits else None
        self._wait.show(
            words.duration(average), "before start, last 24 hours" if waits else "no job started in the last 24 hours"
        )
        share = [100 * value / total if total else 0.0 for value in day.in_use]
        used = {"name": "devices allocated, %", "points": points(day.edges_s, share), "filled": True}
        axis = {"min": 0, "max": 100, "axisLabel": {"formatter": "{value} %", "color": "var(--muted)", "fontSize": 11}}
        self._used.options.clear()
        self._used.options.update(over_time([used], axes=[axis]))
        self._used.update()
        minutes = [None if wait_s is None else round(wait_s / 60, 2) for wait_s in day.wait_s]
        lines = [
            {"name": "waiting jobs", "points": points(day.edges_s, day.waiting), "filled": True},
            {"name": "wait before start, min", "points": points(day.edges_s, minutes), "axis": 1, "dots": True},
        ]
        self._waiting.options.clear()
        self._waiting.options.update(over_time(lines, axes=[{"min": 0}, {"min": 0}], legend=True))
        self._waiting.update()
