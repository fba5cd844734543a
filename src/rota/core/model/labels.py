"""Which nodes a role may use by what is written on them: labels that it requires, taints that it tolerates."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

NODE_NAME = "rota.dev/node"
"""The label that every node has without being given it: its own name."""


APART = "apart"
"""The label of a job whose tasks are to be spread over places that fail together."""
APART_BY = ("rack", "domain")


class Operator(Enum):
    """How a label is compared. The value is the wire form."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    ABSENT = "DoesNotExist"
    ABOVE = "Gt"
    BELOW = "Lt"


class Requirement(NamedTuple):
    """One condition on a label of a node."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Taint(NamedTuple):
    """Keeps tasks off a node that do not tolerate it."""

    key: str
    value: str = ""


SUSPECT = Taint("rota.dev/health", "suspect")
"""The taint of a node whose health is in doubt: only tasks that tolerate it are placed there."""


RESERVED = "rota.dev/reserved"
"""The key of the taint of a node in the time of a reservation; the value is the reservation's id."""
RESERVED_LATER = "rota.dev/reserved-later"
"""The key of the taint of a node before the time of a reservation."""


class Toleration(NamedTuple):
    """Lets tasks onto nodes with a taint: one key or all of them (None), one value or any (None)."""

    key: str | None = None
    value: str | None = None


TOLERATES_SUSPECTS = Toleration(SUSPECT.key, SUSPECT.value)

Terms = tuple[tuple[Requirement, ...], ...]
"""Ways to fit: all requirements of one of them must hold. No terms at all fit every node."""


def fault_in_apart(labels: Iterable[tuple[str, str]]) -> str | None:
    """Return what is wrong with a job's label `apart`; None if nothing."""
    for name, value in labels:
        if name == APART and value not in APART_BY:
            return f"labels.{APART} is {value!r}; it must be {' or '.join(APART_BY)}"
    return None


def terms_of(value: Iterable[Iterable[tuple[str, str, Iterable[str]]]]) -> Terms:
    """Terms from JSON values: lists of [key, operator, [value, ...]]."""
    return tuple(tuple(_requirement(*each) for each in term) for term in value)


def _requirement(key: str, operator: str, values: Iterable[str]) -> Requirement:
    if isinstance(values, str):
        raise ValueError(f"values of {key} are {values!r}; they must be a list")
    return Requirement(key, Operator(operator).value, tuple(values))


def tolerations_of(value: Iterable[tuple[str | None, str | None]]) -> tuple[Toleration, ...]:
    """Tolerations from JSON values: lists of [key, value]."""
    return tuple(Toleration(*each) for each in value)


def is_met(terms: Terms, labels: dict[str, str]) -> bool:
    """Whether labels satisfy one of the terms."""
    return not terms or any(all(_holds(each, labels) for each in term) for term in terms)


def is_tolerated(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> bool:
    """Whether every taint meets a toleration."""
    return all(any(_tolerates(each, taint) for each in tolerations) for taint in taints)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    return toleration.key in (None, taint.key) and toleration.value in (None, taint.value)


def _holds(requirement: Requirement, labels: dict[str, str]) -> bool:
    found = labels.get(requirement.key)
    match Operator(requirement.operator):
        case Operator.IN:
            return found in requirement.values
        case Operator.NOT_IN:
            return found not in requirement.values
        case Operator.EXISTS:
            return found is not None
        case Operator.ABSENT:
            return found is None
        case Operator.ABOVE:
            return _number(found) > _number(requirement.values[0])
        case Operator.BELOW:
            return found is not None and _number(found) < _number(requirement.values[0])


def _number(text: str | None) -> float:
    """A label as a number; one that is none is below all others."""
    try:
        return int(text or "")
    except ValueError:
        return float("-inf")
