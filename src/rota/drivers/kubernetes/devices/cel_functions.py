"""The functions and methods of CEL that device selectors may use; every other one is refused by its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import pairwise
from re import _constants as sre_constants  # type: ignore[attr-defined]  # not part of the stubs
from re import _parser as sre_parser  # type: ignore[attr-defined]  # not part of the stubs
from typing import Any

from rota.drivers.kubernetes.devices.cel_syntax import CelError
from rota.drivers.kubernetes.devices.cel_types import (
    MISSING,
    CelQuantity,
    OptionalValue,
    SemanticVersion,
    is_less,
    quantity_of,
    same,
    version_of,
)

LARGEST = (1 << 63) - 1
MOST_REPEATS = 3
"""Repetitions without a bound in a pattern: each multiplies the time that a search can take by the text's length."""
LONGEST_TEXT = 1024


def bounded(number: int) -> int:
    """Return an integer that fits 64 bits."""
    if not -LARGEST - 1 <= number <= LARGEST:
        raise CelError("an integer overflows")
    return number


def size_of(value: Any) -> int:
    """Return the length of a text, list or map."""
    if not isinstance(value, str | list | dict):
        raise CelError(f"{value!r:.40} has no size")
    return len(value)


def _attempt(read: Callable[[Any], object]) -> Callable[[Any], bool]:
    def is_one(text: Any) -> bool:
        try:
            read(text)
        except CelError:
            return False
        return True

    return is_one


def _integer(value: Any) -> int:
    try:
        return bounded(int(value[:25] if isinstance(value, str) else value))
    except (ValueError, TypeError, OverflowError) as error:
        raise CelError(f"{value!r:.40} is no integer") from error


def _float(value: Any) -> float:
    try:
        return float(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise CelError(f"{value!r:.40} is no number") from error


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise CelError(f"{value!r:.40} can't become a string")


def _semver(text: Any, loose: Any = False) -> SemanticVersion:
    return version_of(text, loose=bool(loose))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quantity": quantity_of,
    "isQuantity": _attempt(quantity_of),
    "semver": _semver,
    "isSemver": _attempt(version_of),
    "size": size_of,
    "int": _integer,
    "double": _float,
    "string": _string,
    "dyn": lambda value: value,
    "optional.of": OptionalValue,
    "optional.none": lambda: MISSING,
    "sets.contains": lambda left, right: all(_has(left, each) for each in right),
    "sets.intersects": lambda left, right: any(_has(left, each) for each in right),
    "sets.equivalent": lambda left, right: (
        all(_has(left, each) for each in right) and all(_has(right, each) for each in left)
    ),
}
"""Functions by name; those of a namespace with it."""
NAMESPACES = frozenset({"optional", "sets", "cel"})


def _has(values: Sequence[object], wanted: object) -> bool:
    return any(same(each, wanted) for each in values)


def find(pattern: str, text: str) -> bool:
    """Whether a text contains a match of a pattern that can't take long."""
    try:
        tree = sre_parser.parse(pattern)
        _refuse_slow(tree)
        return re.search(pattern, text[:LONGEST_TEXT], re.ASCII) is not None
    except (re.error, RecursionError, OverflowError) as error:
        raise CelError(f"matches: {pattern!r:.60} is no pattern: {error}") from error


def _refuse_slow(tree: Any) -> None:
    """Refuse repetitions in repetitions, too many of them, and what linear matchers do not know."""
    open_ended = 0

    def look(part: Any, inside: bool) -> None:
        nonlocal open_ended
        for kind, argument in part:
            repeats = kind in (sre_constants.MAX_REPEAT, sre_constants.MIN_REPEAT)
            if kind in (sre_constants.GROUPREF, sre_constants.ASSERT, sre_constants.ASSERT_NOT):
                raise CelError("matches: references and assertions in patterns are not supported")
            if repeats and argument[1] > 1:
                open_ended += 1
                if inside or open_ended > MOST_REPEATS:
                    raise CelError(
                        f"matches: repetitions within others, or more than {MOST_REPEATS}, are not supported"
                    )
            for each in argument if isinstance(argument, tuple) else ():
                if isinstance(each, sre_parser.SubPattern):
                    look(each, inside or (repeats and argument[1] > 1))
                elif isinstance(each, list):
                    for branch in each:
                        if isinstance(branch, sre_parser.SubPattern):
                            look(branch, inside)

    look(tree, False)


