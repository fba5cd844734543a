"""Kubernetes quantities (`500m`, `16Gi`, `1e3`, `100M`), rounded up to the unit that Rota counts."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


MOST_CHARACTERS = 64
MOST = Decimal(1 << 60)
"""No cluster has more of anything; a larger number is malformed."""


def amount(text: str) -> Decimal:
    """The number of a quantity; 0 if it is malformed, which the API server does not admit but annotations may be."""
    found = _amount(text) if len(text) <= MOST_CHARACTERS else Decimal(0)
    return found if found.is_finite() and 0 <= found <= MOST else Decimal(0)


@lru_cache(maxsize=4096)
def _amount(text: str) -> Decimal:
    try:
        if text[-2:] in _BINARY:
            return Decimal(text[:-2]) * _BINARY[text[-2:]]
        if text[-1:] in _POWERS:
            return Decimal(text[:-1]).scaleb(_POWERS[text[-1]])
        return Decimal(text)
    except ArithmeticError:  # not a number, or one with an exponent without end
        return Decimal(0)


def whole(text: str) -> int:
    """A count or a number of bytes."""
    return int(amount(text).to_integral_value(ROUND_CEILING))


def milli(text: str) -> int:
    """Thousandths."""
    return int((amount(text) * 1000).to_integral_value(ROUND_CEILING))


_PLAIN_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


def plain_number(text: object) -> int | None:
    """A number in an annotation, of up to nine digits; None for anything else, such as `²` or five thousand digits."""
    return int(text) if isinstance(text, str) and _PLAIN_NUMBER.fullmatch(text) else None
