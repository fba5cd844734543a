"""The terms of an attempt on the network's links: settled when its folder is made, and read back from it."""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path

from rota.core.model.cluster import Node
from rota.core.model.job import JobId
from rota.drivers.local.launch_order import LaunchOrder
from rota.network.link_guide import LinkGuide, LinkTerms
from rota.store.run_folder import read_json, write_json

_FILE = "links.json"


def terms_of(
    guide: LinkGuide | None, order: LaunchOrder, nodes: Sequence[Node], folder: Path, alive: Container[JobId]
) -> LinkTerms | None:
    """Return the terms of an attempt: as its folder says, else settled now; None without a network."""
    if guide is None:
        return None
    known = read_json(folder / _FILE)
    if known is not None:
        terms = LinkTerms(
            order=tuple(map(int, known["order"])),
            variables=known["variables"],
            shift_s=float(known["shift_s"]),
            period_s=float(known["period_s"]),
        )
        guide.found(order.job, order.placement, terms, nodes.__getitem__)
        return terms
    return None if folder.exists() else guide.begin(order.job, order.placement, nodes.__getitem__, alive)


def write_terms(folder: Path, terms: LinkTerms | None) -> None:
    """Write the terms of an attempt into its folder, once."""
    if terms is not None and not (folder / _FILE).exists():
        value = {"order": list(terms.order), "variables": dict(terms.variables)}
        write_json(folder / _FILE, {**value, "shift_s": terms.shift_s, "period_s": terms.period_s})
