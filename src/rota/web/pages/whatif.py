"""What-if: recent jobs simulated under another policy, cluster or quota, compared with the current setup."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nicegui import html, ui

from rota.core.errors import RotaError
from rota.core.model.job import DeviceType, TenantId
from rota.live.workers.whatif import Answer, Side, changed
from rota.policies import names
from rota.scenario import Scenario
from rota.web import words
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import button, card, empty, set_text
from rota.web.parts.charts import chart, over_time

DAYS = {1: "Last day", 3: "Last 3 days", 7: "Last 7 days", 30: "Last 30 days"}
ROWS: tuple[tuple[str, str, str, int], ...] = (
    ("Mean completion time", "avg_jct_s", "duration", -1),
    ("Median completion time", "median_jct_s", "duration", -1),
    ("99th percentile of completion time", "p99_jct_s", "duration", -1),
    ("Mean wait", "avg_wait_s", "duration", -1),
    ("Makespan", "makespan_s", "duration", -1),
    ("GPU allocation", "gpu_allocation", "percent", 1),
    ("Preemptions", "preemptions", "count", -1),
    ("Worst finish-time fairness", "worst_finish_time_fairness", "ratio", -1),
    ("Jain's fairness index", "jain_fairness", "ratio", 1),
)
"""Title, field of the metrics, format, and whether more is better (1) or worse (-1)."""


async def build(context: PageContext) -> None:
    """Build the page."""
    if not context.may_study:
        html.h1("What-if")
        empty("What-if needs a member or admin token that covers all tenants.")
        return
    WhatIfPage(context)


class WhatIfPage:
    """The form for a scenario, and the comparison once it is simulated."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        scheduling, cluster = context.service.scheduling, context.cluster
        with heading("What-if", "Simulate recently ended jobs under the current setup and under another scenario."):
            self._button = button("Compare", "play_arrow", primary=True)
            self._button.on_click(self._compare)
        with card("Scenario"), html.div().classes("form form-four"):
            self._policy = ui.input("Policy", value=scheduling.policy, autocomplete=names())
            self._policy.props("outlined dense stack-label")
            self._added = {kind: self._number(f"Additional {kind} nodes", 0) for kind in cluster.devices_by_type}
            self._quotas: dict[tuple[TenantId, DeviceType], Any] = {}
            if scheduling.tenancy == "quota" and cluster.tenants is not None:
                for tenant, share in cluster.tenants.shares.items():
                    for kind, count in share.guaranteed.items():
                        label = f"Guarantee of {tenant}" + ("" if kind == "*" else f", {kind}")
                        self._quotas[(tenant, kind)] = self._number(label, count)
            self._days = ui.select(DAYS, value=1, label="Jobs").props("outlined dense options-dense stack-label")
            self._restart = self._number("Restart cost (seconds; empty: as learned)", None)
        self._status = html.div().classes("verdict").props("role=status")
        self._result = html.div().classes("stack")
        with self._result:
            empty("Choose a scenario, then compare.", "This is a simulation: the cluster does not change.")

    def _number(self, label: str, value: int | None) -> Any:
        return ui.number(label, value=value, min=0, precision=0).props("outlined dense stack-label")

    async def _scenarios(self) -> tuple[Scenario, Scenario]:
        """The present scenario and the one that was entered."""
        guaranteed: dict[TenantId, dict[DeviceType, int]] = {}
        for (tenant, kind), field in self._quotas.items():
            guaranteed.setdefault(tenant, {})[kind] = _whole(field, f"the guarantee of {tenant}")
        added = {kind: _whole(field, f"the number of additional {kind} nodes") for kind, field in self._added.items()}
        is_learned = self._restart.value in (None, "")
        restart_s = None if is_learned else float(_whole(self._restart, "the cost of a restart"))
        cluster = self._context.cluster
        now = await asyncio.to_thread(self._context.what_if.present, cluster, restart_s=restart_s)
        after = changed(cluster, added=added, guaranteed=guaranteed)
        return now, replace(now.under((self._policy.value or "").strip()), cluster=after)

    async def _compare(self) -> None:
        self._show_status("Simulating both scenarios …", "")
        self._button.disable()
        try:
            now, other = await self._scenarios()
            answer = await self._context.what_if.ask(now, [other], float(self._days.value or 1))
        except RotaError as error:
            self._show_status(str(error), "refused")
            return
        finally:
            self._button.enable()
        left_out = f" {answer.left_out:,} more were excluded: not ended, or too large." if answer.left_out else ""
        self._show_status(f"{words.plural(answer.jobs, 'job')} compared.{left_out}", "accepted")
        self._result.clear()
        with self._result:
            _show(answer)

    def _show_status(self, text: str, kind: str) -> None:
        self._status.classes(replace=f"verdict {kind}")
        set_text(self._status, text)


