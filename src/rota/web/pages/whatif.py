"""What if: the last days' jobs under another policy, with more nodes or other quotas, beside what there is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nicegui import html, ui

from rota.core.errors import RotaError
from rota.core.model.job import DeviceType, TenantId
from rota.live.workers.whatif import Answer, changed
from rota.policies import names
from rota.scenario import Scenario
from rota.web import words
from rota.web.desk import PageContext
from rota.web.frame import heading
from rota.web.parts.basics import button, card, empty, say
from rota.web.parts.charts import chart, over_time

DAYS = {1: "Last day", 3: "Last 3 days", 7: "Last 7 days", 30: "Last 30 days"}
ROWS: tuple[tuple[str, str, str, int], ...] = (
    ("Mean completion time", "avg_jct_s", "duration", -1),
    ("Median completion time", "median_jct_s", "duration", -1),
    ("Completion time of the slowest 1 %", "p99_jct_s", "duration", -1),
    ("Mean wait", "avg_wait_s", "duration", -1),
    ("From first submission to last end", "makespan_s", "duration", -1),
    ("Devices in use", "gpu_utilization", "percent", 1),
    ("Preemptions", "preemptions", "count", -1),
    ("Worst finish-time fairness", "worst_finish_time_fairness", "ratio", -1),
    ("Jain's fairness index", "jain_fairness", "ratio", 1),
)
"""Words, field of the metrics, how it is shown, whether more is better (1) or worse (-1)."""


async def build(desk: PageContext) -> None:
    """The whole page."""
    if not desk.may_study:
        html.h1("What if")
        empty("This takes a token that may see all tenants and change something.")
        return
    WhatIfPage(desk)


class WhatIfPage:
    """The question, and the answer once there is one."""

    def __init__(self, desk: PageContext) -> None:
        self._desk = desk
        scheduling, cluster = desk.service.scheduling, desk.cluster
        with heading("What if", "The jobs that ended lately, simulated as things are and as they would be."):
            self._ask = button("Compare", "play_arrow", primary=True)
            self._ask.on_click(self._compare)
        with card("What would be otherwise"), html.div().classes("form form-four"):
            self._policy = ui.input("Policy", value=scheduling.policy, autocomplete=names())
            self._policy.props("outlined dense stack-label")
            self._added = {kind: self._number(f"More nodes of {kind}", 0) for kind in cluster.devices_by_type}
            self._quotas: dict[tuple[TenantId, DeviceType], Any] = {}
            if scheduling.tenancy == "quota" and cluster.tenants is not None:
                for tenant, share in cluster.tenants.shares.items():
                    for kind, count in share.guaranteed.items():
                        label = f"Guaranteed to {tenant}" + ("" if kind == "*" else f" of {kind}")
                        self._quotas[(tenant, kind)] = self._number(label, count)
            self._days = ui.select(DAYS, value=1, label="Jobs of the").props("outlined dense options-dense stack-label")
            self._restart = self._number("Seconds that a restart costs", 30)
        self._status = html.div().classes("verdict").props("role=status")
        self._result = html.div().classes("stack")
        with self._result:
            empty("Choose what would be otherwise, then compare.", "Nothing changes: it is only simulated.")

    def _number(self, label: str, value: int) -> Any:
        return ui.number(label, value=value, min=0, precision=0).props("outlined dense stack-label")

    def _scenarios(self) -> tuple[Scenario, Scenario]:
        """The present scenario and the one that was entered."""
        guaranteed: dict[TenantId, dict[DeviceType, int]] = {}
        for (tenant, kind), field in self._quotas.items():
            guaranteed.setdefault(tenant, {})[kind] = _whole(field, f"the guarantee of {tenant}")
        added = {kind: _whole(field, f"the number of {kind} nodes") for kind, field in self._added.items()}
        restart_s = float(_whole(self._restart, "the cost of a restart"))
        cluster = self._desk.cluster
        now = self._desk.what_if.present(cluster, restart_s=restart_s)
        after = changed(cluster, added=added, guaranteed=guaranteed)
        return now, replace(now.under((self._policy.value or "").strip()), cluster=after)

    async def _compare(self) -> None:
        self._say("Simulating both cases …", "")
        self._ask.disable()
        try:
            answer = await self._desk.what_if.ask(*self._scenarios(), float(self._days.value or 1))
        except RotaError as error:
            self._say(str(error), "refused")
            return
        finally:
            self._ask.enable()
        left_out = f" {answer.left_out:,} more were left out: not ended, or too large." if answer.left_out else ""
        self._say(f"{words.plural(answer.jobs, 'job')} compared.{left_out}", "accepted")
        self._result.clear()
        with self._result:
            _show(answer)

    def _say(self, text: str, kind: str) -> None:
        self._status.classes(replace=f"verdict {kind}")
        say(self._status, text)


def _whole(field: Any, what: str) -> int:
    if field.value is None or field.value != int(field.value) or field.value < 0:
        raise RotaError(f"{what} is {field.value}; it must be a whole number of 0 or more")
    return int(field.value)


def _show(answer: Answer) -> None:
    with html.div().classes("grid compare-grid"):
        with (
            html.div().classes("card table-card compare"),
            html.table().classes("table").props('aria-label="Comparison"'),
        ):
            with html.thead(), html.tr():
                html.th("", scope="col")
                for title, side in (("As it is", answer.now), ("As it would be", answer.then)):
                    with html.th(scope="col").classes("number"):
                        html.div(title)
                        html.div(f"{side.policy}, {words.plural(side.devices, 'device')}").classes("muted")
                html.th("Change", scope="col").classes("number")
            with html.tbody():
                for title, field, kind, sign in ROWS:
                    _row(title, answer.now.metrics[field], answer.then.metrics[field], kind, sign)
        with card("Completion times", "part of jobs that took no longer"):
            lines = [
                {"name": name, "points": [[at_s / 60, 100 * part] for at_s, part in side.jct_s]}
                for name, side in (("as it is", answer.now), ("as it would be", answer.then))
            ]
            options = over_time(lines, axes=[{"min": 0, "max": 100}], legend=True)
            options["xAxis"] |= {
                "type": "log",
                "name": "minutes",
                "nameLocation": "middle",
                "nameGap": 24,
                "min": "dataMin",
            }
            options["xAxis"]["nameTextStyle"] = options["xAxis"]["axisLabel"]
            options["xAxis"]["splitLine"] = {"show": False}
            options["grid"]["bottom"] = 36
            chart(options, "Distribution of completion times in both cases")


def _row(title: str, before: float | None, after: float | None, kind: str, sign: int) -> None:
    with html.tr():
        html.th(title, scope="row")
        html.td(_shown(before, kind)).classes("number")
        html.td(_shown(after, kind)).classes("number strong")
        text, verdict = "–", ""
        if before is not None and after is not None:
            change = after - before
            if abs(change) <= 0.005 * max(abs(before), 1e-9):
                text = "same"
            else:
                better = change * sign > 0
                amount = f"{100 * change / before:+.0f} %" if before else f"{change:+.4g}"
                text, verdict = f"{amount}, {'better' if better else 'worse'}", "better" if better else "worse"
        html.td(text).classes(f"number nowrap {verdict}")


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
