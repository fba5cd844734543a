"""The map of a cluster, or of a part of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui.element import Element
from nicegui.events import GenericEventArguments

Json = dict[str, Any]


class ClusterMap(Element, component="map.js"):
    """Draws what `topology.tree` gives; `on_node` hears of the node that was chosen."""

    def __init__(self, domains: list[Json], on_node: Callable[[str], Any] | None = None) -> None:
        super().__init__()
        self.props["domains"] = domains
        self.props["still"] = on_node is None
        if on_node is not None:

            def chosen(event: GenericEventArguments) -> Any:
                return on_node(str(event.args))

            self.on("node", chosen)

    def show(self, domains: list[Json]) -> None:
        """Draw this instead, if it is another."""
        if self.props["domains"] != domains:
            self.props["domains"] = domains
            self.update()
