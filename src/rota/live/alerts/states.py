"""The states of alerts, as a calculation: what a look at the figures changes, and of what is told.

An alert is pending from when its condition holds, fires when it has held for as long as the rule asks, and is resolved
when it no longer holds. Each change has one message with a key of its own, so that none is written twice.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from rota.files.alerts.expression import LabelMatcher, Labels
from rota.files.alerts.settings import AlertRule

Json = dict[str, Any]
MOST_ALERTS = 200
"""Alerts of one rule at a time, shared among users."""
MOST_RESOLVED = 200


class AlertState(Enum):
    """How far an alert is."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(slots=True, kw_only=True)
class Alert:
    """What a rule found for one set of labels."""

    rule: str
    severity: str
    labels: Labels
    state: AlertState
    value: float
    since_s: float
    seen_s: float
    fired_s: float | None = None
    ended_s: float | None = None
    told_s: float | None = None
    times: int = 0
    """How often it was told that it fires."""
    acknowledged_by: str = ""
    text: str = ""

    @property
    def id(self) -> str:
        """The alert's name: the same for the same rule and labels."""
        return hashlib.sha256(json.dumps([self.rule, self.labels]).encode()).hexdigest()[:12]

    def encode(self) -> Json:
        """The alert as JSON values."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "labels": dict(self.labels),
            "state": self.state.value,
            "value": self.value,
            "since_s": self.since_s,
            "seen_s": self.seen_s,
            "fired_s": self.fired_s,
            "ended_s": self.ended_s,
            "told_s": self.told_s,
            "times": self.times,
            "acknowledged_by": self.acknowledged_by,
            "text": self.text,
        }


def decode_alert(value: Mapping[str, Any]) -> Alert:
    """An alert from JSON values."""
    fields = {**value, "labels": tuple(sorted(value["labels"].items())), "state": AlertState(value["state"])}
    return Alert(**fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSilence:
    """A time in which alerts of a rule, or with some labels, are not told."""

    id: str
    rule: str
    matchers: tuple[LabelMatcher, ...]
    until_s: float
    by: str
    why: str = ""

    def takes(self, alert: Alert) -> bool:
        """Whether it is about an alert."""
        values = dict(alert.labels)
        return self.rule in ("", alert.rule) and all(each.takes(values.get(each.label, "")) for each in self.matchers)

    def encode(self) -> Json:
        """The silence as JSON values."""
        matchers = [[each.label, each.sign, each.text] for each in self.matchers]
        about: Json = {"id": self.id, "rule": self.rule, "matchers": matchers}
        return {**about, "until_s": self.until_s, "by": self.by, "why": self.why}


def decode_silence(value: Mapping[str, Any]) -> AlertSilence:
    """A silence from JSON values."""
    matchers = tuple(LabelMatcher(label=label, sign=sign, text=text) for label, sign, text in value["matchers"])
    return AlertSilence(**{**value, "matchers": matchers})


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertNotice:
    """That an alert fires, still fires or ended, to be told to the channels of its rule."""

    alert: Alert
    rule: AlertRule
    state: AlertState
    number: int


def owner_of(labels: Labels) -> tuple[str, str]:
    """Return whose jobs an alert is about: the tenant and the user, each empty where no label names it."""
    values = dict(labels)
    return values.get("tenant", ""), values.get("user", "")


class AlertRoom:
    """How many alerts of one rule each user's jobs have: one user's many jobs leave room for those of others."""

    def __init__(self, held: Iterable[Labels]) -> None:
        self._counts = Counter(map(owner_of, held))
        self._total = self._counts.total()
        self._most: tuple[tuple[str, str], int] | None = None

    @property
    def is_free(self) -> bool:
        """Whether there may be one more."""
        return self._total < MOST_ALERTS

    def add(self, labels: Labels) -> None:
        """Count one more."""
        self._change(labels, 1)

    def remove(self, labels: Labels) -> None:
        """Count one less."""
        self._change(labels, -1)

    def _change(self, labels: Labels, by: int) -> None:
        self._counts[owner_of(labels)] += by
        self._total += by
        self._most = None

    def has_too_many(self, labels: Labels) -> tuple[str, str] | None:
        """Return the user with at least two more than the user of these labels; None if there is none."""
        if self._most is None:
            owner = max(self._counts, key=lambda each: (self._counts[each], each))
            self._most = owner, self._counts[owner]
        owner, most = self._most
        return owner if most > self._counts.get(owner_of(labels), 0) + 1 else None


@dataclass(slots=True)
class AlertBook:
    """All alerts of a manager, and its silences. It changes with `judge` and by requests only."""

    alerts: dict[tuple[str, Labels], Alert] = field(default_factory=dict)
    resolved: list[Alert] = field(default_factory=list)
    silences: list[AlertSilence] = field(default_factory=list)
    is_changed: bool = False
    """Whether it differs from what was written."""

    def encode(self) -> Json:
        """The book as JSON values."""
        return {
            "alerts": [alert.encode() for alert in self.alerts.values()],
            "resolved": [alert.encode() for alert in self.resolved],
            "silences": [silence.encode() for silence in self.silences],
        }

    @classmethod
    def decode(cls, value: Mapping[str, Any]) -> AlertBook:
        """A book from JSON values."""
        alerts = [decode_alert(each) for each in value.get("alerts", ())]
        return cls(
            alerts={(alert.rule, alert.labels): alert for alert in alerts},
            resolved=[decode_alert(each) for each in value.get("resolved", ())],
            silences=[decode_silence(each) for each in value.get("silences", ())],
        )

    def is_silenced(self, alert: Alert, now_s: float) -> bool:
        """Whether a silence is about an alert now."""
        return any(silence.until_s > now_s and silence.takes(alert) for silence in self.silences)

    def judge(
        self, rule: AlertRule, found: Mapping[Labels, tuple[float, bool]], now_s: float, *, is_early: bool = False
    ) -> list[AlertNotice]:
        """Take in what a rule found; return of what is to be told.

        `is_early`: figures may be missing because they are not measured yet; then they are as they were.
        """
        room = AlertRoom(labels for name, labels in self.alerts if name == rule.name)
        for labels, (value, holds) in found.items():
            known = self.alerts.get((rule.name, labels))
            if known is not None:
                known.seen_s, known.value = now_s, value
            elif holds and (room.is_free or self._makes_way(rule.name, room, labels)):
                room.add(labels)
                self._begin(rule, labels, value, now_s)
        notices: list[AlertNotice] = []
        for alert in [alert for (name, _), alert in self.alerts.items() if name == rule.name]:
            value_and_holds = found.get(alert.labels)
            holds = is_early if value_and_holds is None else value_and_holds[1]
            notices += self._advance(rule, alert, now_s, holds=holds)
        return notices

    def _makes_way(self, rule: str, room: AlertRoom, labels: Labels) -> bool:
        """Drop the latest alert of the user with the most if that is more than another one has; else do nothing."""
        owner = room.has_too_many(labels)
        if owner is None:
            return False
        own = [alert for (name, _), alert in self.alerts.items() if name == rule and owner_of(alert.labels) == owner]
        last = max(own, key=lambda alert: (alert.state is AlertState.PENDING, alert.since_s))
        del self.alerts[rule, last.labels]
        room.remove(last.labels)
        return True

    def _begin(self, rule: AlertRule, labels: Labels, value: float, now_s: float) -> None:
        self.is_changed = True
        self.alerts[rule.name, labels] = Alert(
            rule=rule.name,
            severity=rule.severity,
            labels=labels,
            state=AlertState.PENDING,
            value=value,
            since_s=now_s,
            seen_s=now_s,
        )

    def _advance(self, rule: AlertRule, alert: Alert, now_s: float, *, holds: bool) -> Iterator[AlertNotice]:
        """Move one alert on; yield of what is to be told."""
        if not holds:
            yield from self._end(rule, alert, now_s)
            return
        if alert.state is AlertState.PENDING:
            if now_s - alert.since_s < rule.for_:
                return
            self.is_changed = True
            alert.state, alert.fired_s = AlertState.FIRING, now_s
        if self.is_silenced(alert, now_s):
            return
        is_due = alert.told_s is None or (
            rule.repeat is not None and not alert.acknowledged_by and now_s - alert.told_s >= rule.repeat
        )
        if is_due:
            self.is_changed = True
            alert.told_s, alert.times = now_s, alert.times + 1
            yield AlertNotice(alert=alert, rule=rule, state=AlertState.FIRING, number=alert.times)

    def _end(self, rule: AlertRule, alert: Alert, now_s: float) -> Iterator[AlertNotice]:
        """End an alert; a message says so if one said that it fires."""
        self.is_changed = True
        del self.alerts[alert.rule, alert.labels]
        if alert.state is AlertState.PENDING:
            return
        alert.state, alert.ended_s = AlertState.RESOLVED, now_s
        self.resolved = [*self.resolved[-MOST_RESOLVED + 1 :], alert]
        if rule.tells_end and alert.told_s is not None and not self.is_silenced(alert, now_s):
            yield AlertNotice(alert=alert, rule=rule, state=AlertState.RESOLVED, number=alert.times)

    def drop_rules(self, names: Sequence[str], now_s: float) -> None:
        """End the alerts of rules that no longer hold, and forget silences that are over; nothing is told."""
        for key in [key for key in self.alerts if key[0] not in names]:
            alert = self.alerts.pop(key)
            self.is_changed = True
            if alert.state is AlertState.FIRING:
                alert.state, alert.ended_s = AlertState.RESOLVED, now_s
                self.resolved = [*self.resolved[-MOST_RESOLVED + 1 :], alert]
        kept = [silence for silence in self.silences if silence.until_s > now_s]
        if len(kept) != len(self.silences):
            self.silences, self.is_changed = kept, True