def _whole(field: Any, what: str) -> int:
    if field.value is None or field.value != int(field.value) or field.value < 0:
        raise RotaError(f"{what} is {field.value}; must be a whole number, 0 or more")
    return int(field.value)


def _show(answer: Answer) -> None:
    other = answer.alternatives[0]
    sides = [("Simulated, current", answer.now), ("Simulated, scenario", other)]
    if answer.real is not None:
        sides.insert(0, ("Real", answer.real))
    with html.div().classes("grid compare-grid"):
        with html.div().classes("stack"):
            _show_table(answer, sides)
            html.p(_error_bar(answer)).classes("muted").props('data-testid="error-bar"')
        with card("Completion times", "cumulative share of jobs"):
            lines = [
                {"name": name.lower(), "points": [[at_s / 60, 100 * part] for at_s, part in side.jct_s]}
                for name, side in sides
            ]
            options = over_time(lines, axes=[{"min": 0, "max": 100}], legend=True)
            options["xAxis"] |= {
                "type": "log",
                "name": "minutes",
                "nameLocation": "middle",
                "nameGap": 24,
                "min": _axis_start(lines),
            }
            options["xAxis"]["nameTextStyle"] = options["xAxis"]["axisLabel"]
            options["xAxis"]["splitLine"] = {"show": False}
            options["grid"]["bottom"] = 36
            chart(options, "Distribution of completion times, real and in both scenarios")


def _show_table(answer: Answer, sides: Sequence[tuple[str, Side]]) -> None:
    errors = {} if answer.error is None else answer.error.metrics
    with (
        html.div().classes("card table-card compare"),
        html.table().classes("table").props('aria-label="Comparison"'),
    ):
        with html.thead(), html.tr():
            html.th("", scope="col")
            for title, side in sides:
                with html.th(scope="col").classes("number"):
                    html.div(title)
                    html.div(f"{side.policy}, {words.plural(side.devices, 'device')}").classes("muted")
            html.th("Change", scope="col").classes("number")
            html.th("Error bar", scope="col").classes("number")
        with html.tbody():
            for title, name, kind, sign in ROWS:
                _row(title, [side.metrics.get(name) for _, side in sides], kind, sign, errors.get(name))


def _error_bar(answer: Answer) -> str:
    """How far the simulation of the current setup is from what happened, in words."""
    error = answer.error
    if error is None:
        return "No job was submitted and ended under the current policy: the simulations have no error bar."
    return (
        f"Error bar: the distance of the current setup's simulation from what really happened to "
        f"{words.plural(error.jobs, 'job')}; completion times of single jobs are off by "
        f"{100 * error.per_job_median:.1f} % in the median. A change within the error bar is not a finding."
    )


def _axis_start(lines: Sequence[dict[str, Any]]) -> float:
    """Return the largest power of ten that is below all points, as a logarithmic axis begins."""
    smallest = min((at for line in lines for at, _ in line["points"] if at > 0), default=1.0)
    return float(10.0 ** math.floor(math.log10(smallest)))


def _row(title: str, values: Sequence[float | None], kind: str, sign: int, error: float | None) -> None:
    before, after = values[-2:]
    with html.tr():
        html.th(title, scope="row")
        for value in values[:-1]:
            html.td(_shown(value, kind)).classes("number")
        html.td(_shown(after, kind)).classes("number strong")
        text, verdict = "–", ""
        if before is not None and after is not None:
            change = after - before
            if abs(change) <= 0.005 * max(abs(before), 1e-9):
                text = "unchanged"
            elif error is not None and before and abs(change / before) <= abs(error):
                text = f"{100 * change / before:+.0f} %, within the error"
            else:
                better = change * sign > 0
                amount = f"{100 * change / before:+.0f} %" if before else f"{change:+.4g}"
                text, verdict = f"{amount}, {'better' if better else 'worse'}", "better" if better else "worse"
        html.td(text).classes(f"number nowrap {verdict}")
        html.td("–" if error is None else f"± {100 * abs(error):.1f} %").classes("number nowrap")


def _shown(value: float | None, kind: str) -> str:
    if value is None:
        return "–"
    match kind:
        case "duration":
            return words.duration(value)
        case "percent":
            return f"{100 * value:.1f} %"
        case "count":
            return words.amount(value)
        case _:
            return f"{value:.2f}"
