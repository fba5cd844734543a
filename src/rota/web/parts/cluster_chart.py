"""The chart of the cluster over time, drawn in the browser."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui.element import Element
from nicegui.events import GenericEventArguments

Json = dict[str, Any]


class ClusterChart(Element, component="cluster_chart.js"):
    """Draws what `show` gives it; calls `moved` with the window, in milliseconds, that the user moves or zooms to."""

    def __init__(self, moved: Callable[[float, float], Awaitable[None]]) -> None:
        super().__init__()
        self._moved = moved
        self._asked = 0
        """The number of the window that the user last moved to."""
        self.props["data"] = None
        self.on("moved", self._answer)

    async def _answer(self, event: GenericEventArguments) -> None:
        window = event.args
        if isinstance(window, list) and len(window) == 3 and all(isinstance(each, int | float) for each in window):
            self._asked = int(window[2])
            await self._moved(float(window[0]), float(window[1]))

    def show(self, data: Json) -> None:
        """Draw other data."""
        data = {**data, "asked": self._asked}
        if self.props["data"] != data:
            self.props["data"] = data
            self.update()
