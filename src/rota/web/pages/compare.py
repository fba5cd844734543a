"""Jobs side by side: their curves, what they used, and the settings in which they differ."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from nicegui import html, ui

from rota.api.jobs import visible
from rota.api.wire import job_out
from rota.core.model.job import JobId
from rota.live.intake.requests import NotFound
from rota.live.views.compare import compared
from rota.live.views.device_time import device_times_s
from rota.store import clock
from rota.store.run_folder import curve
from rota.web import words
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import button, card, chip, empty, set_text
from rota.web.parts.charts import PALETTE, chart, over_time
from rota.web.parts.compared import TITLES

MAX_JOBS = 8
SEPARATORS = re.compile(r"[\s,]+")
Json = dict[str, Any]
Table = list[tuple[str, list[str]]]


async def build(context: PageContext) -> None:
    """Build the page."""
    page = ComparePage(context)
    await page.update()
    context.follow(page.update, about=lambda news: str(news.job_id) in page.wanted, every_s=5.0)


def asked_for(text: str) -> list[str]:
    """Return the ids of a list of jobs, each once."""
    return list(dict.fromkeys(each[:64] for each in SEPARATORS.split(text) if each))


class ComparePage:
    """The elements of the page that change."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self.wanted = asked_for(context.request.query_params.get("jobs", "")[:1024])[:MAX_JOBS]
        self._metric = context.request.query_params.get("metric", "")[:64]
        self._drawn: dict[str, object] = {}
        with heading("Compare", "Jobs side by side. The address of this page can be shared."):
            pass
        with html.div().classes("filters"):
            self._field = ui.input(placeholder="Job ids, such as 12, 15", value=", ".join(self.wanted)).props(
                f'outlined dense aria-label="Job ids, {MAX_JOBS} at most"'
            )
            self._field.on("keydown.enter", self._choose)
            button("Compare", "compare_arrows", primary=True).on_click(self._choose)
            self._metrics = (
                ui.select({}, on_change=self._choose_metric)
                .props('outlined dense options-dense aria-label="Metric"')
                .classes("filter")
            )
            self._note = html.span().classes("muted").props("role=status")
        self._none = html.div()
        with html.div().classes("grid") as self._cards, card("Curves", "by step", wide=True):
            self._curves = chart({}, "A metric of each job by step")
        self._tables = html.div().classes("stack compare-tables")

    async def _choose(self) -> None:
        named = asked_for(str(self._field.value or ""))
        self.wanted = named[:MAX_JOBS]
        self._remember()
        await self.update()
        if len(named) > MAX_JOBS:
            set_text(self._note, f"The first {MAX_JOBS} of {len(named)} jobs are shown.")

    async def _choose_metric(self, event: Any) -> None:
        if event.value and event.value != self._metric:
            self._metric = event.value
            self._remember()
            await self.update()

    def _remember(self) -> None:
        """Put the jobs into the address, so that it can be shared."""
        metric = f"&metric={quote(self._metric)}" if self._metric else ""
        ui.navigate.history.replace(f"/compare?jobs={quote(','.join(self.wanted), safe=',')}{metric}")

    async def update(self) -> None:
        """Show the jobs as they are now."""
        context = self._context
        rows, missing = [], []
        for job_id in self.wanted:
            try:
                rows.append(await visible(context.service, context.principal(), job_id))
            except NotFound:
                missing.append(job_id)
        set_text(self._note, f"There is no job {', '.join(missing)}, or you may not see it." if missing else "")
        self._cards.set_visibility(bool(rows))
        await self._show_curves(rows)
        settings, use = self._settings(rows), await self._use(rows)
        drawn = ([(row.id, row.name, row.state) for row in rows], settings, use)
        if self._drawn.get("tables") != drawn:
            self._drawn["tables"] = drawn
            self._show_tables(rows, settings, use)

    async def _show_curves(self, rows: Sequence[Any]) -> None:
        home = self._context.service.home
        found = await asyncio.to_thread(lambda: [curve(home, JobId(row.id)) for row in rows])
        names = sorted({name for points in found for _, _, values in points for name in values})
        if names and self._metric not in names:
            self._metric = names[0]
        if self._drawn.get("metrics") != (names, self._metric):
            self._drawn["metrics"] = (names, self._metric)
            self._metrics.set_options(names, value=self._metric if names else None)
            self._metrics.set_visibility(len(names) > 1)
        lines = [
            {
                "name": f"{row.id} {row.name}",
                "points": [[step, values[self._metric]] for _, step, values in points if self._metric in values],
                "colour": PALETTE[index],
            }
            for index, (row, points) in enumerate(zip(rows, found, strict=True))
        ]
        options = over_time(
            [line for line in lines if line["points"]], axes=[{"scale": True, "name": self._metric}], legend=True
        )
        options["xAxis"] |= {"type": "value", "name": "step", "nameLocation": "middle", "nameGap": 24, "scale": True}
        options["xAxis"] |= {"nameTextStyle": options["xAxis"]["axisLabel"], "splitLine": {"show": False}}
        options["yAxis"][0]["nameTextStyle"] = options["xAxis"]["axisLabel"]
        options["grid"] |= {"bottom": 36, "top": 52}
        self._cards.set_visibility(any(line["points"] for line in lines))
        if self._curves.options != options:
            self._curves.options.clear()
            self._curves.options.update(options)
            self._curves.update()

    def _settings(self, rows: Sequence[Any]) -> Table:
        """The settings of the job files as lines, in the order of the first job's."""
        specs = []
        for row in rows:
            is_own = self._context.principal().may_act_on(row.tenant, row.owner)
            spec = job_out(row, self._context.service.control, whole=True, shows_env=is_own)["spec"]
            specs.append(flat(spec))
        names = list(dict.fromkeys(name for spec in specs for name in spec))
        return [(name, [spec.get(name, "–") for spec in specs]) for name in names]

    async def _use(self, rows: Sequence[Any]) -> Table:
        """What each job used, and how long it waited and ran."""
        service, now_s = self._context.service, clock.now_s()
        times_s = await asyncio.to_thread(device_times_s, service.control, service.records, [row.id for row in rows])
        used = [
            {line["what"]: line["used"] for line in await compared(row, service.home, None, service.defaults)}
            for row in rows
        ]
        table: Table = [
            ("Tenant", [row.tenant for row in rows]),
            ("Owner", [row.owner or "–" for row in rows]),
            ("Waited", [words.duration((row.started_s or row.ended_s or now_s) - row.submitted_s) for row in rows]),
            (
                "Since its first start",
                [
                    words.duration(None if row.started_s is None else (row.ended_s or now_s) - row.started_s)
                    for row in rows
                ],
            ),
            ("Device time", [words.duration(times_s.get(row.id)) for row in rows]),
            ("Attempts", [f"{row.attempt}" for row in rows]),
            ("Exit code", ["–" if row.exit_code is None else f"{row.exit_code}" for row in rows]),
        ]
        for what, title in TITLES.items():
            if any(each.get(what) for each in used):
                table.append((f"{title} used per task", [_amount(what, each.get(what)) for each in used]))
        return table

    def _show_tables(self, rows: Sequence[Any], settings: Table, use: Table) -> None:
        self._none.clear()
        self._tables.clear()
        if not rows:
            with self._none:
                empty("Name the jobs to compare.", "Their ids are on the page Jobs, and `rota ps` prints them.")
            return
        differ = [line for line in settings if len(set(line[1])) > 1]
        same = [line for line in settings if len(set(line[1])) == 1]
        with self._tables:
            _table("Use", rows, use)
            if len(rows) > 1:
                _table("Settings that differ", rows, differ)
            if same or len(rows) == 1:
                _table("Settings in common" if len(rows) > 1 else "Settings", rows, same)