def _split(text: str, sign: str, most: int = -1) -> list[str]:
    if not sign:
        return list(text)
    return text.split(sign, most - 1) if most > 0 else text.split(sign)


def _part(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    if not 0 <= start <= stop <= len(text):
        raise CelError(f"substring: {start} to {stop} is outside of a text of length {len(text)}")
    return text[start:stop]


TEXT_METHODS: dict[str, Callable[..., Any]] = {
    "contains": lambda text, part: part in text,
    "startsWith": lambda text, part: text.startswith(part),
    "endsWith": lambda text, part: text.endswith(part),
    "matches": lambda text, pattern: find(pattern, text),
    "lowerAscii": lambda text: "".join(each.lower() if each.isascii() else each for each in text),
    "upperAscii": lambda text: "".join(each.upper() if each.isascii() else each for each in text),
    "trim": lambda text: text.strip(),
    "split": _split,
    "substring": _part,
    "replace": lambda text, old, new: text.replace(old, new)[:LONGEST_TEXT],
    "indexOf": lambda text, part: text.find(part),
    "lastIndexOf": lambda text, part: text.rfind(part),
    "charAt": lambda text, at: _part(text, at, at + 1) if at < len(text) else "",
}


def _extreme(values: list[Any], *, largest: bool) -> Any:
    if not values:
        raise CelError("min and max need at least one element")
    found = values[0]
    for each in values[1:]:
        found = each if is_less(found, each) is largest else found
    return found


LIST_METHODS: dict[str, Callable[..., Any]] = {
    "sum": lambda values: bounded(sum(values)) if all(type(each) is int for each in values) else float(sum(values)),
    "min": lambda values: _extreme(values, largest=False),
    "max": lambda values: _extreme(values, largest=True),
    "indexOf": lambda values, one: next((at for at, each in enumerate(values) if same(each, one)), -1),
    "isSorted": lambda values: not any(is_less(after, before) for before, after in pairwise(values)),
    "join": lambda values, sign="": sign.join(values)[:LONGEST_TEXT],
}


def _order(left: Any, right: Any) -> int:
    if type(left) is not type(right):
        raise CelError(f"{left!r:.40} and {right!r:.40} can't be compared")
    return 0 if left == right else -1 if left < right else 1


_COMPARED: dict[str, Callable[..., Any]] = {
    "compareTo": _order,
    "isGreaterThan": lambda left, right: _order(left, right) > 0,
    "isLessThan": lambda left, right: _order(left, right) < 0,
}


def _plus(left: CelQuantity, right: Any, sign: int = 1) -> CelQuantity:
    other = right.amount if isinstance(right, CelQuantity) else Decimal(_integer(right))
    return CelQuantity(left.amount + sign * other)


QUANTITY_METHODS: dict[str, Callable[..., Any]] = {
    **_COMPARED,
    "add": _plus,
    "sub": lambda left, right: _plus(left, right, -1),
    "sign": lambda value: (value.amount > 0) - (value.amount < 0),
    "isInteger": lambda value: value.amount == value.amount.to_integral_value() and abs(value.amount) <= LARGEST,
    "asInteger": lambda value: _whole(value.amount),
    "asApproximateFloat": lambda value: float(value.amount),
}


def _whole(amount: Decimal) -> int:
    if amount != amount.to_integral_value():
        raise CelError("asInteger: the quantity is no integer")
    return bounded(int(amount))


VERSION_METHODS: dict[str, Callable[..., Any]] = {
    **_COMPARED,
    "major": lambda value: value.major,
    "minor": lambda value: value.minor,
    "patch": lambda value: value.patch,
}


def _value(optional: OptionalValue) -> object:
    if not optional.is_there:
        raise CelError("an optional value is missing")
    return optional.value


OPTIONAL_METHODS: dict[str, Callable[..., Any]] = {
    "hasValue": lambda value: value.is_there,
    "value": _value,
    "orValue": lambda value, other: value.value if value.is_there else other,
    "or": lambda value, other: value if value.is_there else other,
}
METHODS: dict[type, dict[str, Callable[..., Any]]] = {
    str: TEXT_METHODS,
    list: LIST_METHODS,
    CelQuantity: QUANTITY_METHODS,
    SemanticVersion: VERSION_METHODS,
    OptionalValue: OPTIONAL_METHODS,
    dict: {},
}
KNOWN_METHODS = frozenset({"size", *(name for methods in METHODS.values() for name in methods)})
