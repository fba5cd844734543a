"""All jobs: searched, filtered, sorted and paged by the database, so that any number can be listed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from nicegui import html, ui
from nicegui.events import ValueChangeEventArguments

from rota.api.wire import job_out
from rota.store import clock
from rota.store.jobs import MOST_IDS, JobSearch
from rota.web import words
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import button, chip, empty, set_text

PAGE = 50
SHORTEST = 3
"""How long a text is that is looked for in outputs."""
PAGE_NUMBER = re.compile("[0-9]{1,9}")
AGES_EVERY_S = 30.0
LIVE = ("running", "starting", "waiting", "suspended", "preempted", "held")
ENDED = ("succeeded", "failed", "cancelled")
SHOWN = {"": "All jobs", "live": "Active", "ended": "Ended", **{state: state.capitalize() for state in words.STATES}}
COLUMNS: tuple[tuple[str, str, str | None], ...] = (
    ("Job", "seq", None),
    ("Name", "name", None),
    ("State", "state", None),
    ("Tenant", "tenant", "hide-phone"),
    ("GPUs", "", "number"),
    ("Submitted", "submitted_s", "hide-phone"),
    ("Started", "started_s", "hide-narrow"),
    ("Duration", "", "number hide-narrow"),
    ("Reason", "", "hide-phone grow"),
)
"""Title, the field to sort by, CSS classes."""
SORTABLE = frozenset(field for _, field, _ in COLUMNS if field)


async def build(context: PageContext) -> None:
    """Build the page."""
    page = JobsPage(context)
    await page.update()
    context.follow(page.update, every_s=30.0)


class JobsPage:
    """The search, and the jobs it found."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        params = context.request.query_params
        self._text = params.get("q", "")[:128]
        self._shown = params.get("state", "") if params.get("state", "") in SHOWN else ""
        self._tenant = params.get("tenant", "")[:128]
        self._array = params.get("array", "")[:64]
        self._order = params.get("sort", "seq") if params.get("sort", "seq") in SORTABLE else "seq"
        self._descending = params.get("up") is None
        self._page = max(int(params["page"]) - 1, 0) if PAGE_NUMBER.fullmatch(params.get("page", "")) else 0
        self._drawn: object = None
        self._arrays: dict[str, dict[str, int]] = {}
        """The number of jobs by state of each array that is shown as one row."""
        self._build()

    def _build(self) -> None:
        with heading(f"Jobs of array {self._array}" if self._array else "Jobs"):
            if self._array:
                button("All jobs", "arrow_back").on_click(lambda: ui.navigate.to("/jobs"))
            if self._context.may_submit:
                button("Submit a job", "add", primary=True).on_click(lambda: ui.navigate.to("/submit"))
        with html.div().classes("filters"):
            search = ui.input(
                placeholder="Name, owner, ID or words of the output", value=self._text, on_change=self._set("_text")
            ).props('outlined dense clearable aria-label="Search by name, owner or ID"')
            with search.add_slot("prepend"):
                ui.icon("search").props("aria-hidden=true")
            ui.select(SHOWN, value=self._shown, on_change=self._set("_shown")).props(
                'outlined dense options-dense aria-label="State"'
            ).classes("filter")
            tenants = sorted({self._tenant} - {""})
            self._tenants = (
                ui.select(
                    {"": "All tenants", **{name: name for name in tenants}},
                    value=self._tenant,
                    on_change=self._set("_tenant"),
                )
                .props('outlined dense options-dense aria-label="Tenant"')
                .classes("filter")
            )
            self._found = html.span().classes("muted found").props("role=status")
        with html.div().classes("card table-card"):
            with html.table().classes("table").props('aria-label="Jobs"'):
                with html.thead(), html.tr():
                    self._heads = [self._head(*column) for column in COLUMNS]
                self._body = html.tbody()
            self._empty_state = html.div()
        with html.nav().classes("pager").props('aria-label="Pages of jobs"'):
            self._back = ui.button("Newer", icon="chevron_left", color=None, on_click=lambda: self._turn(-1))
            self._where = html.span().classes("muted")
            self._next = ui.button("Older", color=None, on_click=lambda: self._turn(1)).props(
                "icon-right=chevron_right"
            )
            for each in (self._back, self._next):
                each.props("outline no-caps dense").classes("plain")

    def _head(self, title: str, field: str, classes: str | None) -> Any:
        with html.th(scope="col").classes(classes or "") as head:
            if field:
                with html.button(type="button").classes("sort").on("click", lambda: self._sort(field)):
                    html.span(title)
                    ui.icon("unfold_more").props("aria-hidden=true").classes("sort-icon")
            else:
                html.span(title)
        return head

    def _set(self, name: str) -> Any:
        async def changed(event: ValueChangeEventArguments[str | None]) -> None:
            setattr(self, name, event.value or "")
            self._page = 0
            await self.update()
            self._remember()

        return changed

    async def _sort(self, field: str) -> None:
        self._descending = not self._descending if field == self._order else field.endswith("_s") or field == "seq"
        self._order, self._page = field, 0
        await self.update()
        self._remember()

    async def _turn(self, pages: int) -> None:
        self._page = max(self._page + pages, 0)
        await self.update()
        self._remember()

    def _remember(self) -> None:
        """Put the search into the address, so that it can be shared or bookmarked."""
        params = {"q": self._text, "state": self._shown, "tenant": self._tenant, "array": self._array}
        params |= {"sort": self._order if self._order != "seq" else "", "up": "" if self._descending else "1"}
        params["page"] = str(self._page + 1) if self._page else ""
        query = urlencode({name: value for name, value in params.items() if value})
        ui.navigate.history.replace(f"/jobs?{query}" if query else "/jobs")

    def _search(self) -> JobSearch:
        states = {"": (), "live": LIVE, "ended": ENDED}.get(self._shown, (self._shown,))
        allowed = self._context.tenants()
        tenants = allowed
        if self._tenant:
            tenants = (self._tenant,) if allowed is None or self._tenant in allowed else ()
        return JobSearch(
            states=states,
            tenants=tenants,
            text=self._text.strip(),
            array=self._array or None,
            order=self._order,
            descending=self._descending,
            offset=self._page * PAGE,
            limit=PAGE,
        )

    def _widened(self, search: JobSearch) -> JobSearch:
        """The search with the jobs that have its words in their commands, labels, messages or outputs."""
        index = self._context.service.search
        if index is None or len(search.text) < SHORTEST:
            return search
        return replace(search, also=tuple(index.matching(search.text, search.tenants, MOST_IDS)))

    async def update(self) -> None:
        """Run the search again and show the result."""
        records, search = self._context.service.records, self._search()
        rows, total = await asyncio.to_thread(records.find, await asyncio.to_thread(self._widened, search))
        names = await asyncio.to_thread(records.tenant_names)
        self._show_tenants([name for name in names if (allowed := self._context.tenants()) is None or name in allowed])
        arrays = [row.array_id for row in rows if row.array_id is not None and not self._array]
        counts = await asyncio.to_thread(records.array_counts, arrays)
        if search != self._search():  # the user has searched for something else meanwhile
            return
        self._arrays, first = counts, self._page * PAGE
        set_text(self._found, f"{words.plural(total, 'job')}")
        set_text(self._where, f"{first + 1:,}–{first + len(rows):,} of {total:,}" if rows else "")
        self._back.set_enabled(self._page > 0)
        self._next.set_enabled(first + len(rows) < total)
        ages = int(clock.now_s() // AGES_EVERY_S)
        drawn = ([(row.id, row.version, row.state) for row in rows], self._order, self._descending, ages, self._arrays)
        if drawn != self._drawn:
            self._drawn = drawn
            self._show(rows)

    def _show_tenants(self, names: Sequence[str]) -> None:
        options = {"": "All tenants", **{name: name for name in names}}
        if self._tenant:
            options.setdefault(self._tenant, self._tenant)
        if options != self._tenants.options:
            self._tenants.set_options(options, value=self._tenant)

    def _show(self, rows: Sequence[Any]) -> None:
        for head, (_, field, _) in zip(self._heads, COLUMNS, strict=True):
            chosen = field != "" and field == self._order
            head.props["aria-sort"] = ("descending" if self._descending else "ascending") if chosen else "none"
            head.update()
        self._body.clear()
        with self._body:
            for row in rows:
                self._row(row)
        self._empty_state.clear()
        if not rows:
            with self._empty_state:
                filtered = self._text or self._shown or self._tenant
                empty(
                    "No jobs match." if filtered else "No jobs yet.",
                    "Change the search or clear the filters."
                    if filtered
                    else "Submit one here, or with: rota submit --gpus 1 -- python train.py",
                )

    def _row(self, row: Any) -> None:
        shown = job_out(row, self._context.service.control)
        reason = shown["reason"]["sentence"] if shown["reason"] else row.message
        with html.tr():
            with html.td():
                html.a(row.id, href=f"/jobs/{row.id}").classes("text-link mono")
            states = self._arrays.get(row.array_id or "", {})
            is_array = sum(states.values()) > 1
            with html.td().classes("name-cell"):
                html.a(row.name, href=f"/jobs/{row.id}", title=row.name).classes("plain-link ellipsis")
                if is_array:
                    opened = f"/jobs?array={row.array_id}"
                    html.a(f"Open {sum(states.values()):,} jobs", href=opened).classes("text-link nowrap")
            with html.td():
                for state in sorted(states) if is_array else [row.state]:
                    chip(state, f"{states[state]:,} " if is_array else "")
            html.td(row.tenant).classes("hide-phone ellipsis narrow-cell")
            html.td(words.amount(shown["gpus"])).classes("number")
            html.td(words.ago(row.submitted_s), title=words.moment(row.submitted_s)).classes("hide-phone nowrap")
            html.td(words.ago(row.started_s), title=words.moment(row.started_s)).classes("hide-narrow nowrap")
            run_s = None if row.ended_s is None or row.started_s is None else row.ended_s - row.started_s
            html.td(words.duration(run_s)).classes("number hide-narrow nowrap")
            html.td(reason or "", title=reason or "").classes("hide-phone muted note-cell")
