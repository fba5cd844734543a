"""Network: the links between the nodes by layer, and their load over the last day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nicegui import html

from rota.core.errors import RotaError
from rota.live.views.link_day import LinkDay
from rota.network.layers import LinkLayer
from rota.report.link_load import LinkSeries
from rota.web import words
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import card, empty
from rota.web.parts.charts import chart, over_time

MAX_LINES = 8
MAX_ROWS = 50


async def build(context: PageContext) -> None:
    """Build the page."""
    page = NetworkPage(context)
    await page.update()
    context.follow(page.update)


class NetworkPage:
    """The elements of the page that change."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._shown: LinkDay | str | None = None
        with heading("Network", "What jobs send over the links between nodes, as the model of the network has it."):
            pass
        with card("Load of the busiest links", "mean rate over capacity, last 24 hours"):
            self._chart = chart(over_time([], axes=[{"min": 0}]), "Load of the busiest links over the last 24 hours")
        self._tables = html.div().classes("grid truth-grid")

    async def update(self) -> None:
        """Show the topology and the last day."""
        found = await self._found()
        if found == self._shown:
            return
        self._shown = found
        self._tables.clear()
        with self._tables:
            if isinstance(found, str):
                empty("The load of links is not known.", found)
                return
            _show_layers(found.kind, found.layers)
            _show_links(found.series)
        lines = [_line(each, found.until_s) for each in found.series[:MAX_LINES]]
        self._chart.options.clear()
        self._chart.options.update(over_time(lines, axes=[{"min": 0}], legend=True))
        for series in self._chart.options["series"]:
            series["step"] = "end"
        self._chart.update()

    async def _found(self) -> LinkDay | str:
        links = self._context.service.lookout.links
        if links is None:
            return "This manager was started without --network."
        try:
            return await links.day()
        except RotaError as error:
            return str(error)


def _line(series: LinkSeries, until_s: float) -> dict[str, Any]:
    moments = [*zip(series.at_s, series.load, strict=True), (until_s, series.load[-1])]
    return {"name": series.link, "points": [[round(1000 * at_s), round(100 * load, 2)] for at_s, load in moments]}


def _show_layers(kind: str, layers: list[LinkLayer]) -> None:
    rows = [
        (layer.between, words.amount(layer.count), _gbit(layer.bytes_per_s), _gbit(layer.count * layer.bytes_per_s))
        for layer in layers
    ]
    _table("Topology", kind, ("Between", "Links", "Gbit/s each", "Gbit/s in all"), rows)


def _show_links(series: list[LinkSeries]) -> None:
    about = "by mean load" if len(series) <= MAX_ROWS else f"{MAX_ROWS} of {len(series):,}, by mean load"
    rows = [
        (each.link, _gbit(each.bytes_per_s), _percent(each.load[-1]), _percent(each.mean), _percent(each.peak))
        for each in series[:MAX_ROWS]
    ]
    _table("Links in use", about, ("Link", "Gbit/s", "Now", "Mean", "Peak"), rows)


def _table(title: str, about: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    with html.section().classes("card table-card"):
        with html.div().classes("card-head padded"):
            html.h2(title)
            html.span(about).classes("muted")
        if not rows:
            empty("No job has sent anything in the last 24 hours.")
            return
        with html.table().classes("table").props(f'aria-label="{title}"'):
            with html.thead(), html.tr():
                html.th(heads[0], scope="col")
                for head in heads[1:]:
                    html.th(head, scope="col").classes("number")
            with html.tbody():
                for first, *others in rows:
                    with html.tr():
                        html.th(first, scope="row").classes("ellipsis")
                        for value in others:
                            html.td(value).classes("number")


def _gbit(bytes_per_s: float) -> str:
    return f"{8e-9 * bytes_per_s:,.4g}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
