"""The visitor's own page: what needs attention, active jobs, sweeps, and the usage of the last week."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from nicegui import html, ui

from rota.store.jobs import JobSearch
from rota.store.run_folder import progress
from rota.web import words
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import Tile, button, card, chip, empty, link
from rota.web.parts.charts import chart, over_time
from rota.web.parts.concerns import Concern, found_concerns
from rota.web.sweeps.charts import sweep_chip, value_text
from rota.web.usage.used_time import my_hours

DAYS = 7
MAX_ROWS = 8
MAX_COUNTED = 5000
MAX_FAILED, MAX_SWEEPS = 200, 20
"""Jobs that failed last, and the newest sweeps, among which is looked for what needs attention."""
ACTIVE = ("running", "starting", "waiting", "suspended", "preempted", "held")
Json = dict[str, Any]


async def build(context: PageContext) -> None:
    """Build the page."""
    page = HomePage(context)
    await page.update()
    context.follow(page.update, every_s=10.0)


class HomePage:
    """The elements of the page that change."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._name = context.principal().name
        self._seen: dict[str, object] = {}
        with heading("Home", f"Jobs, sweeps and usage of {self._name}"):
            if context.may_submit:
                button("Submit a job", "add", primary=True).on_click(lambda: ui.navigate.to("/submit"))
        with html.div().classes("tiles"):
            self._running, self._waiting = Tile("My running jobs"), Tile("My waiting jobs")
            self._used, self._attention = Tile("My device time"), Tile("Needs me")
        with html.div().classes("grid"):
            with card("Needs me", "failures of the last day, held jobs, long waits, alerts and budgets", wide=True):
                self._concerns = html.div().classes("stack")
            with card("My jobs", "active, the newest first"):
                self._jobs = html.div().classes("stack")
            with card("My sweeps"):
                self._sweeps = html.div().classes("stack")
            with card("My usage", f"device hours by day, last {DAYS} days", wide=True):
                if context.service.accounts is not None:
                    link("By project, cost, budgets and fair shares", f"/usage?user={quote(self._name)}")
                self._usage = chart({}, f"My device hours on each of the last {DAYS} days", small=True)

    async def update(self) -> None:
        """Show what is the visitor's now."""
        context, name = self._context, self._name
        allowed = context.tenants()
        records = context.service.records

        def mine(states: tuple[str, ...], limit: int, order: str = "seq") -> tuple[Sequence[Any], int]:
            return records.find(JobSearch(states=states, tenants=allowed, owner=name, order=order, limit=limit))

        active, count = await asyncio.to_thread(mine, ACTIVE, MAX_COUNTED)
        running = [row for row in active if row.state in ("running", "starting")]
        self._running.show(words.amount(len(running)), f"{words.plural(count, 'active job')}")
        waiting = [row for row in active if row.state in ("waiting", "preempted", "suspended")]
        held = sum(row.state == "held" for row in active)
        self._waiting.show(words.amount(len(waiting)), f"{held:,} held" if held else "none held")
        hours = await my_hours(context, DAYS)
        self._used.show(f"{sum(value for _, value in hours):,.1f} h", f"device hours, last {DAYS} days")
        sweeps = await self._found_sweeps(allowed)
        failed, _ = await asyncio.to_thread(mine, ("failed",), MAX_FAILED, "ended_s")
        concerns = await found_concerns(context, active, failed, sweeps)
        sweeps = sweeps[:MAX_ROWS]
        self._attention.show(words.amount(len(concerns)), "see below" if concerns else "all is well")
        if self._is_new("concerns", concerns):
            self._show_concerns(concerns)
        await self._show_jobs(active, count)
        if self._is_new("sweeps", sweeps):
            self._show_sweeps(sweeps)
        self._show_usage(hours)

    def _is_new(self, what: str, value: object) -> bool:
        """Whether a value differs from the one drawn last; remembers it."""
        if what in self._seen and self._seen[what] == value:
            return False
        self._seen[what] = value
        return True

    async def _found_sweeps(self, allowed: tuple[str, ...] | None) -> list[Json]:
        parts = self._context.service.sweeps
        if parts is None:
            return []
        owner = self._name
        return await asyncio.to_thread(parts.views.listed, allowed, live_only=False, limit=MAX_SWEEPS, owner=owner)

    def _show_concerns(self, concerns: Sequence[Concern]) -> None:
        self._concerns.clear()
        with self._concerns:
            if not concerns:
                empty("Nothing needs you.", "Failed and held jobs, and long waits, appear here.")
            for each in concerns[:MAX_ROWS]:
                with html.a(href=each.target).classes("list-row"):
                    if each.label:
                        html.span(each.label).classes(f"chip chip-{each.state}")
                    else:
                        chip(each.state)
                    html.span(each.title).classes("strong ellipsis")
                    html.span(each.why, title=each.why).classes("muted ellipsis grow")
                    html.span("now" if each.at_s is None else words.ago(each.at_s)).classes("muted nowrap")
            if len(concerns) > MAX_ROWS:
                html.p(f"and {len(concerns) - MAX_ROWS:,} more").classes("muted")

    async def _show_jobs(self, rows: Sequence[Any], count: int) -> None:
        shown = rows[:MAX_ROWS]
        home = self._context.service.home
        reports = await asyncio.to_thread(lambda: [progress(home, row.id) for row in shown])
        lines = [(row, _progress_text(report, row)) for row, report in zip(shown, reports, strict=True)]
        if not self._is_new("jobs", ([(row.id, row.state, text) for row, text in lines], count)):
            return
        self._jobs.clear()
        with self._jobs:
            if not lines:
                empty("You have no active jobs.", "Submit one: rota submit --gpus 1 -- python train.py")
            for row, text in lines:
                with html.a(href=f"/jobs/{row.id}").classes("list-row"):
                    chip(row.state)
                    html.span(row.name).classes("strong ellipsis")
                    html.span(text).classes("muted ellipsis grow")
            if count > len(lines):
                link(f"All {count:,} active jobs", f"/jobs?q={self._name}&state=live")

    def _show_sweeps(self, sweeps: Sequence[Json]) -> None:
        self._sweeps.clear()
        with self._sweeps:
            if not sweeps:
                empty("You have no sweeps.", "Start one: rota sweep search.yaml")
            for sweep in sweeps:
                with html.a(href=f"/sweeps/{sweep['id']}").classes("list-row"):
                    sweep_chip(sweep["state"])
                    html.span(sweep["name"]).classes("strong ellipsis")
                    text = f"{sweep['begun']} of {sweep['trials']} trials, best {value_text(sweep['best'])}"
                    html.span(text).classes("muted ellipsis grow")

    def _show_usage(self, hours: Sequence[tuple[str, float]]) -> None:
        if not self._is_new("usage", [round(value, 3) for _, value in hours]):
            return
        options = over_time([], axes=[{"min": 0}])
        options["xAxis"] = {**options["xAxis"], "type": "category", "data": [day for day, _ in hours]}
        values = [round(value, 4) for _, value in hours]
        bars = {"type": "bar", "name": "device hours", "data": values, "barMaxWidth": 40}
        options["series"] = [{**bars, "itemStyle": {"color": "var(--c1)"}}]
        self._usage.options.clear()
        self._usage.options.update(options)
        self._usage.update()


def _progress_text(report: Json | None, row: Any) -> str:
    if row.state not in ("running", "starting") or report is None:
        since_s = row.submitted_s if row.started_s is None else row.started_s
        return f"{'submitted' if row.started_s is None else 'started'} {words.ago(since_s)}"
    of = f" of {report['steps']:,}" if "steps" in report else ""
    values = ", ".join(f"{name} {value:.4g}" for name, value in list(report["values"].items())[:2])
    return f"step {report['step']:,}{of}" + (f", {values}" if values else "")
