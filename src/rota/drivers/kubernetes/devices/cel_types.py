"""Values of CEL beyond plain ones: quantities, versions, optional values, and how values compare."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import total_ordering

from rota.drivers.kubernetes.devices.cel_syntax import CelError

_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40}))(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?[0-9]{1,2}))?",
    re.ASCII,
)
_NUMBER = r"(0|[1-9][0-9]{0,17})"
_PART = r"[0-9A-Za-z-]{1,64}(?:\.[0-9A-Za-z-]{1,64})*"
_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_PART}))?(?:\+({_PART}))?", re.ASCII)
_LOOSE = re.compile(r"v?0*([0-9]{1,18})(?:\.0*([0-9]{1,18}))?(?:\.0*([0-9]{1,18}))?(.*)", re.ASCII | re.DOTALL)


@total_ordering
@dataclass(frozen=True, slots=True)
class CelQuantity:
    """An amount, as `40Gi`."""

    amount: Decimal

    def __lt__(self, other: CelQuantity) -> bool:
        return self.amount < other.amount


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class SemanticVersion:
    """A semantic version; its build is not compared."""

    major: int
    minor: int
    patch: int
    before: tuple[tuple[bool, int, str], ...] = ()
    """The parts of a pre-release: numbers come before words."""

    @property
    def _key(self) -> tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]:
        return self.major, self.minor, self.patch, not self.before, self.before

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SemanticVersion) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __lt__(self, other: SemanticVersion) -> bool:
        return self._key < other._key


@dataclass(frozen=True, slots=True)
class OptionalValue:
    """A value that may be missing."""

    value: object = None
    is_there: bool = True


MISSING = OptionalValue(is_there=False)


def quantity_of(text: object) -> CelQuantity:
    """Parse a quantity of Kubernetes."""
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise CelError(f"{text!r:.60} is no quantity")
    number, binary, suffix, exponent = match.groups()
    try:
        base = Decimal(number)
    except InvalidOperation as error:
        raise CelError(f"{text!r:.60} is no quantity") from error
    if binary:
        return CelQuantity(base * (1 << _BINARY[binary]))
    return CelQuantity(base.scaleb(int(exponent) if exponent else _DECIMAL[suffix or ""]))


def version_of(text: object, *, loose: bool = False) -> SemanticVersion:
    """Parse a semantic version; a `loose` one may start with v, have leading zeros, or lack parts."""
    if not isinstance(text, str):
        raise CelError(f"{text!r:.60} is no version")
    if loose and (parts := _LOOSE.fullmatch(text)):
        major, minor, patch, rest = parts.groups()
        text = f"{int(major)}.{int(minor or 0)}.{int(patch or 0)}{rest}"
    match = _VERSION.fullmatch(text)
    if match is None:
        raise CelError(f"{text!r:.60} is no version")
    before = tuple(_part(part) for part in match[4].split(".")) if match[4] else ()
    return SemanticVersion(int(match[1]), int(match[2]), int(match[3]), before)


def _part(text: str) -> tuple[bool, int, str]:
    is_word = not text.isdigit()
    return is_word, 0 if is_word else int(text[:19]), text if is_word else ""


def same(left: object, right: object) -> bool:
    """Whether two values are equal; numbers of different types are compared, other types differ."""
    if isinstance(left, bool) or isinstance(right, bool):
        return isinstance(left, bool) and isinstance(right, bool) and left == right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    return bool(left == right)


def is_less(left: object, right: object) -> bool:
    """Whether one value is less than another of its type."""
    for kind in (str, bool, SemanticVersion):
        if isinstance(left, kind) and isinstance(right, kind):
            return bool(left < right)  # type: ignore[operator]  # each of these types is ordered
    if _is_number(left) and _is_number(right):
        return bool(left < right)  # type: ignore[operator]  # both are numbers
    raise CelError(f"{left!r:.40} and {right!r:.40} can't be compared")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
