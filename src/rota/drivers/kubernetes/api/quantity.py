"""Kubernetes quantities (`500m`, `16Gi`, `1e3`, `100M`), rounded up to the unit that Rota counts."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal, InvalidOperation
from functools import lru_cache

_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


@lru_cache(maxsize=4096)
def amount(text: str) -> Decimal:
    """The number of a quantity; 0 if it is malformed, which the API server does not admit."""
    try:
        if text[-2:] in _BINARY:
            return Decimal(text[:-2]) * _BINARY[text[-2:]]
        if text[-1:] in _POWERS:
            return Decimal(text[:-1]).scaleb(_POWERS[text[-1]])
        return Decimal(text)
    except InvalidOperation:
        return Decimal(0)


@lru_cache(maxsize=4096)
def whole(text: str) -> int:
    """A count or a number of bytes."""
    return int(amount(text).to_integral_value(ROUND_CEILING))


@lru_cache(maxsize=4096)
def milli(text: str) -> int:
    """Thousandths."""
    return int((amount(text) * 1000).to_integral_value(ROUND_CEILING))
