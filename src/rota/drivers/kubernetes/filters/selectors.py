"""Label selectors of Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


class LabelRule(NamedTuple):
    """One condition on a label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet it."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


class Selector(NamedTuple):
    """A label selector; without rules it selects everything."""

    rules: tuple[LabelRule, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet every rule."""
        return all(rule.holds(labels) for rule in self.rules)

    def and_equal(self, labels: Mapping[str, str], keys: tuple[str, ...]) -> Selector:
        """The selector that also wants these labels to be as given; a label that is not there is left out."""
        return Selector((*self.rules, *(LabelRule(key, "In", (labels[key],)) for key in keys if key in labels)))


def selector_of(value: Mapping[str, Any] | None) -> Selector | None:
    """A selector from its JSON form; None for none, which selects nothing. A `ValueError` names an odd operator."""
    if value is None:
        return None
    rules = [LabelRule(key, "In", (text,)) for key, text in sorted((value.get("matchLabels") or {}).items())]
    for each in value.get("matchExpressions") or ():
        if each["operator"] not in _OPERATORS:
            raise ValueError(f"operator {each['operator']!r:.40} of a label selector")
        rules.append(LabelRule(each["key"], each["operator"], tuple(each.get("values") or ())))
    return Selector(tuple(rules))
