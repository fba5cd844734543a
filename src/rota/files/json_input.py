"""Reads JSON that others wrote: bounded before it is parsed, and refused by name where a value can't be kept.

A lone surrogate can't be stored as UTF-8, NaN and infinity can't be written as JSON again, and a document that is
nested almost as deeply as the interpreter allows is read once and fails later. So none of them comes in.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from rota.core.errors import RotaError

MOST_VALUES = 100_000
"""Values in one document, counted by its commas and brackets; parsing this many takes a few hundredths of a second."""
MOST_DEPTH = 32
"""Mappings and lists inside each other."""
MOST_DIGITS = 19
LARGEST = (1 << 63) - 1
"""The largest whole number; it is that of the database."""
_SUSPECT = re.compile(r"\\u[dD][89a-fA-F]|[0-9]{19}|[eE]\+?[0-9]{3}")
"""What half a character, a number without end, or one that is infinite look like in a text."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class BadValue(RotaError):
    """A value that is well-formed and still can't be accepted."""


def parse_json(content: bytes | str, source: object = "the body", *, most_values: int = MOST_VALUES) -> object:
    """Return the plain values of a JSON text; an error names the source and what is wrong."""
    text = content if isinstance(content, str) else _decoded(content, source)
    values = text.count(",") + text.count("[") + text.count("{")
    if values > most_values:
        raise RotaError(f"{source}: it has about {values} values; at most {most_values} are read")
    try:
        found = _DECODER.decode(text)
    except BadValue as error:
        raise RotaError(f"{source}: {error}") from error
    except json.JSONDecodeError as error:
        raise RotaError(f"{source}:{error.lineno}: not JSON: {error.msg.lower()}") from error
    except ValueError:  # the interpreter's own limit
        raise RotaError(f"{source}: a whole number of more than 4000 digits; at most {MOST_DIGITS} digits") from None
    except RecursionError:
        raise RotaError(f"{source}: {_too_deep()}") from None
    refuse_depth(found, source)
    if isinstance(content, str) or _SUSPECT.search(text):
        refuse_values(found, source)
    return found


def _decoded(content: bytes, source: object) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RotaError(f"{source}: byte {error.start} is not UTF-8") from error


def bounded(value: int) -> int:
    """Return a whole number; raise `BadValue` if it is too large for the database."""
    if not -LARGEST <= value <= LARGEST:
        digits = len(f"{abs(value):x}") * 1204 // 1000  # near enough, without converting a long number
        raise BadValue(f"a whole number of about {digits} digits is too large; at most {LARGEST}")
    return value


def _refuse_constant(name: str) -> float:
    raise BadValue(f"{name} is not a number of JSON; leave the field out, or write a finite number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    known = dict(pairs)
    if len(known) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # adds
        raise BadValue(f"{twice[:60]!r} is given twice; keep one")
    return known


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)


def refuse_depth(found: object, source: object) -> None:
    """Refuse values that are nested too deeply, without recursion."""
    level: list[Any] = [found]
    for _ in range(MOST_DEPTH):
        level = [inner for value in level if isinstance(value, dict | list) for inner in _inside(value)]
        if not level:
            return
    raise RotaError(f"{source}: {_too_deep()}")


def _inside(value: dict[Any, Any] | list[Any]) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value
    return [each for each in inner if isinstance(each, dict | list)]


def _too_deep() -> str:
    return f"it is nested too deeply; at most {MOST_DEPTH} mappings and lists inside each other"


def refuse_values(found: object, source: object, *, infinite: bool = False) -> None:
    """Refuse half a character (a lone surrogate), a huge whole number, and a number that is not finite."""
    level: list[Any] = [found]
    while level:
        for value in level:
            if isinstance(value, str):
                if _SURROGATE.search(value):
                    shown = ascii(value if len(value) <= 60 else value[:57] + "...")
                    raise RotaError(f"{source}: {shown} holds half a character (a lone surrogate); write whole ones")
            elif isinstance(value, int):
                try:
                    bounded(value)
                except BadValue as error:
                    raise RotaError(f"{source}: {error}") from error
            elif isinstance(value, float) and not math.isfinite(value) and not infinite:
                raise RotaError(f"{source}: a number is not finite; the largest is about 1.8e308")
        level = [inner for value in level if isinstance(value, dict | list | tuple) for inner in _all_inside(value)]


def _all_inside(value: Any) -> list[Any]:
    return [*value, *value.values()] if isinstance(value, dict) else list(value)
