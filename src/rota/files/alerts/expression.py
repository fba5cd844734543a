"""Conditions of alert rules: `NAME{label="value"} > NUMBER`, also with sums and quotients.

    rota_queue_wait_seconds{tenant=~"nlp|vision"} > 30m
    sum(rota_devices{use="held"}) / sum(rota_devices) > 95%
    rota_forecast_coverage_ratio < 70% and rota_forecasts_scored > 50

The grammar is a small part of Prometheus', so that a rule reads the same in both.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from rota.core.errors import RotaError, did_you_mean
from rota.files.alerts.pattern_cost import is_cheap
from rota.files.alerts.sources import EVENTS, METRICS, FigureUnit
from rota.files.quantities import NotAQuantity, parse_bytes, parse_duration

Labels = tuple[tuple[str, str], ...]
"""Labels with their values, in the order of their names."""
Samples = Mapping[str, Sequence[tuple[Labels, float]]]
"""Values of metrics, by name."""
MOST_CHARS = 500
_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
_TEXT = r'"(?:[^"\\]|\\.)*"'
_SELECTOR = re.compile(rf"\s*({_NAME})\s*(?:\{{(.*?)\}})?\s*$", re.DOTALL)
_MATCHER = re.compile(rf"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*({_TEXT})\s*(,|$)")
_NUMBER = re.compile(r"(-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?)\s*(%?)", re.ASCII)
_AGGREGATE = re.compile(r"\s*(sum|min|max|avg|count)\s*\((.*)\)\s*$", re.DOTALL)
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "sum": sum,
    "min": min,
    "max": max,
    "avg": lambda values: sum(values) / len(values),
    "count": len,
}
_LABELS = frozenset(
    label for labels in (*(source.labels for source in METRICS.values()), *EVENTS.values()) for label in labels
)


class BadCondition(RotaError):
    """A condition that can't be understood, or names what does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelMatcher:
    """A comparison of one label with a text or a pattern."""

    label: str
    sign: str
    text: str

    def takes(self, value: str) -> bool:
        """Whether a label's value satisfies it; a label that is not there is empty."""
        is_equal = _pattern(self.text).fullmatch(value) is not None if "~" in self.sign else value == self.text
        return is_equal != self.sign.startswith("!")


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesSelector:
    """Those values of a metric, or those events, whose labels match."""

    name: str
    matchers: tuple[LabelMatcher, ...] = ()

    def takes(self, labels: Labels) -> bool:
        """Whether labels satisfy all matchers."""
        values = dict(labels)
        return all(matcher.takes(values.get(matcher.label, "")) for matcher in self.matchers)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesTerm:
    """A selector, or a figure over all that it takes."""

    selector: SeriesSelector
    aggregate: str | None = None

    def values(self, samples: Samples) -> dict[Labels, float]:
        """Return the values by labels; without any for an aggregate, also of nothing but for a sum or a count."""
        found = {labels: value for labels, value in samples.get(self.selector.name, ()) if self.selector.takes(labels)}
        if self.aggregate is None:
            return found
        if not found:
            return {(): 0.0} if self.aggregate in ("sum", "count") and self.selector.name in samples else {}
        return {(): float(_AGGREGATES[self.aggregate](list(found.values())))}

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of its values."""
        return () if self.aggregate is not None else METRICS[self.selector.name].labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A comparison of a term, or a quotient of two, with a number."""

    term: SeriesTerm
    divisor: SeriesTerm | None
    comparison: str
    limit: float
    also: Condition | None = None
    """What must hold as well, for the same labels or for all."""

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics that it reads."""
        own = tuple(each.selector.name for each in (self.term, self.divisor) if each is not None)
        return own if self.also is None else (*own, *self.also.names)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of what it finds."""
        return self.term.labels

    @property
    def unit(self) -> FigureUnit:
        """How its values are written."""
        if self.divisor is not None:
            return FigureUnit.RATIO
        return FigureUnit.COUNT if self.term.aggregate == "count" else METRICS[self.term.selector.name].unit

    def found(self, samples: Samples) -> dict[Labels, tuple[float, bool]]:
        """Return the compared values, and whether they satisfy it."""
        others = {} if self.also is None else self.also.found(samples)
        missing = (0.0, self.also is None)
        return {
            labels: (value, self._holds(value) and others.get(labels, others.get((), missing))[1])
            for labels, value in self._values(samples).items()
        }

    def _values(self, samples: Samples) -> dict[Labels, float]:
        found = self.term.values(samples)
        if self.divisor is None:
            return found
        below = self.divisor.values(samples)
        pairs = {labels: (value, below.get(labels, below.get(()))) for labels, value in found.items()}
        return {labels: value / other for labels, (value, other) in pairs.items() if other}

    def _holds(self, value: float) -> bool:
        return _COMPARISONS[self.comparison](value, self.limit)


