"""A list of records in a JSON object, one record at a time: other threads run between two of them.

Decoding a queue of 10,000 jobs in one call would stop the whole process for more than a tenth of a second.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

_BLANK = re.compile(r"[ \t\n\r]*")
_value_at = json.JSONDecoder().raw_decode


def decode_list(output: str | bytes, key: str, take: Callable[[Any], None]) -> dict[str, Any]:
    """Give each element of the list under a key of an object to `take`; return the object, where that list is empty.

    What is no JSON raises a `ValueError`, and a value that is not an object a `TypeError`. Bytes that are not UTF-8 (a
    user may call a job so) are replaced.
    """
    text = output.decode("utf-8", "replace") if isinstance(output, bytes) else output
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise TypeError(f"a {type(json.loads(text)).__name__}, not an object")
    found: dict[str, Any] = {}
    at = _skip(text, at + 1)
    more = text[at : at + 1] != "}"
    while more:
        name, at = _value_at(text, at)
        at = _skip(text, at)
        if not isinstance(name, str) or text[at : at + 1] != ":":
            raise ValueError(f"no name of a value at character {at}")
        at = _skip(text, at + 1)
        if name == key and text[at : at + 1] == "[":
            found[name], at = [], _elements(text, at, take)
        else:
            found[name], at = _value_at(text, at)
        more, at = _goes_on(text, at, "}")
    if not found:
        at += 1
    if _skip(text, at) != len(text):
        raise ValueError(f"more than one value, at character {at}")
    return found


def _elements(text: str, at: int, take: Callable[[Any], None]) -> int:
    """Take the elements of the list that begins here; return where it ends."""
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        return at + 1
    more = True
    while more:
        value, at = _value_at(text, at)
        take(value)
        more, at = _goes_on(text, at, "]")
    return at


def _goes_on(text: str, at: int, end: str) -> tuple[bool, int]:
    """Whether another member follows, and where; otherwise where the whole has ended."""
    at = _skip(text, at)
    sign = text[at : at + 1]
    if sign == ",":
        return True, _skip(text, at + 1)
    if sign != end:
        raise ValueError(f"neither a comma nor {end!r} at character {at}")
    return False, at + 1


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    assert found is not None, "it matches nothing as well"
    return found.end()
