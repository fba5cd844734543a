"""The end of a task's output, followed as it grows."""

from __future__ import annotations

import asyncio
import codecs
import re
from collections import deque
from pathlib import Path

from nicegui import ui
from nicegui.element import Element
from nicegui.events import GenericEventArguments

from rota.store.run_folder import output_end, read_output

TAIL = 256 << 10
MOST_BEHIND = 4 * TAIL
"""A task that says more than the page can follow is followed from near its end on."""
LOOK_S = 0.7
CHUNK = 1 << 20
MOST_FOUND = 500
LONGEST_LINE = 4096
LONGEST_SOUGHT = 256
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Colours and other orders to a terminal, which a page does not obey."""


class LogView(Element, component="log.js"):
    """Shows one task's output; `watch` says whose."""

    def __init__(self, nothing: str) -> None:
        super().__init__()
        self.props["nothing"] = nothing
        self._folder: Path | None = None
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.on("sought", self._seek)
        ui.timer(LOOK_S, self._look)

    def watch(self, folder: Path) -> None:
        """Follow the output of another task from near its end on."""
        if folder == self._folder:
            return
        self._folder = folder
        self._begin_near(output_end(folder))

    def _begin_near(self, end: int) -> None:
        self._offset = max(end - TAIL, 0)
        self._decoder.reset()
        self.run_method("reset")

    async def _look(self) -> None:
        if self._folder is None:
            return
        folder = self._folder
        end = await asyncio.to_thread(output_end, folder)
        if folder == self._folder and end - self._offset > MOST_BEHIND:
            self._begin_near(end)
        at, said = await asyncio.to_thread(read_output, folder, self._offset, TAIL)
        if said and folder == self._folder:
            self._offset = at + len(said)
            self.run_method("add", _CONTROL.sub("", self._decoder.decode(said)), self._offset)

    async def _seek(self, event: GenericEventArguments) -> None:
        """Search all that was said before what the page has yet to hear."""
        sought = str(event.args)
        if self._folder is None or not 0 < len(sought) <= LONGEST_SOUGHT:
            return
        folder, until = self._folder, self._offset
        lines, total = await asyncio.to_thread(search, folder, sought, until)
        if folder == self._folder:
            self.run_method("answer", sought, lines, total, until)


def search(folder: Path, sought: str, until: int) -> tuple[list[str], int]:
    """The last of a task's whole lines before an offset that hold a text in any case, and how many there are in all."""
    wanted, found, total = sought.lower(), deque[str](maxlen=MOST_FOUND), 0
    at, rest = 0, b""
    while at < until:
        begins, said = read_output(folder, at, min(CHUNK, until - at))
        if not said or begins >= until:
            break
        whole, _, rest = (rest + said[: until - begins]).rpartition(b"\n")
        at, rest = begins + len(said), rest[-LONGEST_LINE:]
        text = _CONTROL.sub("", whole.decode("utf-8", "replace"))
        if wanted not in text.lower():
            continue
        for line in text.split("\n"):
            shown = line.rstrip("\r").rpartition("\r")[2]
            if wanted in shown.lower():
                total += 1
                found.append(shown[:LONGEST_LINE])
    return list(found), total
