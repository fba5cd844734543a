"""Max-min fair sharing of links, vectorised.

Each flow (or each job, whose flows advance together) has a level, and uses `load` times that level of every link that
it crosses. Levels rise together; a flow stops rising when a link that it crosses is full, or at its cap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rota.network.topology import Floats, Ints

FULL = 1e-9
"""Relative capacity left of a link below which it counts as full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """A sparse matrix of flows and links: entry `i` says that flow `flow[i]` uses `load[i]` of `link[i]` per level."""

    flow: Ints
    link: Ints
    load: Floats
    flows: int

    @classmethod
    def of(cls, uses: list[dict[int, float]]) -> LinkUse:
        """Return the matrix of flows, each given by its load of every link."""
        flow = [number for number, loads in enumerate(uses) for _ in loads]
        link = [each for loads in uses for each in loads]
        load = [each for loads in uses for each in loads.values()]
        return cls(
            flow=np.array(flow, dtype=np.int64),
            link=np.array(link, dtype=np.int64),
            load=np.array(load, dtype=np.float64),
            flows=len(uses),
        )


def max_min(use: LinkUse, capacity: Floats, caps: Floats | None = None, priority: Ints | None = None) -> Floats:
    """Return the level of each flow; without end for flows that cross no link and have no cap.

    With `priority`, flows of a higher number take what they can before those of lower ones get the rest.
    """
    caps = np.full(use.flows, np.inf) if caps is None else caps
    if priority is None or use.flows == 0:
        return _filled(use, capacity.astype(np.float64), caps)
    levels = np.zeros(use.flows)
    left = capacity.astype(np.float64)
    for rank in np.unique(priority)[::-1]:
        chosen = priority == rank
        inside = chosen[use.flow]
        number = np.cumsum(chosen) - 1
        part = LinkUse(
            flow=number[use.flow[inside]], link=use.link[inside], load=use.load[inside], flows=int(chosen.sum())
        )
        levels[chosen] = _filled(part, left, caps[chosen])
        spent = use.load[inside] * levels[use.flow[inside]]
        left = np.maximum(left - np.bincount(use.link[inside], spent, minlength=len(left)), 0.0)
    return levels


def _filled(use: LinkUse, capacity: Floats, caps: Floats) -> Floats:
    """Fill until every flow is held by a full link or by its cap.

    Links that are the tightest for all of their flows fill independently of each other, so that all of them are filled
    in one round: the number of rounds is the depth of dependencies, not the number of links.
    """
    flow, link, load = use.flow, use.link, use.load
    levels = np.full(use.flows, np.inf)
    if use.flows == 0:
        return levels
    links = len(capacity)
    left = capacity.copy()
    while len(flow):
        weight = np.bincount(link, load, minlength=links)
        with np.errstate(divide="ignore", invalid="ignore"):
            offer = np.where(weight > 0, np.maximum(left, 0.0) / weight, np.inf)
        offered = offer[link]
        reachable = np.full(use.flows, np.inf)
        np.minimum.at(reachable, flow, offered)
        tightest = np.minimum(reachable, caps)
        # A link is tight when each of its flows is held by it, or by another link at the same level.
        is_held = tightest[flow] >= offered * (1 - FULL)
        is_loose = np.bincount(link, ~is_held, minlength=links) > 0
        done = caps <= reachable  # what links offer only grows, so that such a flow always reaches its cap
        done[flow[~is_loose[link]]] = True
        settled = done[flow]
        levels[flow[settled]] = tightest[flow[settled]]
        spent = load[settled] * levels[flow[settled]]
        left -= np.bincount(link[settled], spent, minlength=links)
        keep = ~settled
        flow, link, load = flow[keep], link[keep], load[keep]
    untouched = ~np.isin(np.arange(use.flows), use.flow)
    levels[untouched] = caps[untouched]
    return levels
