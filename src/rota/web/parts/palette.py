"""The search box over everything: opened by a button, by Ctrl+K or by a slash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui.element import Element
from nicegui.events import GenericEventArguments

Json = dict[str, Any]


class Palette(Element, component="palette.js"):
    """Asks `search` for what matches a text, and opens what the user selects."""

    def __init__(self, search: Callable[[str], Awaitable[list[Json]]]) -> None:
        super().__init__()
        self._search = search
        self.on("ask", self._answer)

    async def _answer(self, event: GenericEventArguments) -> None:
        asked = event.args if isinstance(event.args, dict) else {}
        found = await self._search(str(asked.get("text", "")))
        self.run_method("show", asked.get("number"), found)
