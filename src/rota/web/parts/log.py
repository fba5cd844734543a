"""The end of a task's output, followed as it grows."""

from __future__ import annotations

import asyncio
import codecs
import re
from pathlib import Path

from nicegui import ui
from nicegui.element import Element

from rota.drivers.local.folder import output_end, read_output

TAIL = 256 << 10
LOOK_S = 0.7
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Colours and other orders to a terminal, which a page does not obey."""


class Log(Element, component="log.js"):
    """Shows one task's output; `watch` says whose."""

    def __init__(self, nothing: str) -> None:
        super().__init__()
        self.props["nothing"] = nothing
        self._folder: Path | None = None
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        ui.timer(LOOK_S, self._look)

    def watch(self, folder: Path) -> None:
        """Follow the output of another task from near its end on."""
        if folder == self._folder:
            return
        self._folder = folder
        self._offset = max(output_end(folder) - TAIL, 0)
        self._decoder.reset()
        self.run_method("reset")

    async def _look(self) -> None:
        if self._folder is None:
            return
        folder = self._folder
        at, said = await asyncio.to_thread(read_output, folder, self._offset, TAIL)
        if said and folder == self._folder:
            self._offset = at + len(said)
            self.run_method("add", _CONTROL.sub("", self._decoder.decode(said)))
