"""Truth: forecasts and simulations against what happened."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from nicegui import html, ui

from rota.core.errors import RotaError, Unavailable
from rota.live.truth.attribution import CauseRow
from rota.live.truth.scores import ScoredMoment, TruthRow
from rota.live.truth.summary import TruthTables
from rota.live.workers.whatif import Answer
from rota.web import words
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import Tile, button, card, empty, set_text
from rota.web.parts.charts import chart, over_time

T = TypeVar("T")
DAYS = {1: "Last day", 7: "Last 7 days", 30: "Last 30 days"}
MOMENTS = {ScoredMoment.START.value: "Starts", ScoredMoment.END.value: "Ends"}
GROUPS = {"policy": "By policy", "horizon": "By horizon", "kind": "By kind of run time", "size": "By size"}
WANTED = (0.85, 0.95)
"""Coverage of 90% ranges within which all is well."""
COMPARED = (
    ("Mean completion time", "avg_jct_s"),
    ("Median completion time", "median_jct_s"),
    ("99th percentile of completion time", "p99_jct_s"),
    ("Mean wait", "avg_wait_s"),
    ("Makespan", "makespan_s"),
)


async def build(context: PageContext) -> None:
    """Build the page."""
    page = TruthPage(context)
    await page.update()
    context.follow(page.update, every_s=60.0)


class TruthPage:
    """The scores of forecasts, and the comparison with a simulation on request."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._shown: TruthTables | None = None
        about = "Forecasts at submission and on request, compared with what then happened."
        with heading("Truth", about), html.div().classes("filters"):
            self._moment = ui.select(MOMENTS, value=ScoredMoment.START.value, label="Moment")
            self._days = ui.select(DAYS, value=7, label="Period")
            for field in (self._moment, self._days):
                field.props("outlined dense options-dense stack-label").on_value_change(self._choose)
        with html.div().classes("tiles"):
            self._coverage, self._median = Tile("In the 90% range"), Tile("Median error")
            self._p90, self._stretch = Tile("90th percentile of the error"), Tile("Ranges are stretched")
        with card("Over time", "share of starts or ends within their 90% range, and median error"):
            self._chart = chart(over_time([], axes=[{"min": 0, "max": 100}]), "Coverage and median error over time")
        self._groups = html.div().classes("grid truth-grid")
        if context.may_study:
            self._build_simulation()

    def _build_simulation(self) -> None:
        with card("Simulated against real", "the same jobs under the present policy"):
            self._status = html.div().classes("verdict").props("role=status")
            self._simulated = html.div()
            with self._simulated:
                empty("Simulate the jobs of the period, and compare their completion times with the real ones.")
            with html.div():
                self._button = button("Simulate", "play_arrow", primary=True)
            self._button.on_click(self._simulate)

        with card("What explains the error", "past forecasts of starts, made again with the truth"):
            self._why_status = html.div().classes("verdict").props("role=status")
            self._why = html.div()
            with self._why:
                empty("Make past forecasts again, with one assumption at a time replaced by what really happened.")
            with html.div():
                self._why_button = button("Explain", "troubleshoot")
            self._why_button.on_click(self._explain)

    async def _explain(self) -> None:
        days = float(self._days.value or 7)
        found = await self._attempt(
            self._why_status,
            self._why_button,
            "Making past forecasts again …",
            self._context.service.truth.causes(days),
        )
        if found is not None:
            set_text(self._why_status, f"{words.plural(found[0].forecasts, 'forecast')} made again.")
            self._why.clear()
            with self._why:
                _show_causes(found)

    async def _attempt(self, status: Any, pressed: Any, text: str, work: Awaitable[T]) -> T | None:
        """Show that something is computed, and return it; its error is shown, and None returned."""
        status.classes(replace="verdict")
        set_text(status, text)
        pressed.disable()
        try:
            found = await work
        except (RotaError, Unavailable) as error:
            status.classes(replace="verdict refused")
            set_text(status, str(error))
            return None
        finally:
            pressed.enable()
        status.classes(replace="verdict accepted")
        return found

    async def _choose(self) -> None:
        await self.update()

    async def update(self) -> None:
        """Show the scores of the period."""
        truth = self._context.service.truth
        moment = ScoredMoment(self._moment.value)
        tables = await truth.tables(float(self._days.value or 7), moment, self._context.tenants())
        if self._shown == tables:
            return
        self._shown = tables
        row = tables.all
        overdue = f", {row.overdue:,} overdue" if row.overdue else ""
        self._coverage.show(_percent(row.coverage), f"{words.plural(row.forecasts, 'forecast')} scored{overdue}")
        self._median.show(_percent(row.median_error), f"of the time to the {moment.value}")
        self._p90.show(_percent(row.p90_error), f"of the time to the {moment.value}")
        factors = truth.factors()[moment.value]
        note = f"below and above the median, by {words.plural(factors['seen'], 'forecast')}"
        self._stretch.show(f"{factors['below']:.2f}× / {factors['above']:.2f}×", note)
        self._show_over_time(tables.over_time)
        self._groups.clear()
        with self._groups:
            for name, title in GROUPS.items():
                _table(title, tables.groups[name])

    def _show_over_time(self, rows: Sequence[TruthRow]) -> None:
        at_ms = [datetime.fromisoformat(row.group).timestamp() * 1000 for row in rows]
        lines: list[dict[str, Any]] = [
            {
                "name": "in the 90% range, %",
                "points": [[at, _hundred(row.coverage)] for at, row in zip(at_ms, rows, strict=True)],
            },
            {
                "name": "median error, %",
                "points": [[at, _hundred(row.median_error)] for at, row in zip(at_ms, rows, strict=True)],
                "axis": 1,
            },
        ]
        self._chart.options.clear()
        self._chart.options.update(over_time(lines, axes=[{"min": 0, "max": 100}, {"min": 0}], legend=True))
        for series in self._chart.options["series"]:
            series["showSymbol"] = True
        self._chart.update()

    async def _simulate(self) -> None:
        days = float(self._days.value or 7)
        answer = await self._attempt(
            self._status,
            self._button,
            "Simulating …",
            self._context.service.truth.simulated(self._context.cluster, days),
        )
        if answer is None:
            return
        left_out = f" {answer.left_out:,} more were excluded: not ended, or too large." if answer.left_out else ""
        set_text(self._status, f"{words.plural(answer.jobs, 'job')} simulated.{left_out}")
        self._simulated.clear()
        with self._simulated:
            _show_simulated(answer)


