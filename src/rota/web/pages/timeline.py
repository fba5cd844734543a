"""The cluster over time: which job held which devices when, and the queue below."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from nicegui import html, ui
from nicegui.events import ValueChangeEventArguments

from rota.live.views.cluster_timeline import DAY_S, DeviceHold, TimelineWindow, Wait
from rota.report.timeline import lanes
from rota.store import clock
from rota.web import words
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import card, empty, legend, set_text
from rota.web.parts.cluster_chart import ClusterChart
from rota.web.parts.reservations_card import ReservationsCard
from rota.web.topology import OTHER, colours_for

MAX_NODES = 64
MAX_BARS = 4000
"""Bars of one answer; of more, the longest are drawn."""
MAX_QUEUE = 30
"""Rows of the queue."""
MAX_ROWS = 50
SHORTEST_S = 5.0
USUAL_S = 3600.0
SPANS = {600: "10 minutes", 3600: "1 hour", 21600: "6 hours", 86400: "24 hours"}
BY = {"tenant": "Colour by tenant", "job": "Colour by job"}
Json = dict[str, Any]


async def build(context: PageContext) -> None:
    """Build the page."""
    page = TimelinePage(context)
    await page.update()
    context.follow(page.update, every_s=5.0)


class TimelinePage:
    """The elements of the page that change."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        params = context.request.query_params
        now_s = clock.now_s()
        shift_s = clock.shown_s(0.0)
        self._span_s = _bounded(params.get("span", ""), SHORTEST_S, DAY_S, USUAL_S)
        to_s = _bounded(params.get("to", ""), 0.0, math.inf, math.nan) - shift_s
        self._to_s: float | None = to_s if now_s - DAY_S < to_s < now_s else None
        """The end of the window; None follows the present."""
        self._by = params.get("by", "") if params.get("by", "") in BY else "tenant"
        self._rack = params.get("rack", "")[:256]
        self._drawn: object = None
        about = "Which job held which devices when. Drag to move, Ctrl and the wheel or two fingers to zoom."
        with heading("Timeline", about):
            pass
        with card("Devices and queue", wide=True):
            with html.div().classes("filters"):
                ui.select(SPANS, value=None, on_change=self._set_span).props(
                    'outlined dense options-dense aria-label="Length of the window" label="Window"'
                ).classes("filter")
                ui.select(BY, value=self._by, on_change=self._paint_by).props(
                    'outlined dense options-dense aria-label="Colour by"'
                ).classes("filter")
                self._where = html.span().classes("muted").props("role=status")
            self._chart = ClusterChart(self._moved)
            self._legend = html.div()
            self._note = html.p().classes("muted")
        self._reservations = ReservationsCard()
        with html.section().classes("card table-card"):
            with html.div().classes("card-head padded"):
                html.h2("Jobs in this window")
                html.span("by device time").classes("muted")
            with html.table().classes("table").props('aria-label="Jobs in this window"'):
                with html.thead(), html.tr():
                    for title, classes in (
                        ("Job", ""),
                        ("Tenant", "hide-phone"),
                        ("Nodes", "hide-phone"),
                        ("Device time", "number"),
                        ("Waited", "number"),
                    ):
                        html.th(title, scope="col").classes(classes)
                self._body = html.tbody()
            self._none = html.div()

    async def _set_span(self, event: ValueChangeEventArguments[int | None]) -> None:
        if event.value:
            self._span_s, self._to_s = float(event.value), None
            self._remember()
            await self.update()

    async def _paint_by(self, event: ValueChangeEventArguments[str]) -> None:
        self._by = event.value
        self._remember()
        await self.update()

    async def _moved(self, from_ms: float, to_ms: float) -> None:
        """Show another window, which the user has dragged or zoomed to."""
        now_s, shift_s = clock.now_s(), clock.shown_s(0.0)
        if not (math.isfinite(from_ms) and math.isfinite(to_ms)):
            return
        self._span_s = min(max((to_ms - from_ms) / 1000, SHORTEST_S), DAY_S)
        to_s = to_ms / 1000 - shift_s
        self._to_s = max(to_s, now_s - DAY_S + self._span_s) if to_s < now_s - 0.02 * self._span_s else None
        self._remember()
        await self.update()

    def _remember(self) -> None:
        """Put the window into the address, so that it can be shared."""
        parts = [f"span={self._span_s:.0f}"]
        if self._to_s is not None:
            parts.append(f"to={clock.shown_s(self._to_s):.0f}")
        parts += [f"by={self._by}"] if self._by != "tenant" else []
        parts += [f"rack={self._rack}"] if self._rack else []
        ui.navigate.history.replace(f"/timeline?{'&'.join(parts)}")

    async def update(self) -> None:
        """Draw the window as it is now."""
        context = self._context
        to_s = clock.now_s() if self._to_s is None else self._to_s
        window = await context.service.lookout.timeline.window(to_s - self._span_s, to_s)
        known = await asyncio.to_thread(context.service.records.titles, sorted(window.job_ids))
        allowed = context.tenants()
        known = {name: each for name, each in known.items() if allowed is None or each[1] in allowed}
        keeper = context.service.reservations
        self._reservations.show([] if keeper is None else keeper.all())
        self._draw(window, known)

    def _draw(self, window: TimelineWindow, known: dict[str, tuple[str, str, str]]) -> None:
        nodes = [
            {"id": str(account.node.id), "devices": account.node.devices}
            for account in self._context.service.control.state.inventory.nodes
            if account.node.devices and not account.removed and (not self._rack or account.node.rack == self._rack)
        ]
        shown = nodes[:MAX_NODES]
        rows = {node["id"]: index for index, node in enumerate(shown)}
        holds = sorted((hold for hold in window.holds if hold.node in rows), key=lambda hold: -_length_s(hold, window))
        colours = self._colours(window, known)
        bars = [
            _bar(hold, rows[hold.node], first, count, known, colours)
            for hold in holds[:MAX_BARS]
            for first, count in lanes(hold.devices)
        ]
        queue, hidden = queue_rows(window.waits, window.now_s)
        waits = [_wait(wait, row, known, colours) for wait, row in queue]
        self._chart.show(
            {
                "nodes": shown,
                "bars": bars,
                "waits": waits,
                "from": _ms(window.from_s),
                "to": _ms(window.to_s),
                "now": _ms(window.now_s),
                "label": _label(window),
            }
        )
        set_text(
            self._where, f"{words.clock(window.from_s)} to {words.clock(window.to_s)}, {words.duration(self._span_s)}"
        )
        notes = []
        if len(nodes) > len(shown):
            notes.append(
                f"The first {len(shown)} of {len(nodes):,} nodes are shown; choose a rack on the page Cluster."
            )
        if len(holds) > MAX_BARS:
            notes.append(f"The longest {MAX_BARS:,} of {len(holds):,} bars are shown; zoom in for the others.")
        if hidden:
            notes.append(f"{words.plural(hidden, 'more wait')} below the {MAX_QUEUE} rows of the queue.")
        set_text(self._note, " ".join(notes))
        drawn = (colours, [(name, round(value)) for name, value in _device_times_s(window).items()])
        if drawn != self._drawn:
            self._drawn = drawn
            self._show_legend(colours)
            self._show_jobs(window, known)

    def _colours(self, window: TimelineWindow, known: dict[str, tuple[str, str, str]]) -> dict[str, str]:
        """The colour of each tenant or job, as far as they suffice; those with the most device time first."""
        amounts: Counter[str] = Counter()
        for hold in window.holds:
            if hold.job_id in known:
                key = known[hold.job_id][1] if self._by == "tenant" else str(hold.job_id)
                amounts[key] += int(_length_s(hold, window) * hold.devices.bit_count() * hold.milli) + 1
        for wait in window.waits:
            if wait.job_id in known:
                amounts[known[wait.job_id][1] if self._by == "tenant" else str(wait.job_id)] += 0
        found = colours_for(amounts)
        if self._by == "job":
            return found
        return {name: found[each[1]] for name, each in known.items() if each[1] in found} | found

    def _show_legend(self, colours: dict[str, str]) -> None:
        self._legend.clear()
        names = sorted(set(colours.values()))
        with self._legend:
            titles = {colour: name for name, colour in reversed(list(colours.items()))}
            if self._by == "tenant":
                titles = {colour: name for name, colour in colours.items()}
            legend([*((titles[colour], colour) for colour in names), ("others", "other-swatch")])

    def _show_jobs(self, window: TimelineWindow, known: dict[str, tuple[str, str, str]]) -> None:
        times_s, waited_s = _device_times_s(window), _waited_s(window)
        nodes: dict[str, list[str]] = {}
        for hold in window.holds:
            nodes.setdefault(str(hold.job_id), []).append(hold.node)
        ids = sorted({*times_s, *waited_s} & set(known), key=lambda name: (-times_s.get(name, 0.0), name))
        self._body.clear()
        with self._body:
            for name in ids[:MAX_ROWS]:
                title, tenant, _ = known[name]
                with html.tr():
                    with html.td().classes("name-cell"):
                        html.a(f"{name} {title}", href=f"/jobs/{name}").classes("text-link ellipsis")
                    html.td(tenant).classes("hide-phone")
                    on = list(dict.fromkeys(nodes.get(name, ())))
                    html.td(", ".join(on[:4]) + (" …" if len(on) > 4 else "")).classes("hide-phone")
                    html.td(words.duration(times_s.get(name, 0.0))).classes("number nowrap")
                    html.td(words.duration(waited_s.get(name, 0.0))).classes("number nowrap")
        self._none.clear()
        if not ids:
            with self._none:
                empty("No job held devices or waited in this window.", "Choose a longer window.")


