"""Alert rules: the part `alerts` of a manager's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rota.core.errors import RotaError, did_you_mean
from rota.files.alerts.expression import BadCondition, Condition, SeriesSelector, parse_condition, parse_event
from rota.files.alerts.sources import EVENTS
from rota.files.durations import Seconds
from rota.files.job_shape import Name
from rota.files.notify.settings import EMAIL, NotificationsPart
from rota.files.shape import FileModel
from rota.files.yaml_input import parse_yaml

Channels = Annotated[tuple[Name, ...], Field(max_length=20)]
AlertSeverity = Literal["info", "warning", "critical"]
PLACE = re.compile(r"\{([^{}]*)\}")
MOST_RULES = 500
WITHIN_S = 600.0
"""For how long an event counts unless the rule says it."""


class AlertRule(FileModel):
    """A condition over metrics (`when`), or a number of events in a time (`event`)."""

    name: Name
    when: Annotated[str, Field(min_length=1)] | None = None
    for_: Annotated[Seconds, Field(alias="for", le=30 * 86400)] = 0.0
    event: Annotated[str, Field(min_length=1)] | None = None
    count: Annotated[int, Field(strict=True, ge=1, le=1000)] = 1
    within: Annotated[Seconds, Field(gt=0, le=7 * 86400)] = WITHIN_S
    by: Annotated[tuple[str, ...], Field(max_length=10)] | None = None
    severity: AlertSeverity = "warning"
    message: Annotated[str, Field(min_length=1, max_length=1000)]
    to: Channels | None = None
    """Which channels are told; those of all rules if it does not say."""
    repeat: Annotated[Seconds, Field(ge=60)] | None = None
    """After which time it is told again while it lasts and no one has acknowledged it."""
    resolved: bool | None = None
    """Whether the end is told as well; by default for conditions, not for events."""

    @model_validator(mode="after")
    def _agree(self) -> AlertRule:
        if (self.when is None) == (self.event is None):
            raise ValueError(f"rule {self.name!r}: give either `when` (a condition) or `event`")
        try:
            labels = self.labels
        except BadCondition as error:
            raise ValueError(f"rule {self.name!r}: {error}") from error
        given = self.model_fields_set
        if self.when is not None and (wrong := {"count", "within", "by"} & given):
            raise ValueError(f"rule {self.name!r}: {sorted(wrong)[0]} is for rules with `event`")
        if self.event is not None and "for_" in given:
            raise ValueError(f"rule {self.name!r}: `for` is for rules with `when`; use count and within")
        for found in PLACE.findall(self.message):
            if found not in (*labels, "value", "rule"):
                names = ", ".join((*labels, "value", "rule"))
                raise ValueError(f"rule {self.name!r}: message: there is no {{{found[:40]}}}; there are {names}")
        return self

    @cached_property
    def condition(self) -> Condition:
        """The condition of `when`."""
        assert self.when is not None, "a rule over events"
        return parse_condition(self.when)

    @cached_property
    def counted(self) -> SeriesSelector:
        """The events of `event`."""
        assert self.event is not None, "a rule over metrics"
        return parse_event(self.event)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of its alerts."""
        if self.when is not None:
            return self.condition.labels
        known = EVENTS[self.counted.name]
        for label in self.by or ():
            if label not in known:
                raise BadCondition(f"by: {self.counted.name} has no label {label[:60]!r}; it has {', '.join(known)}")
        return known if self.by is None else self.by

    @property
    def tells_end(self) -> bool:
        """Whether the end of an alert is told."""
        return self.resolved if self.resolved is not None else self.when is not None

    def text(self, values: Mapping[str, str]) -> str:
        """Return the message, with labels and the value in their places."""
        return PLACE.sub(lambda found: values.get(found[1], ""), self.message)


class AlertsPart(FileModel):
    """The rules, and where their messages go."""

    every: Annotated[Seconds, Field(ge=0.1, le=3600)] = 30.0
    defaults: Annotated[bool, Field(strict=True)] = True
    """Whether the rules that come with Rota hold; one of the same name replaces its own."""
    without: Annotated[tuple[Name, ...], Field(max_length=100)] = ()
    """Rules that come with Rota and do not hold."""
    to: Channels = ()
    rules: Annotated[tuple[AlertRule, ...], Field(max_length=MOST_RULES)] = ()

    @model_validator(mode="after")
    def _agree(self) -> AlertsPart:
        names = [rule.name for rule in self.rules]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"there are two rules {twice!r}; rename one")
        for name in self.without:
            if name not in default_rules():
                raise ValueError(f"without: Rota has no rule {name!r}; {did_you_mean(name, default_rules())}")
        return self

    @property
    def all_rules(self) -> tuple[AlertRule, ...]:
        """The rules that hold, with their channels: those that come with Rota first."""
        own = {rule.name for rule in self.rules}
        shipped = default_rules().values() if self.defaults else ()
        kept = [rule for rule in shipped if rule.name not in own and rule.name not in self.without]
        return tuple(
            rule if rule.to is not None else rule.model_copy(update={"to": self.to}) for rule in (*kept, *self.rules)
        )

    def refuse(self, notifications: NotificationsPart) -> None:
        """Raise a `RotaError` for a channel that does not exist, or that can reach no address."""
        known = [*notifications.channels, *([EMAIL] if notifications.smtp is not None else [])]
        shown = ", ".join(known) or "none; define some in notifications"
        for rule in self.all_rules:
            for name in rule.to or ():
                if name not in known:
                    raise RotaError(f"alerts: rule {rule.name!r}: there is no channel {name[:40]!r}; there are {shown}")
                if name == EMAIL and "user" not in rule.labels:
                    raise RotaError(
                        f"alerts: rule {rule.name!r}: {EMAIL!r} is a user's own address, and its alerts have no label "
                        "`user`; name a channel"
                    )


def default_rules() -> dict[str, AlertRule]:
    """Return the rules that come with Rota, by name."""
    if not _DEFAULTS:
        text = (files("rota.files.alerts") / "data" / "default_rules.yaml").read_text(encoding="utf-8")
        found = parse_yaml(text, "default_rules.yaml")
        assert isinstance(found, list)
        _DEFAULTS.update((rule.name, rule) for rule in map(AlertRule.model_validate, found))
    return _DEFAULTS


_DEFAULTS: dict[str, AlertRule] = {}
