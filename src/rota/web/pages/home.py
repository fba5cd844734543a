"""The visitor's own page: what needs attention, active jobs, sweeps, and the usage of the last week."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import html, ui

from rota.api.wire import job_out
from rota.live.views.device_time import device_times_s
from rota.store import clock
from rota.store.jobs import JobSearch
from rota.store.run_folder import progress
from rota.web import words
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import Tile, button, card, chip, empty, link
from rota.web.parts.charts import chart, over_time
from rota.web.sweeps.charts import sweep_chip, value_text

DAY_S = 86400.0
DAYS = 7
MAX_ROWS = 8
MAX_COUNTED = 5000
"""Jobs of the week of which the usage is added up."""
ACTIVE = ("running", "starting", "waiting", "suspended", "preempted", "held")
LONG_WAIT_S = 3600.0
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """Something that the visitor should look at."""

    state: str
    title: str
    why: str
    target: str
    at_s: float


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
            with card("Needs me", "failures of the last day, held jobs, long waits", wide=True):
                self._concerns = html.div().classes("stack")
            with card("My jobs", "active, the newest first"):
                self._jobs = html.div().classes("stack")
            with card("My sweeps"):
                self._sweeps = html.div().classes("stack")
            with card("My usage", f"device hours by day of submission, last {DAYS} days", wide=True):
                self._usage = chart({}, f"My device hours on each of the last {DAYS} days", small=True)

    async def update(self) -> None:
        """Show what is the visitor's now."""
        context, name, now_s = self._context, self._name, clock.now_s()
        allowed = context.tenants()
        records = context.service.records

        def mine(states: tuple[str, ...], limit: int, order: str = "seq") -> tuple[Sequence[Any], int]:
            return records.find(JobSearch(states=states, tenants=allowed, owner=name, order=order, limit=limit))

        active, count = await asyncio.to_thread(mine, ACTIVE, MAX_COUNTED)
        failed, _ = await asyncio.to_thread(mine, ("failed",), MAX_ROWS, "ended_s")
        recent, _ = await asyncio.to_thread(mine, (), MAX_COUNTED)
        week = [row for row in recent if row.submitted_s > now_s - DAYS * DAY_S]
        times_s = await asyncio.to_thread(
            device_times_s, context.service.control, records, list({row.id for row in (*active, *week)})
        )
        running = [row for row in active if row.state in ("running", "starting")]
        self._running.show(words.amount(len(running)), f"{words.plural(count, 'active job')}")
        waiting = [row for row in active if row.state in ("waiting", "preempted", "suspended")]
        held = sum(row.state == "held" for row in active)
        self._waiting.show(words.amount(len(waiting)), f"{held:,} held" if held else "none held")
        hours = sum(times_s.values()) / 3600
        self._used.show(f"{hours:,.1f} h", f"device hours, last {DAYS} days")
        sweeps = await self._found_sweeps(allowed)
        concerns = self._found_concerns(active, failed, sweeps, now_s)
        self._attention.show(words.amount(len(concerns)), "see below" if concerns else "all is well")
        if self._is_new("concerns", concerns):
            self._show_concerns(concerns)
        await self._show_jobs(active, count)
        if self._is_new("sweeps", sweeps):
            self._show_sweeps(sweeps)
        self._show_usage(week, times_s, now_s)

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
        found = await asyncio.to_thread(parts.views.listed, allowed, live_only=False, limit=200)
        return [sweep for sweep in found if sweep["owner"] == self._name][:MAX_ROWS]

    def _found_concerns(
        self, active: Sequence[Any], failed: Sequence[Any], sweeps: Sequence[Json], now_s: float
    ) -> list[Concern]:
        """What needs the visitor: failures of the last day, held jobs, and jobs that have waited long."""
        since_s = now_s - DAY_S
        found = [
            Concern(
                state="failed",
                title=row.name,
                why=row.message or f"exit code {row.exit_code}",
                target=f"/jobs/{row.id}",
                at_s=row.ended_s,
            )
            for row in failed
            if row.ended_s is not None and row.ended_s > since_s
        ]
        for row in active:
            if row.state == "held" and not self._is_trial(row, sweeps):
                found.append(_concern(row, "held: release it, and it becomes eligible to start"))
            elif row.state == "waiting" and row.submitted_s < now_s - LONG_WAIT_S:
                reason = job_out(row, self._context.service.control)["reason"]
                found.append(_concern(row, reason["sentence"] if reason else "waits for devices"))
        found += [
            Concern(
                state="failed",
                title=f"sweep {sweep['name']}",
                why=sweep["why"],
                target=f"/sweeps/{sweep['id']}",
                at_s=sweep["ended_s"],
            )
            for sweep in sweeps
            if sweep["state"] == "failed" and sweep["ended_s"] > since_s
        ]
        return sorted(found, key=lambda each: -each.at_s)[:MAX_ROWS]

    def _is_trial(self, row: Any, sweeps: Sequence[Json]) -> bool:
        """Whether a held job is a paused trial, which its sweep releases."""
        return any(row.name.startswith(f"{sweep['name']}-") for sweep in sweeps if sweep["state"] == "running")

    def _show_concerns(self, concerns: Sequence[Concern]) -> None:
        self._concerns.clear()
        with self._concerns:
            if not concerns:
                empty("Nothing needs you.", "Failed and held jobs, and long waits, appear here.")
            for each in concerns:
                with html.a(href=each.target).classes("list-row"):
                    chip(each.state)
                    html.span(each.title).classes("strong ellipsis")
                    html.span(each.why, title=each.why).classes("muted ellipsis grow")
                    html.span(words.ago(each.at_s)).classes("muted nowrap")

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

    def _show_usage(self, rows: Sequence[Any], times_s: dict[str, float], now_s: float) -> None:
        hours = [0.0] * DAYS
        for row in rows:
            hours[DAYS - 1 - min(int((now_s - row.submitted_s) // DAY_S), DAYS - 1)] += times_s.get(row.id, 0.0) / 3600
        edges_s = [now_s - DAY_S * (DAYS - 1 - day) for day in range(DAYS)]
        at = [[round(clock.shown_s(at_s) * 1000), round(value, 3)] for at_s, value in zip(edges_s, hours, strict=True)]
        options = over_time([{"name": "device hours", "points": at}], axes=[{"min": 0}])
        options["series"][0] |= {"type": "bar", "barMaxWidth": 40, "itemStyle": {"color": "var(--c1)"}}
        if self._is_new("usage", [value for _, value in at]):
            self._usage.options.clear()
            self._usage.options.update(options)
            self._usage.update()


def _concern(row: Any, why: str) -> Concern:
    return Concern(state=row.state, title=row.name, why=why, target=f"/jobs/{row.id}", at_s=row.submitted_s)


def _progress_text(report: Json | None, row: Any) -> str:
    if row.state not in ("running", "starting") or report is None:
        since_s = row.submitted_s if row.started_s is None else row.started_s
        return f"{'submitted' if row.started_s is None else 'started'} {words.ago(since_s)}"
    of = f" of {report['steps']:,}" if "steps" in report else ""
    values = ", ".join(f"{name} {value:.4g}" for name, value in list(report["values"].items())[:2])
    return f"step {report['step']:,}{of}" + (f", {values}" if values else "")