def flat(value: Any, prefix: str = "") -> dict[str, str]:
    """The values of a job file by dotted name, as text; a script or list is one value."""
    if isinstance(value, dict):
        found: dict[str, str] = {}
        for name, each in value.items():
            found |= flat(each, f"{prefix}.{name}" if prefix else str(name))
        return found
    if value is None:
        return {}
    text = " ".join(str(each) for each in value) if isinstance(value, list) else str(value)
    return {prefix: text}


def _table(title: str, rows: Sequence[Any], lines: Table) -> None:
    with html.section().classes("card table-card").props(f'tabindex=0 role=region aria-label="{title}"'):
        with html.div().classes("card-head padded"):
            html.h2(title)
        with html.table().classes("table").props(f'aria-label="{title}"'):
            with html.thead(), html.tr():
                html.td("")
                for index, row in enumerate(rows):
                    with html.th(scope="col"):
                        html.span().classes(f"swatch c{index + 1}").props("aria-hidden=true")
                        html.a(f" {row.id} {row.name} ", href=f"/jobs/{row.id}").classes("text-link")
                        chip(row.state)
            with html.tbody():
                for name, values in lines:
                    with html.tr():
                        html.th(name, scope="row")
                        for value in values:
                            html.td(value, title=value).classes("note-cell")
        if not lines:
            empty("None.")


def _amount(what: str, value: float | None) -> str:
    if not value:
        return "–"
    return words.size(value) if what in ("memory", "gpu_memory") else f"{value:.3g}"