def queue_rows(waits: Sequence[Wait], now_s: float) -> tuple[list[tuple[Wait, int]], int]:
    """Give each wait the first row that is free then; return them, and how many found none."""
    placed: list[tuple[Wait, int]] = []
    free = list(range(MAX_QUEUE))
    ends: list[tuple[float, int]] = []
    hidden = 0
    for wait in sorted(waits, key=lambda each: (each.start_s, str(each.job_id))):
        while ends and ends[0][0] <= wait.start_s:
            heapq.heappush(free, heapq.heappop(ends)[1])
        if not free:
            hidden += 1
            continue
        row = heapq.heappop(free)
        heapq.heappush(ends, (now_s if wait.end_s is None else wait.end_s, row))
        placed.append((wait, row))
    return placed, hidden


def _label(window: TimelineWindow) -> str:
    """The chart in words."""
    return (
        f"{words.plural(len(window.job_ids), 'job')} from {words.moment(window.from_s)} to {words.moment(window.to_s)}"
    )


def _length_s(each: DeviceHold | Wait, window: TimelineWindow) -> float:
    end_s = window.now_s if each.end_s is None else each.end_s
    return min(end_s, window.to_s) - max(each.start_s, window.from_s)


def _device_times_s(window: TimelineWindow) -> dict[str, float]:
    found: dict[str, float] = {}
    for hold in window.holds:
        amount = _length_s(hold, window) * hold.devices.bit_count() * hold.milli / 1000
        found[str(hold.job_id)] = found.get(str(hold.job_id), 0.0) + amount
    return found


