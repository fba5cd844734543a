"""Printing of text that others wrote: escape sequences and bidirectional overrides are shown, never sent.

A terminal that gets them raw can be made to hide lines, change its title, or type for its user.
"""

from __future__ import annotations

import codecs
import re
import sys

import typer

from rota.core.neutral_text import neutral

_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,32}m")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;:]{0,32})?\Z")
LINES = "\n\t"
OUTPUT = "\n\t\r"
"""What the output of a task may contain: a carriage return goes back on its own line only."""


def echo(text: object = "", *, err: bool = False, nl: bool = True, lines: bool = False) -> None:
    """Print a line of text, made neutral; with `lines`, several lines of which none was written by others."""
    typer.echo(neutral(str(text), LINES if lines else ""), err=err, nl=nl)


class NeutralOutput:
    """The output of a task on its way to stdout: colours are dropped, other escapes are shown."""

    def __init__(self, *, raw: bool = False) -> None:
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._held = ""

    def write(self, output: bytes) -> None:
        """Write a piece of the output."""
        sys.stdout.buffer.write(output if self._raw else self.neutral(output).encode())
        sys.stdout.buffer.flush()

    def neutral(self, output: bytes, *, last: bool = False) -> str:
        """Return a piece made neutral; the beginning of a colour is kept for the next piece."""
        text = self._held + self._decoder.decode(output, last)
        unfinished = None if last else _UNFINISHED.search(text)
        self._held = "" if unfinished is None else unfinished.group()
        return neutral(_COLOUR.sub("", text.removesuffix(self._held) if self._held else text), OUTPUT)

    def close(self) -> None:
        """Write what was kept."""
        if not self._raw:
            sys.stdout.buffer.write(self.neutral(b"", last=True).encode())
            sys.stdout.buffer.flush()
