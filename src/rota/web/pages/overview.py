"""The first page: what is busy, who waits, how the day went, what failed last."""

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
from rota.web.desk import PageContext
from rota.web.frame import heading
from rota.web.parts.basics import Tile, bar, button, card, chip, empty, legend, link
from rota.web.parts.charts import chart, over_time, points

FAILURES = 6
MOST_TENANTS = 12


async def build(desk: PageContext) -> None:
    """The whole page."""
    page = OverviewPage(desk)
    await page.show_present()
    desk.follow(page.update)


class OverviewPage:
    """What is on the page and changes."""

    def __init__(self, desk: PageContext) -> None:
        self._desk = desk
        with heading("Overview", f"Policy {desk.service.scheduling.policy}"):
            if desk.may_submit:
                button("Submit a job", "add", primary=True).on_click(lambda: ui.navigate.to("/submit"))
        with html.div().classes("tiles"):
            self._devices = Tile("Devices in use")
            self._queue = Tile("Waiting jobs")
            self._running = Tile("Running jobs")
            self._wait = Tile("Wait before start")
        with html.div().classes("grid"):
            with card("Devices", "by type"):
                self._types = html.div().classes("stack")
            with card("Tenants", "use against guarantee"):
                self._tenants = html.div().classes("stack")
            with card("Utilisation", "last 24 hours"):
                self._used = chart({}, "Devices in use over the last 24 hours")
            with card("Waiting", "last 24 hours"):
                self._waiting = chart({}, "Jobs waiting, and the wait of those that started, over the last 24 hours")
            with card("Newest failures", wide=True):
                self._failures = html.div().classes("stack")
        self._seen: dict[str, object] = {}
        self._total = 0

    async def update(self) -> None:
        """Show how things are now, and how the day went."""
        await self.show_present()
        self._show_day(await self._desk.recent.day())

    async def show_present(self) -> None:
        """Show how things are now."""
        state = self._desk.service.control.state
        tenants = self._desk.tenants()
        failed, _ = await asyncio.to_thread(
            self._desk.service.records.find,
            JobSearch(states=("failed",), tenants=tenants, order="ended_s", limit=FAILURES),
        )
        counts = count_devices(state.inventory)
        uses = self._desk.uses()
        self._show_tiles(counts, uses)
        if self._is_new("types", [str(count) for count in counts]):
            self._show_types(counts)
        if self._is_new("tenants", uses):
            self._show_tenants(uses)
        if self._is_new("failures", [row.id for row in failed]):
            self._show_failures(failed)

    def _is_new(self, what: str, value: object) -> bool:
        """Whether something is not as it was drawn last."""
        if what in self._seen and self._seen[what] == value:
            return False
        self._seen[what] = value
        return True

    def _show_tiles(self, counts: Sequence[Count], uses: dict[str, TenantUse]) -> None:
        self._total = total = sum(count.total for count in counts)
        busy = sum(count.busy for count in counts)
        bad = sum(count.bad for count in counts)
        note = f"{words.amount(busy)} of {words.amount(total)}" + (f", {bad} bad" if bad else "")
        self._devices.show(words.percent(busy, total), note if total else "this machine has no devices")
        waiting = sum(use.waiting for use in uses.values())
        running = sum(use.running for use in uses.values())
        self._queue.show(words.amount(waiting), "held ones included" if waiting else "nobody waits")
        self._running.show(words.amount(running), f"of {words.plural(len(uses), 'tenant')}")

    def _show_types(self, counts: Sequence[Count]) -> None:
        self._types.clear()
        with self._types:
            if not counts:
                empty("This machine has no devices.", "Jobs without GPUs run all the same.")
                return
            for count in counts:
                said = f"{words.amount(count.busy)} busy, {words.amount(count.idle)} idle, {count.bad} bad"
                with html.div().classes("row-label"):
                    html.span(str(count.device_type)).classes("strong ellipsis")
                    html.span(said).classes("muted")
                whole = max(count.total, 1)
                parts = (("busy", count.busy, "busy"), ("idle", count.idle, "idle"), ("bad", count.bad, "bad"))
                bar(parts, whole, f"{count.device_type}: {said}")
            legend((("busy", "busy"), ("idle", "idle"), ("bad: down or drained", "bad")))

    def _show_tenants(self, uses: dict[str, TenantUse]) -> None:
        self._tenants.clear()
        with self._tenants:
            if not uses:
                empty("No tenant has jobs now.")
                return
            busiest = sorted(uses.items(), key=lambda pair: (-pair[1].held, -pair[1].waiting, pair[0]))
            most = max(max(use.held, float(use.guaranteed)) for use in uses.values()) or 1.0
            for name, use in busiest[:MOST_TENANTS]:
                promised = f" of {use.guaranteed} guaranteed" if use.guaranteed else ""
                said = f"{words.amount(use.held)}{promised}" + (
                    f", {words.amount(use.waiting)} waiting" if use.waiting else ""
                )
                with html.div().classes("row-label"):
                    html.a(name, href=f"/jobs?tenant={name}").classes("text-link ellipsis")
                    html.span(said).classes("muted")
                own = min(use.held, use.held - use.borrowed)
                unused = max(use.guaranteed - own, 0.0)
                parts = (("own", own, "own"), ("borrowed", use.borrowed, "borrowed"), ("unused", unused, "unused"))
                bar(parts, max(most, own + use.borrowed + unused), f"{name}: {said}")
            if any(use.guaranteed for use in uses.values()):
                legend((("within guarantee", "own"), ("borrowed", "borrowed"), ("guaranteed, not used", "unused")))
            if len(uses) > MOST_TENANTS:
                link(f"{len(uses) - MOST_TENANTS} more", "/tenants")

    def _show_failures(self, rows: Sequence[Any]) -> None:
        self._failures.clear()
        with self._failures:
            if not rows:
                empty("Nothing has failed.", "Jobs that fail show up here with what they said last.")
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
        self._wait.show(words.duration(average), "on average, last day" if waits else "nothing started in the last day")
        share = [100 * value / total if total else 0.0 for value in day.in_use]
        used = {"name": "devices in use, %", "points": points(day.edges_s, share), "filled": True}
        axis = {"min": 0, "max": 100, "axisLabel": {"formatter": "{value} %", "color": "var(--muted)", "fontSize": 11}}
        self._used.options.clear()
        self._used.options.update(over_time([used], axes=[axis]))
        self._used.update()
        minutes = [None if wait_s is None else round(wait_s / 60, 2) for wait_s in day.wait_s]
        lines = [
            {"name": "jobs waiting", "points": points(day.edges_s, day.waiting), "filled": True},
            {"name": "wait of starters, min", "points": points(day.edges_s, minutes), "axis": 1, "dots": True},
        ]
        self._waiting.options.clear()
        self._waiting.options.update(over_time(lines, axes=[{"min": 0}, {"min": 0}], legend=True))
        self._waiting.update()
