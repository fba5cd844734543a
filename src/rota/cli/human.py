"""Numbers as people read them: `1h 23m`, `87.3%`, `40 GiB`. Programs get the exact values instead."""

from __future__ import annotations

import math

_UNITS_S = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_BINARY_PREFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def duration(seconds: float) -> str:
    """A length of time in its two largest units; below ten seconds with a decimal."""
    if not math.isfinite(seconds):
        return str(seconds)
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 9.95:
        return f"{_short(seconds)}s"
    rest = round(seconds)
    if rest >= 86_400:
        rest = round(seconds / 3_600) * 3_600
    elif rest >= 3_600:
        rest = round(seconds / 60) * 60
    parts = []
    for unit, size in _UNITS_S:
        amount, rest = divmod(rest, size)
        if amount:
            parts.append(f"{amount}{unit}")
    return " ".join(parts[:2])


def _short(number: float) -> str:
    """One decimal, or two digits that count below one; no trailing zeros."""
    return f"{number:.2g}" if 1e-4 <= number < 1 else f"{number:.1f}".removesuffix(".0")


def percent(fraction: float) -> str:
    """A fraction of one as a percentage."""
    return f"{100 * fraction:.1f}%"


def ratio(value: float) -> str:
    """A ratio or an index, to two decimals."""
    return f"{value:,.2f}"


def figure(value: float) -> str:
    """A number of unknown meaning, to four digits that count."""
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def count(value: float) -> str:
    """A number of things, with separators of thousands."""
    return f"{value:,.0f}"


def size(amount_bytes: float) -> str:
    """An amount of memory in binary units."""
    exponent = 0
    while exponent + 1 < len(_BINARY_PREFIXES) and abs(amount_bytes) >= 1023.95 * 1024**exponent:
        exponent += 1
    return f"{_short(amount_bytes / 1024**exponent)} {_BINARY_PREFIXES[exponent]}B"
