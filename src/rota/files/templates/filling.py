"""Puts the values of parameters into the places `{{ name }}` of a template, up to a bound of the result.

A text that is nothing but one place becomes the value itself, a number say. In a shell command a value is quoted, so
that it stays one word whatever it holds; everywhere else it is put in as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from rota.core.errors import RotaError

Value = bool | int | float | str
MOST_FILLED = 1 << 20
"""Characters that one job or sweep may have when it is filled in: a short template can repeat a long value."""
PLACE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}", re.ASCII)
_COMMAND = "run"
_VARIABLES = "env"
_QUOTING = re.compile(r"\\.|['\"]|(?:(?<=\s)|^)#[^\n]*", re.DOTALL)
"""What begins or ends quotes in a shell command, or holds none that count."""


class Filler:
    """Fills in one document."""

    def __init__(self, values: Mapping[str, Value], source: str) -> None:
        self._values = values
        self._texts = {name: _text(value) for name, value in values.items()}
        self._words = {name: shlex.quote(text) for name, text in self._texts.items()}
        self._source = source
        self.size = 0

    def filled(self, value: Any, within: str = "") -> Any:
        """Fill in the places of a value; `within` is the field that it belongs to."""
        if isinstance(value, dict):
            self._count(sum(len(str(key)) for key in value))
            return {key: self.filled(each, within if within == _VARIABLES else str(key)) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.filled(each) for each in value]
        self._count(len(value) if isinstance(value, str) else 1)
        if not isinstance(value, str):
            return value
        whole = PLACE.fullmatch(value.strip())
        if whole and within not in (_COMMAND, _VARIABLES):
            self._count(len(self._texts[whole[1]]))
            return self._values[whole[1]]
        texts = self._words if within == _COMMAND else self._texts
        return PLACE.sub(lambda place: self._counted(texts[place[1]]), value)

    def _counted(self, text: str) -> str:
        self._count(len(text))
        return text

    def _count(self, characters: int) -> None:
        self.size += characters
        if self.size > MOST_FILLED:
            raise RotaError(
                f"{self._source}: it has more than {MOST_FILLED >> 20} MiB when it is filled in; give shorter values"
            )


def places_in_quotes(value: Any, within: str = "") -> Iterator[str]:
    """Yield the names of the places that stand in quotes of a shell command: quotes in quotes end them."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places_in_quotes(each, within if within == _VARIABLES else str(key))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from places_in_quotes(each)
    elif isinstance(value, str) and within == _COMMAND:
        spans = _quoted(value)
        span = next(spans, None)
        for place in PLACE.finditer(value):
            while span is not None and span[1] <= place.start():
                span = next(spans, None)
            if span is not None and span[0] < place.start():
                yield place[1]


def _quoted(command: str) -> Iterator[tuple[int, int]]:
    """Yield where the quotes of a shell command begin and end, in order."""
    quote, begin, at = "", 0, 0
    while found := _QUOTING.search(command, at):
        at, mark = found.end(), found[0]
        if not quote and mark in ("'", '"'):
            quote, begin = mark, found.start()
            if quote == "'":  # nothing but another one ends it
                at = command.find("'", at) + 1 or len(command)
                yield begin, at
                quote = ""
        elif quote and mark == quote:
            yield begin, at
            quote = ""
        elif quote and mark.startswith("#"):
            at = found.start() + 1
    if quote:
        yield begin, len(command)


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
