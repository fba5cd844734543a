"""The terms of gangs on the network's links: the order of their ranks, interfaces, and turns."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from rota.core.errors import RotaError
from rota.core.model.cluster import Node
from rota.core.model.placement import Placement
from rota.drivers.kubernetes.gangs.gang import Gang, Stage
from rota.drivers.kubernetes.settings import ClusterSettings
from rota.files.network.network_file import network_from_document
from rota.network.link_guide import LinkGuide, LinkTerms, NodeAt

log = logging.getLogger("rota.drivers.kubernetes")


class GangLinks:
    """Settles the terms of gangs as they start; a network that names no nodes is built again when nodes change."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._document = settings.network
        self._names: tuple[str, ...] | None = None
        self._guide: LinkGuide | None = None

    def begin(
        self,
        gang: Gang,
        placement: Placement,
        nodes: Sequence[Node],
        gangs: Iterable[Gang],
        node_at: NodeAt,
    ) -> LinkTerms | None:
        """Return the terms of a gang that starts, beside those that are placed; None without a usable network."""
        if self._document is None or gang.job is None:
            return None
        placed = {each.job.id: each for each in gangs if each.job is not None and each.stage is Stage.PLACED}
        try:
            guide = self._renewed(nodes, [each for each in placed.values() if each is not gang], node_at)
            return None if guide is None else guide.begin(gang.job, placement, node_at, placed)
        except RotaError as error:  # a label of the job, or a node without links: it runs without terms
            log.warning("a job gets no terms on the links", extra={"job": gang.id, "why": str(error)})
            return None

    def _renewed(self, nodes: Sequence[Node], placed: Sequence[Gang], node_at: NodeAt) -> LinkGuide | None:
        """Return the guide for these nodes, which knows what was placed before."""
        names = () if self._document and self._document.get("nodes") else tuple(str(node.id) for node in nodes)
        if names != self._names:
            self._names, self._guide = names, None
            self._guide = LinkGuide(network_from_document(self._document, Path("network"), names))
            for gang in placed:
                if gang.job is not None:
                    self._guide.found(gang.job, gang.placement, gang.links or LinkTerms(), node_at)
        return self._guide