def _waited_s(window: TimelineWindow) -> dict[str, float]:
    found: dict[str, float] = {}
    for wait in window.waits:
        found[str(wait.job_id)] = found.get(str(wait.job_id), 0.0) + _length_s(wait, window)
    return found


def _bar(
    hold: DeviceHold,
    row: int,
    first: int,
    count: int,
    known: dict[str, tuple[str, str, str]],
    colours: dict[str, str],
) -> list[Any]:
    """A bar as the chart takes it: row, first device, devices, thousandths, start, end, colour, job, title."""
    place = [row, first, count, hold.milli, _ms(hold.start_s), None if hold.end_s is None else _ms(hold.end_s)]
    return [*place, *_title(str(hold.job_id), known, colours)]


def _wait(wait: Wait, row: int, known: dict[str, tuple[str, str, str]], colours: dict[str, str]) -> list[Any]:
    """A wait as the chart takes it: row, start, end, colour, job, title."""
    end = None if wait.end_s is None else _ms(wait.end_s)
    return [row, _ms(wait.start_s), end, *_title(str(wait.job_id), known, colours)]


def _title(job_id: str, known: dict[str, tuple[str, str, str]], colours: dict[str, str]) -> tuple[str, str, str]:
    """The colour, the id and the title of a job; of one that the visitor may not see only that it is another's."""
    if job_id not in known:
        return OTHER, "", "a job of another tenant"
    name, tenant, owner = known[job_id]
    return colours.get(job_id, OTHER), job_id, f"{job_id} {name}, tenant {tenant}" + (f", {owner}" if owner else "")


def _ms(at_s: float) -> int:
    return round(1000 * clock.shown_s(at_s))


def _bounded(text: str, least: float, most: float, otherwise: float) -> float:
    """A number of an address; the other one if it is none, or not within its bounds."""
    try:
        value = float(text)
    except ValueError:
        return otherwise
    return value if least <= value <= most else otherwise
