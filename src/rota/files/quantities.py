"""Amounts as people write them: `40Gi`, `500m`, `10Gbps`, `1h30m`. Each becomes one plain number."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from rota.core.errors import RotaError

MOST_CHARACTERS = 64
"""An amount is never longer; the patterns below take more time than a long text is worth."""
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_BYTES = re.compile(rf"{_NUMBER}\s*([kmgtpe]i?)?b?", re.IGNORECASE | re.ASCII)
_CPUS = re.compile(rf"{_NUMBER}(m?)", re.ASCII)
_BITS = re.compile(rf"{_NUMBER}\s*(?:([kKMGT]?)bps)?", re.ASCII)
_DURATION = re.compile(r"\s*".join(rf"(?:{_NUMBER}{unit})?" for unit in ("d", "h", "m(?!s)", "s", "ms")), re.ASCII)
_POWERS = {prefix: power for power, prefix in enumerate(("", "k", "m", "g", "t", "p", "e"))}
_SECONDS = tuple(Decimal(size) for size in ("86400", "3600", "60", "1", "0.001"))


class NotAQuantity(RotaError):
    """A text or number that does not say how much."""


def parse_bytes(value: object) -> int:
    """Bytes from `40Gi`, `512GB`, `1.5TiB` or a whole number; part of a byte is dropped."""
    found = _BYTES.fullmatch(_text(value))
    if found is None:
        raise NotAQuantity(f"not an amount of memory: {_shown(value)}; write it like 40Gi, 512GB or a number of bytes")
    prefix = (found[2] or "").lower()
    step = 1024 if prefix.endswith("i") else 1000
    return int(Decimal(found[1]) * step ** _POWERS[prefix.removesuffix("i")])


def parse_cpus(value: object) -> int:
    """Thousandths of a CPU from `64`, `0.5` or `500m`."""
    found = _CPUS.fullmatch(_text(value))
    if found is None:
        raise NotAQuantity(f"not a number of CPUs: {_shown(value)}; write it like 64, 0.5 or 500m")
    milli = Decimal(found[1]) * (1 if found[2] else 1000)
    if milli != int(milli):
        raise NotAQuantity(f"not a number of CPUs: {_shown(value)}; the smallest part is 0.001")
    return int(milli)


def parse_bits_per_second(value: object) -> int:
    """Bits per second from `10Gbps`, `100Mbps` or a whole number."""
    found = _BITS.fullmatch(_text(value))
    if found is None:
        raise NotAQuantity(f"not a bandwidth: {_shown(value)}; write it in bits like 10Gbps or 100Mbps")
    return int(Decimal(found[1]) * 1000 ** _POWERS[(found[2] or "").lower()])


def parse_duration(value: object) -> float:
    """Seconds from `90`, `10m`, `1h30m`, `1.5d`, `250ms` or `inf`."""
    text = _text(value)
    if text == "inf":
        return math.inf
    if re.fullmatch(_NUMBER, text, re.ASCII):
        return float(text)
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise NotAQuantity(f"not a duration: {_shown(value)}; write it like 90, 10m, 1h30m or inf")
    return float(sum(Decimal(part) * size for part, size in zip(found.groups(), _SECONDS, strict=True) if part))


def _text(value: object) -> str:
    """The value as its writer would type it; no quantity is a truth value or anything nested."""
    if isinstance(value, float) and math.isfinite(value):
        return format(Decimal(repr(value)), "f")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return ""
    if isinstance(value, int):
        return str(value) if value.bit_length() <= MOST_CHARACTERS else ""
    return str(value).strip() if len(str(value)) <= MOST_CHARACTERS else ""


def _shown(value: object) -> str:
    text = hex(value) if isinstance(value, int) and value.bit_length() > MOST_CHARACTERS else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
