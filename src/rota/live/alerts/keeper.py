"""Looks at the figures and the events, keeps the states of alerts, and writes the messages about them.

The states, the place up to which events were counted, and the messages of a look are one transaction: a manager that
is killed sends nothing twice and leaves nothing out.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from rota.core.errors import RotaError
from rota.files.alerts.expression import LabelMatcher, Samples
from rota.files.alerts.settings import AlertRule, AlertsPart
from rota.files.alerts.sources import FigureUnit
from rota.live.alerts.event_counts import EventCounts, decode_steps, happenings, of_audit
from rota.live.alerts.states import Alert, AlertBook, AlertNotice, AlertSilence, AlertState
from rota.live.intake.audit_entry import Asker, audit_entry
from rota.live.intake.requests import NotFound
from rota.live.loop.control import Control
from rota.live.loop.entry import LoopEntry
from rota.live.loop.record import dump
from rota.live.notify.job_notices import message
from rota.store import clock
from rota.store.audit import AuditLog
from rota.store.records import Records

Json = dict[str, Any]
log = logging.getLogger("rota.live")
KEY = "alerts"
"""Under which name the records keep the states."""
EARLY_S = 60.0
"""After a start, figures such as those of GPUs come back within this time."""
MOST_SILENCES = 1000
MOST_ENTRIES = 10_000
"""Entries of the audit log, or steps, that one look reads."""
WORDS = {
    "job-started": '"started"',
    "job-preempted": '"preempted"',
    "job-attempt-failed": "start-failed|interrupted",
    "job-succeeded": '"succeeded"',
    "job-failed": '"failed"',
    "job-cancelled": '"cancelled"',
    "node-lost": '"node-lost"',
    "node-back": '"node-back"',
    "node-drained": '"node-drained"',
}
"""Of which steps of the journal an event is read: those that contain one of these texts."""
ReadSamples = Callable[[frozenset[str]], Awaitable[Samples]]


class AlertKeeper:
    """The alerts of a manager."""

    def __init__(
        self, control: Control, records: Records, audit: AuditLog, part: AlertsPart, samples: ReadSamples
    ) -> None:
        """`samples` reads the metrics of the names that it is given."""
        self._control, self._records, self._audit = control, records, audit
        self._part = part
        self._samples = samples
        self.rules = {rule.name: rule for rule in part.all_rules}
        stored: Json = records.setting(KEY) or {}
        self._book = AlertBook.decode(stored.get("book", {}))
        self._counts = EventCounts.decode(stored["counts"]) if "counts" in stored else EventCounts()
        self._changing = asyncio.Lock()
        self._early_until_s = clock.now_s() + EARLY_S
        self._on_metrics = [rule for rule in self.rules.values() if rule.when is not None]
        self._on_events = [rule for rule in self.rules.values() if rule.event is not None]

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._part.every)

    # -- requests --------------------------------------------------------------------------------

    def all(self) -> list[Alert]:
        """Return the alerts, firing ones first, then pending and resolved ones, the latest first."""
        order = [AlertState.FIRING, AlertState.PENDING, AlertState.RESOLVED]
        found = [*self._book.alerts.values(), *self._book.resolved]
        return sorted(found, key=lambda each: (order.index(each.state), -(each.ended_s or each.since_s), each.id))

    def is_silenced(self, alert: Alert) -> bool:
        """Whether an alert is not told at present."""
        return self._book.is_silenced(alert, clock.now_s())

    @property
    def silences(self) -> list[AlertSilence]:
        """The silences that are not over."""
        return [silence for silence in self._book.silences if silence.until_s > clock.now_s()]

    async def acknowledge(self, alert_id: str, asker: Asker) -> Alert:
        """Note that an alert is taken care of: it is not told again while it lasts."""
        async with self._changing:
            found = next((each for each in self._book.alerts.values() if each.id == alert_id), None)
            if found is None:
                raise NotFound(f"there is no pending or firing alert {alert_id[:40]!r}")
            before, found.acknowledged_by = found.acknowledged_by, asker.name
            try:
                await self._write(audit_entry(asker, "acknowledge-alert", alert_id, found.rule))
            except BaseException:
                found.acknowledged_by = before
                raise
        return found

    async def silence(
        self, rule: str, matchers: tuple[LabelMatcher, ...], for_s: float, why: str, asker: Asker
    ) -> AlertSilence:
        """Tell nothing for a time of alerts of a rule, or with some labels."""
        made = AlertSilence(
            id=secrets.token_hex(4),
            rule=rule,
            matchers=matchers,
            until_s=clock.now_s() + for_s,
            by=asker.name,
            why=why,
        )
        async with self._changing:
            if len(self.silences) >= MOST_SILENCES:
                raise RotaError(f"there are {MOST_SILENCES} silences already; remove some")
            words = " ".join(
                [rule, *(f"{each.label}{each.sign}{each.text}" for each in matchers), f"for {for_s:.0f} s"]
            )
            await self._replace_silences([*self.silences, made], audit_entry(asker, "silence-alerts", made.id, words))
        return made

    async def unsilence(self, silence_id: str, asker: Asker) -> None:
        """End a silence: what fires is told at the next look."""
        async with self._changing:
            kept = [each for each in self.silences if each.id != silence_id]
            if len(kept) == len(self.silences):
                raise NotFound(f"there is no silence {silence_id[:40]!r}")
            await self._replace_silences(kept, audit_entry(asker, "end-silence", silence_id))

    async def _replace_silences(self, silences: list[AlertSilence], audit: Json) -> None:
        before, self._book.silences = self._book.silences, silences
        try:
            await self._write(audit)
        except BaseException:
            self._book.silences = before
            raise

    async def _write(self, audit: Json) -> None:
        await self._control.apply(LoopEntry([], settings={KEY: self._encoded()}, audit=[audit]))

    def _encoded(self) -> str:
        return dump({"book": self._book.encode(), "counts": self._counts.encode()})

    # -- looks -----------------------------------------------------------------------------------

    async def look(self) -> None:
        """Compare the figures and the events with the rules, and write what follows."""
        names = frozenset(name for rule in self._on_metrics for name in rule.condition.names)
        samples = await self._samples(names) if names else {}
        async with self._changing:
            counts, is_new = await asyncio.to_thread(self._counted, copy.deepcopy(self._counts))
            self._counts = counts
            now_s = clock.now_s()
            notices: list[AlertNotice] = []
            for rule in self._on_metrics:
                found = rule.condition.found(samples)
                notices += self._book.judge(rule, found, now_s, is_early=now_s < self._early_until_s)
            for rule in self._on_events:
                notices += self._book.judge(rule, counts.within(rule, now_s), now_s)
            self._book.drop_rules(list(self.rules), now_s)
            if notices or is_new or self._book.is_changed:
                self._book.is_changed = False
                messages = [row for notice in notices for row in messages_of(notice, now_s)]
                self._control.happened(LoopEntry([], settings={KEY: self._encoded()}, messages=messages))

    def _counted(self, counts: EventCounts) -> tuple[EventCounts, bool]:
        """Count what happened since the last look; return whether that is to be written."""
        wanted = {rule.counted.name for rule in self._on_events}
        ends = self._records.last_step(), self._audit.last_number()
        if (
            counts.step is None or counts.entry is None or not wanted
        ):  # what happened before there were rules is not counted
            is_first = bool(wanted)
            counts.step, counts.entry = ends
            return counts, is_first
        is_new = False
        words = [word for name in sorted(wanted - {"audit"}) for word in WORDS[name].split("|")]
        if words and ends[0] > counts.step:
            bodies = self._records.steps_with(words, counts.step + 1, ends[0] + 1)
            found = happenings(decode_steps(bodies), self._records.titles)
            counts.add(self._on_events, found)
            is_new = bool(found)
        if "audit" in wanted and ends[1] > counts.entry:
            counts.add(self._on_events, of_audit(self._audit.between(counts.entry, ends[1])))
            is_new = True
        counts.step, counts.entry = ends
        return counts, is_new


def text_of(rule: AlertRule, alert: Alert) -> str:
    """Return the message of a rule about an alert."""
    return rule.text({**dict(alert.labels), "rule": rule.name, "value": shown_value(rule, alert.value)})


def messages_of(notice: AlertNotice, now_s: float) -> list[Json]:
    """Return the messages about an alert, one for each channel of its rule."""
    alert, rule, labels = notice.alert, notice.rule, dict(notice.alert.labels)
    if notice.state is AlertState.FIRING:
        alert.text = text_of(rule, alert)
    is_over = notice.state is AlertState.RESOLVED
    title = f"{'Resolved' if is_over else rule.severity.capitalize()}: {rule.name}"
    text = f"It is over: {alert.text}" if is_over else alert.text
    log.warning("alert", extra={"rule": rule.name, "state": notice.state.value, "why": alert.text})
    key = f"alert/{alert.id}/{alert.fired_s or now_s:.3f}/{notice.state.value}/{notice.number}"
    more: Json = {"event": "alert", "rule": rule.name, "severity": rule.severity, "state": notice.state.value}
    more |= {"labels": labels, "value": alert.value}
    tenant, user = labels.get("tenant", ""), labels.get("user", "")
    return [message(key, channel, tenant, user, title, text, **more) for channel in rule.to or ()]


def shown_value(rule: AlertRule, value: float) -> str:
    """Return a value as people read it."""
    unit = FigureUnit.COUNT if rule.when is None else rule.condition.unit
    if unit is FigureUnit.RATIO:
        return f"{100 * value:.3g}%"
    return shown_duration(value) if unit is FigureUnit.SECONDS else f"{value:.6g}"


def shown_duration(seconds: float) -> str:
    """Return a duration in the largest two units that it has."""
    whole = max(round(seconds), 0)
    parts = [(whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s")]
    first = next((at for at, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count) or "0 s"
