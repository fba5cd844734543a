"""Text that others wrote, with every character that does not print shown as an escape.

A terminal that gets escape sequences or bidirectional overrides raw can be made to hide lines, change its title, or
type for its user; a log that is read on a terminal must not hold them either.
"""

from __future__ import annotations

import json
import re

_SUSPECT = re.compile(r"[^\x20-\x7e]")


def neutral(text: str, keep: str = "") -> str:
    """Return the text with every character that does not print shown as an escape, except those to keep."""
    if text.isascii() and text.isprintable():
        return text

    def shown(found: re.Match[str]) -> str:
        char = found.group()
        return char if char in keep or char.isprintable() else repr(char)[1:-1]

    return _SUSPECT.sub(shown, text)


def neutral_json(text: str) -> str:
    """Return JSON in which every character that does not print is escaped: the same value, safe on a terminal."""

    def shown(found: re.Match[str]) -> str:
        char = found.group()
        if char == "\n" or char.isprintable():
            return char
        return f"\\u{ord(char):04x}" if char <= "\uffff" else json.dumps(char)[1:-1]

    return text if text.isascii() and text.isprintable() else _SUSPECT.sub(shown, text)
