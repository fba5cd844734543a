"""What Prometheus and Grafana read: rules and a dashboard, for a manager of one machine and for Kubernetes.

Both come from the same files; what is for one of the two only is marked there. Rules of a manager's own settings
become rules of Prometheus too, where they are about metrics that it scrapes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from enum import Enum
from importlib.resources import files
from typing import Any

from rota.files.alerts.expression import Condition, LabelMatcher, SeriesTerm
from rota.files.alerts.settings import PLACE, AlertRule
from rota.files.alerts.sources import SCRAPED, FigureUnit
from rota.files.yaml_input import parse_yaml

Json = dict[str, Any]
FOLDER = "rota.files.alerts.data"
_SHOWN = {
    FigureUnit.COUNT: "{{ $value | humanize }}",
    FigureUnit.SECONDS: "{{ $value | humanizeDuration }}",
    FigureUnit.RATIO: "{{ $value | humanizePercentage }}",
}


class MonitoredPlace(Enum):
    """What kind of manager is watched."""

    MACHINE = "machine"
    KUBERNETES = "kubernetes"


def _for_place(found: Iterable[Json], place: MonitoredPlace) -> list[Json]:
    """Return what is for this kind of manager, without the marks."""
    kept = [each for each in found if each.get("only") in (None, place.value)]
    return [{name: value for name, value in each.items() if name != "only"} for each in kept]


def grafana_dashboard(place: MonitoredPlace) -> Json:
    """Return the Grafana dashboard."""
    found: Json = json.loads((files(FOLDER) / "dashboard.json").read_text(encoding="utf-8"))
    return {**found, "panels": _for_place(found["panels"], place)}


def prometheus_rules(place: MonitoredPlace, own: Iterable[AlertRule] = ()) -> Json:
    """Return the groups of alert rules, in the form of a rule file of Prometheus; with a manager's own rules."""
    found = parse_yaml((files(FOLDER) / "prometheus.yaml").read_text(encoding="utf-8"), "prometheus.yaml")
    assert isinstance(found, dict), "the rules are a mapping"
    groups = [{**group, "rules": _for_place(group["rules"], place)} for group in found["groups"]]
    more = [_rule(rule) for rule in own if _is_scraped(rule)]
    taken = {rule["alert"] for group in groups for rule in group["rules"]}
    for rule in more:
        if rule["alert"] in taken:  # Prometheus can't tell two of one name apart
            rule["alert"] += "BySettings"
    return {"groups": [*groups, *([{"name": "rota-settings", "rules": more}] if more else [])]}


def _is_scraped(rule: AlertRule) -> bool:
    return rule.when is not None and all(name in SCRAPED for name in rule.condition.names)


def _rule(rule: AlertRule) -> Json:
    labels = {name: f"{{{{ $labels.{name} }}}}" for name in rule.labels}
    values = {**labels, "value": _SHOWN[rule.condition.unit], "rule": rule.name}
    found: Json = {"alert": f"Rota{''.join(part[:1].upper() + part[1:] for part in rule.name.split('-'))}"}
    found["expr"] = expression_of(rule.condition)
    if rule.for_:
        found["for"] = f"{round(rule.for_ * 1000)}ms"
    found["labels"] = {"severity": rule.severity}
    found["annotations"] = {"summary": PLACE.sub(lambda place: values[place[1]], rule.message)}
    return found


def expression_of(condition: Condition) -> str:
    """Return a condition in the language of Prometheus."""
    left = _series(condition.term)
    if condition.divisor is not None:
        below = _series(condition.divisor)
        is_one = condition.divisor.aggregate is not None and condition.term.aggregate is None
        left = f"{left} / {f'on() group_left() {below}' if is_one else below}"
    found = f"{left} {condition.comparison} {condition.limit!r}"
    if condition.also is None:
        return found
    joined = "and on() " if not condition.also.labels and condition.labels else "and "
    return f"{found} {joined}{expression_of(condition.also)}"


def _series(term: SeriesTerm) -> str:
    matchers = ",".join(_matchers(term.selector.matchers))
    series = term.selector.name + (f"{{{matchers}}}" if matchers else "")
    return series if term.aggregate is None else f"{term.aggregate}({series})"


def _matchers(matchers: Iterable[LabelMatcher]) -> Iterator[str]:
    for each in matchers:
        yield f"{each.label}{each.sign}{json.dumps(each.text, ensure_ascii=False)}"