def parse_condition(text: str) -> Condition:
    """Return a condition; raises `BadCondition`."""
    if len(text) > MOST_CHARS:
        raise BadCondition(f"{_shown(text)}: it is longer than {MOST_CHARS} characters")
    first, is_more, rest = _outside(text, " and ")
    condition = _comparison(first, text)
    if not is_more:
        return condition
    also = parse_condition(rest)
    if also.labels not in ((), condition.labels):
        raise BadCondition(f"{_shown(text)}: the labels of both sides of `and` differ; put sum(...) around the second")
    return replace(condition, also=also)


def _comparison(part: str, text: str) -> Condition:
    left, comparison, right = _split(part)
    term_text, slash, divisor_text = _outside(left, "/")
    term = _term(term_text, text)
    divisor = _term(divisor_text, text) if slash else None
    if divisor is not None and divisor.aggregate is None and divisor.labels != term.labels:
        raise BadCondition(f"{_shown(text)}: the labels of both sides of / differ; put sum(...) around the second")
    return Condition(term=term, divisor=divisor, comparison=comparison, limit=_number(right, text))


def parse_event(text: str) -> SeriesSelector:
    """Return which events a rule counts; raises `BadCondition`."""
    return _selector(text, text, EVENTS, "event")


def parse_matchers(text: str) -> tuple[LabelMatcher, ...]:
    """Return comparisons of labels, as they stand between braces; raises `BadCondition`."""
    found = tuple(_matchers(text, text))
    for matcher in found:
        if matcher.label not in _LABELS:
            raise BadCondition(
                f"{_shown(text)}: no alert has a label {matcher.label[:60]!r}; {did_you_mean(matcher.label, _LABELS)}"
            )
    return found


def _split(text: str) -> tuple[str, str, str]:
    for sign in _COMPARISONS:
        left, found, right = _outside(text, sign)
        if found:
            return left, sign, right
    raise BadCondition(f"{_shown(text)}: it compares nothing; write it as in `rota_queue_wait_seconds > 30m`")


def _outside(text: str, sign: str) -> tuple[str, str, str]:
    """Partition at the first sign outside of braces and quotes."""
    depth, at, is_quoted = 0, 0, False
    while at < len(text):
        char = text[at]
        if is_quoted:
            at += char == "\\"
            is_quoted = char != '"'
        elif char == '"':
            is_quoted = True
        elif not depth and text.startswith(sign, at):
            return text[:at], sign, text[at + len(sign) :]
        else:
            depth += (char == "{") - (char == "}")
        at += 1
    return text, "", ""


def _term(text: str, whole: str) -> SeriesTerm:
    found = _AGGREGATE.match(text)
    inner = text if found is None else found[2]
    selector = _selector(inner, whole, {name: source.labels for name, source in METRICS.items()}, "metric")
    return SeriesTerm(selector=selector, aggregate=None if found is None else found[1])


def _selector(text: str, whole: str, known: Mapping[str, tuple[str, ...]], what: str) -> SeriesSelector:
    found = _SELECTOR.match(text)
    if found is None:
        raise BadCondition(f'{_shown(whole)}: write {what}s as NAME or NAME{{label="value"}}')
    name = found[1]
    if name not in known:
        raise BadCondition(f"{_shown(whole)}: unknown {what} {name[:60]!r}; {did_you_mean(name, known)}")
    matchers = tuple(_matchers(found[2] or "", whole))
    for matcher in matchers:
        if matcher.label not in known[name]:
            labels = ", ".join(known[name]) or "no labels"
            raise BadCondition(f"{_shown(whole)}: {name} has no label {matcher.label[:60]!r}; it has {labels}")
    return SeriesSelector(name=name, matchers=matchers)


def _matchers(text: str, whole: str) -> Iterable[LabelMatcher]:
    at = 0
    while text[at:].strip():
        found = _MATCHER.match(text, at)
        if found is None:
            raise BadCondition(f'{_shown(whole)}: write labels as {{label="value", other=~"pattern"}}')
        value = re.sub(r"\\(.)", r"\1", found[3][1:-1]) if "~" not in found[2] else found[3][1:-1].replace('\\"', '"')
        if "~" in found[2]:
            _refuse_pattern(value, whole)
        yield LabelMatcher(label=found[1], sign=found[2], text=value)
        at = found.end()


def _refuse_pattern(text: str, whole: str) -> None:
    try:
        is_good = is_cheap(text)
    except re.error as error:
        raise BadCondition(f"{_shown(whole)}: {text[:60]!r} is not a pattern: {error}") from error
    if not is_good:
        raise BadCondition(
            f"{_shown(whole)}: {text[:60]!r} may take too long: at most two of *, + and {{m,n}} are possible, none "
            "within another or around |; use several matchers"
        )


def _number(text: str, whole: str) -> float:
    word = text.strip()
    found = _NUMBER.fullmatch(word)
    if found is not None:
        return float(found[1]) / (100 if found[2] else 1)
    for parse in (parse_duration, parse_bytes):
        try:
            if math.isfinite(amount := float(parse(word))):
                return amount
        except NotAQuantity:
            continue
    raise BadCondition(f"{_shown(whole)}: {word[:60]!r} is not a number; write it like 3, 90%, 30m or 5GiB")


def _shown(text: str) -> str:
    return repr(" ".join(text.split())[:120])
