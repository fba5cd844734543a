"""The map of all or some nodes of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui.element import Element
from nicegui.events import GenericEventArguments

Json = dict[str, Any]


class ClusterMap(Element, component="map.js"):
    """Draws the result of `topology.tree`; calls `on_node` with the id of a node that the user selects."""

    def __init__(self, domains: list[Json], on_node: Callable[[str], Any] | None = None) -> None:
        super().__init__()
        self.props["domains"] = domains
        self.props["still"] = on_node is None
        if on_node is not None:

            def selected(event: GenericEventArguments) -> Any:
                return on_node(str(event.args))

            self.on("node", selected)

    def show(self, domains: list[Json]) -> None:
        """Redraw the map, if its data differ."""
        if self.props["domains"] != domains:
            self.props["domains"] = domains
            self.update()