def _show_causes(rows: Sequence[CauseRow]) -> None:
    with html.table().classes("table").props('aria-label="What explains the error"'):
        with html.thead(), html.tr():
            html.th("Replaced by what happened", scope="col")
            for title in ("Median error", "Mean error", "Explains"):
                html.th(title, scope="col").classes("number")
        with html.tbody():
            for row in rows:
                with html.tr():
                    html.th(row.assumption, scope="row")
                    html.td(_percent(row.median_error)).classes("number")
                    html.td(_percent(row.mean_error)).classes("number")
                    html.td("–" if row.explains is None else f"{100 * row.explains:.0f} %").classes("number strong")


def _show_simulated(answer: Answer) -> None:
    if answer.real is None or answer.error is None:
        empty(
            "No job was submitted and ended under the present policy in this period.",
            "Choose a longer one, or come back when some have ended.",
        )
        return
    with html.table().classes("table").props('aria-label="Simulated against real"'):
        with html.thead(), html.tr():
            html.th("", scope="col")
            for title in ("Real", "Simulated", "Distance"):
                html.th(title, scope="col").classes("number")
        with html.tbody():
            for title, name in COMPARED:
                with html.tr():
                    html.th(title, scope="row")
                    html.td(words.duration(answer.real.metrics[name])).classes("number")
                    html.td(words.duration(answer.now.metrics[name])).classes("number")
                    html.td(_signed(answer.error.metrics.get(name))).classes("number strong")
            for title, value in (
                ("Completion time of each job, median", answer.error.per_job_median),
                ("Completion time of each job, 90th percentile", answer.error.per_job_p90),
            ):
                with html.tr():
                    html.th(title, scope="row")
                    html.td("")
                    html.td("")
                    html.td(f"± {_percent(value)}").classes("number strong")
            if answer.error.by_chance is not None:
                with html.tr():
                    html.th("Of the mean, if submissions come up to 20 ms later", scope="row")
                    html.td("")
                    html.td("")
                    html.td(" to ".join(_signed(each) for each in answer.error.by_chance)).classes("number strong")


def _table(title: str, rows: Sequence[TruthRow]) -> None:
    with html.section().classes("card table-card"):
        with html.div().classes("card-head padded"):
            html.h2(title)
        if not rows:
            empty(
                "No forecast has been scored in this period.",
                "Each job that starts is compared with what was forecast at its submission.",
            )
            return
        with html.table().classes("table").props(f'aria-label="{title}"'):
            with html.thead(), html.tr():
                html.th("", scope="col")
                for head in ("Forecasts", "In range", "Median error", "90th pct."):
                    html.th(head, scope="col").classes("number")
            with html.tbody():
                for row in rows:
                    with html.tr():
                        html.th(row.group, scope="row").classes("ellipsis")
                        html.td(words.amount(row.forecasts)).classes("number")
                        html.td(_percent(row.coverage)).classes(f"number strong {_verdict(row.coverage)}")
                        html.td(_percent(row.median_error)).classes("number")
                        html.td(_percent(row.p90_error)).classes("number")


def _verdict(coverage: float | None) -> str:
    if coverage is None:
        return ""
    return "better" if WANTED[0] <= coverage <= WANTED[1] else "worse" if coverage < WANTED[0] else ""


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %" if value >= 0.095 else f"{100 * value:.1f} %"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.1f} %"


def _hundred(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 1)
