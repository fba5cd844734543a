"""The tail of a task's output, followed live."""

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
MAX_BEHIND = 4 * TAIL
"""If the page falls further behind than this, it skips ahead to the tail of the output."""
POLL_S = 0.7
CHUNK = 1 << 20
MAX_MATCHES = 500
MAX_LINE = 4096
MAX_QUERY = 256
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Terminal escape sequences and control characters, which are removed."""


class LogView(Element, component="log.js"):
    """Shows the output of the task given to `watch`."""

    def __init__(self, placeholder: str) -> None:
        super().__init__()
        self.props["placeholder"] = placeholder
        self._folder: Path | None = None
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.on("sought", self._seek)
        ui.timer(POLL_S, self._poll)

    def watch(self, folder: Path) -> None:
        """Follow the output of another task, starting near its end."""
        if folder == self._folder:
            return
        self._folder = folder
        self._begin_near(output_end(folder))

    def _begin_near(self, end: int) -> None:
        self._offset = max(end - TAIL, 0)
        self._decoder.reset()
        self.run_method("reset")

    async def _poll(self) -> None:
        if self._folder is None:
            return
        folder = self._folder
        end = await asyncio.to_thread(output_end, folder)
        if folder == self._folder and end - self._offset > MAX_BEHIND:
            self._begin_near(end)
        at, output = await asyncio.to_thread(read_output, folder, self._offset, TAIL)
        if output and folder == self._folder:
            self._offset = at + len(output)
            self.run_method("add", _CONTROL.sub("", self._decoder.decode(output)), self._offset)

    async def _seek(self, event: GenericEventArguments) -> None:
        """Search the output up to the point that the page has received."""
        sought = str(event.args)
        if self._folder is None or not 0 < len(sought) <= MAX_QUERY:
            return
        folder, until = self._folder, self._offset
        lines, total = await asyncio.to_thread(search, folder, sought, until)
        if folder == self._folder:
            self.run_method("answer", sought, lines, total, until)


def search(folder: Path, sought: str, until: int) -> tuple[list[str], int]:
    """Return the last complete lines before an offset that contain a text in any case, and their total number."""
    wanted, found, total = sought.lower(), deque[str](maxlen=MAX_MATCHES), 0
    at, rest = 0, b""
    while at < until:
        begins, output = read_output(folder, at, min(CHUNK, until - at))
        if not output or begins >= until:
            break
        whole, _, rest = (rest + output[: until - begins]).rpartition(b"\n")
        at, rest = begins + len(output), rest[-MAX_LINE:]
        text = _CONTROL.sub("", whole.decode("utf-8", "replace"))
        if wanted not in text.lower():
            continue
        for line in text.split("\n"):
            shown = line.rstrip("\r").rpartition("\r")[2]
            if wanted in shown.lower():
                total += 1
                found.append(shown[:MAX_LINE])
    return list(found), total
