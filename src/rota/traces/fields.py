"""Turning the text of one field into a value, or into a reason that names field, value and expectation."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TypeAlias

from rota.core.errors import RotaError

EPOCH = datetime(1970, 1, 1)

Cell: TypeAlias = object
"""One field as a file gives it: text, or a typed value where the file has types."""


class BadLine(RotaError):
    """A line that cannot become a job; the caller adds file and line."""


def bad(field: str, value: Cell, expected: str) -> BadLine:
    """The error for a value that is not valid."""
    return BadLine(f"{field} is {_shown(value)}; expected {expected}")


def _shown(value: Cell) -> str:
    """A value on one line and not too long, as users wrote it."""
    if value is None or value == "":
        return "empty"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def number(field: str, value: Cell) -> float:
    """A finite number."""
    found = _float(value)
    if not -math.inf < found < math.inf:
        raise bad(field, value, "a number")
    return found


def amount(field: str, value: Cell) -> float:
    """A finite number of 0 or more."""
    found = _float(value)
    if not 0.0 <= found < math.inf:
        raise bad(field, value, "a number of 0 or more")
    return found


def whole(field: str, value: Cell, at_least: int = 0) -> int:
    """A whole number with a lower bound; `4.0` counts as whole, as spreadsheets write it."""
    found = _float(value)
    if not found.is_integer() or found < at_least:
        raise bad(field, value, f"a whole number of {at_least} or more")
    return int(value) if isinstance(value, int) else int(found)


def moment_s(field: str, text: str) -> float:
    """A date and time in seconds; without a time zone, local time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise bad(field, text, "a time such as 2017-10-09 07:01:55") from None
    if moment.tzinfo is not None:
        return moment.timestamp()
    return (moment - EPOCH).total_seconds()


def _float(value: Cell) -> float:
    """The value as a number, NaN where it is none."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan
