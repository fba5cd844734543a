"""Alerts: what fires, what is pending and what is over, with silences; admins acknowledge and silence."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from nicegui import html

from rota.api.access import Principal
from rota.api.alerts.routes import alert_out, may_see, silence_out
from rota.live.alerts.keeper import AlertKeeper
from rota.live.alerts.states import Alert, AlertSilence, AlertState
from rota.live.intake.audit_entry import Asker
from rota.web import words
from rota.web.frame import heading
from rota.web.page_context import PageContext
from rota.web.parts.basics import button, confirm, empty

HOUR_S = 3600.0
MOST_SHOWN = 300
TONES = {"critical": "failed", "warning": "waiting", "info": "held"}
"""The colours of states of jobs that firing alerts have."""


async def build(context: PageContext) -> None:
    """Build the page."""
    keeper = context.service.alerts
    if keeper is None:
        html.h1("Alerts")
        empty("Alerts are kept by a manager of processes; for Kubernetes there are Prometheus rules.")
        return
    page = AlertsPage(context, keeper)
    await page.update()
    context.follow(page.update, every_s=5.0)


class AlertsPage:
    """The tables of alerts and silences."""

    def __init__(self, context: PageContext, keeper: AlertKeeper) -> None:
        self._context = context
        self._keeper = keeper
        self._drawn: object = None
        with heading("Alerts", "What the rules of the settings found, and what is told of it."):
            pass
        with html.div().classes("card table-card"):
            with html.table().classes("table").props('aria-label="Alerts"'):
                with html.thead(), html.tr():
                    html.th("State", scope="col")
                    html.th("Rule", scope="col")
                    html.th("What", scope="col").classes("grow")
                    html.th("Since", scope="col").classes("hide-phone")
                    html.th("Note", scope="col").classes("hide-phone")
                    if context.is_admin:
                        html.th("Actions", scope="col")
                self._body = html.tbody()
            self._empty_state = html.div()
        self._silences = html.div()

    async def update(self) -> None:
        """Show the present state."""
        principal = self._context.principal()
        found = [alert for alert in self._keeper.all() if may_see(principal, alert)][:MOST_SHOWN]
        silences = self._keeper.silences if self._context.is_admin else []
        state = ([self._shown(alert) for alert in found], [silence_out(each) for each in silences])
        if state == self._drawn:  # a row that is drawn again takes no click that is on its way
            return
        self._drawn = state
        self._body.clear()
        self._empty_state.clear()
        with self._body:
            for alert in found:
                self._row(alert)
        if not found:
            with self._empty_state:
                empty("Nothing is wrong.", "Rules stand in the settings of the manager, under alerts.")
        self._show_silences(silences)

    def _shown(self, alert: Alert) -> tuple[object, ...]:
        """Return what a row shows: figures that always change are not part of it."""
        out = alert_out(self._keeper, alert)
        notes = (out["text"], out["labels"].get("job"), out["silenced"])
        return alert.id, alert.state, alert.severity, alert.rule, alert.since_s, alert.acknowledged_by, *notes

    def _row(self, alert: Alert) -> None:
        shown = alert_out(self._keeper, alert)
        with html.tr():
            with html.td():
                tone = TONES[alert.severity] if alert.state is AlertState.FIRING else "cancelled"
                html.span(f"{alert.state.value} · {alert.severity}").classes(f"chip chip-{tone}")
            html.td(alert.rule).classes("nowrap")
            with html.td().classes("note-cell"):
                html.span(str(shown["text"]))
                if job := shown["labels"].get("job"):
                    html.a("job", href=f"/jobs/{job}").classes("text-link")
            html.td(words.moment(alert.since_s)).classes("hide-phone nowrap mono")
            notes = ["silenced"] if shown["silenced"] else []
            notes += [f"taken by {alert.acknowledged_by}"] if alert.acknowledged_by else []
            html.td(", ".join(notes) or "–").classes("hide-phone muted")
            if self._context.is_admin:
                with html.td().classes("nowrap"):
                    self._actions(alert, is_silenced=bool(shown["silenced"]))

    def _actions(self, alert: Alert, *, is_silenced: bool) -> None:
        if alert.state is AlertState.RESOLVED:
            return
        if not alert.acknowledged_by:
            button("Take", "how_to_reg").on_click(lambda: self._acknowledge(alert))
        if not is_silenced:
            button("Silence", "notifications_off").on_click(lambda: self._silence(alert))

    async def _acknowledge(self, alert: Alert) -> None:
        def carry_out(principal: Principal, asker: Asker) -> Awaitable[object]:
            principal.must_be_admin()
            return self._keeper.acknowledge(alert.id, asker)

        await self._context.act(carry_out, f"{alert.rule} is taken")
        await self.update()

    async def _silence(self, alert: Alert) -> None:
        text = "Nothing is told of alerts of this rule for an hour. They are still listed here."
        if not await confirm(f"Silence {alert.rule}?", text, "Silence for an hour"):
            return

        def carry_out(principal: Principal, asker: Asker) -> Awaitable[object]:
            principal.must_be_admin()
            return self._keeper.silence(alert.rule, (), HOUR_S, "", asker)

        await self._context.act(carry_out, f"{alert.rule} is silenced for an hour")
        await self.update()

    def _show_silences(self, silences: Sequence[AlertSilence]) -> None:
        self._silences.clear()
        if not silences:
            return
        with self._silences, html.div().classes("card table-card"):
            html.h2("Silences")
            with html.table().classes("table").props('aria-label="Silences"'):
                with html.thead(), html.tr():
                    for title in ("Rule", "Labels", "Until", "By", "Actions"):
                        html.th(title, scope="col")
                with html.tbody():
                    for silence in silences:
                        self._silence_row(silence)

    def _silence_row(self, silence: AlertSilence) -> None:
        with html.tr():
            html.td(silence.rule or "–")
            html.td(silence_out(silence)["labels"] or "–").classes("mono")
            html.td(words.moment(silence.until_s)).classes("nowrap mono")
            html.td(silence.by, title=silence.why)
            with html.td():
                button("End", "notifications_active").on_click(lambda: self._end(silence))

    async def _end(self, silence: AlertSilence) -> None:
        def carry_out(principal: Principal, asker: Asker) -> Awaitable[object]:
            principal.must_be_admin()
            return self._keeper.unsilence(silence.id, asker)

        await self._context.act(carry_out, "the silence is over")
        await self.update()
