"""The cluster as a picture: domains, racks, nodes, devices, and who holds each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.api.wire import state_of
from rota.core.inventory import NodeFree
from rota.core.live import LiveJob
from rota.core.model import WHOLE
from rota.core.placement import device_indexes
from rota.core.state import State

Json = dict[str, Any]
COLOURS = 8
FREE, BAD, OTHER = "free", "bad", "other"
Paint = Callable[[LiveJob], str]
"""The class of a job's colour."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A job on a device, with the thousandths that it holds of it."""

    live: LiveJob
    milli: int


Holders = dict[int, dict[int, list[Hold]]]


def holders_of(state: State) -> Holders:
    """Who is on each device of each node, those who are about to leave included."""
    holders: Holders = {}
    for live in state.jobs.values():
        leaving = state.vacating.get(live.job.id)
        held = () if live.placement is None or live.reserved else live.placement
        for slot in (*held, *(() if leaving is None else leaving[1])):
            devices = holders.setdefault(slot.node, {})
            for device in device_indexes(slot.devices):
                devices.setdefault(device, []).append(Hold(live, slot.milli))
    return holders


def colours_for(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, the same as long as the names are."""
    return {name: f"c{index % COLOURS + 1}" for index, name in enumerate(sorted(set(names)))}


def tree(state: State, indexes: Sequence[int], holders: Holders, paint: Paint) -> list[Json]:
    """Domains with their racks with their nodes, for the map to draw."""
    domains: dict[str, dict[str, list[Json]]] = {}
    for index in indexes:
        books = state.inventory.nodes[index]
        racks = domains.setdefault(books.node.domain, {})
        racks.setdefault(books.node.rack, []).append(_node(books, holders.get(index, {}), paint))
    return [
        {"name": domain, "racks": [{"name": rack, "nodes": nodes} for rack, nodes in racks.items()]}
        for domain, racks in domains.items()
    ]


def _node(books: NodeFree, holders: Mapping[int, list[Hold]], paint: Paint) -> Json:
    node = books.node
    state = state_of(books)
    busy = sum(1 for device in range(node.devices) if device in holders)
    free = node.devices - busy
    scattered = bool(busy and free and state == "up")
    return {
        "id": str(node.id),
        "type": str(node.device_type),
        "state": state,
        "sockets": list(node.sockets),
        "said": f"{node.id}: {busy} of {node.devices} {node.device_type} busy, {state}"
        + (", free ones in a fragment" if scattered else ""),
        "devices": [
            _device(device, holders.get(device, ()), state, scattered, paint) for device in range(node.devices)
        ],
    }


def _device(device: int, holds: Sequence[Hold], state: str, scattered: bool, paint: Paint) -> Json:
    if not holds:
        colour = BAD if state != "up" else FREE
        words = "free, in a fragment" if scattered else "free" if colour == FREE else state
        return {"c": colour, "f": scattered, "t": f"device {device}: {words}"}
    who = "; ".join(f"job {hold.live.job.id} {hold.live.job.name} ({hold.live.job.tenant})" for hold in holds[:4])
    share = min(sum(hold.milli for hold in holds) / WHOLE, 1.0)
    shown: Json = {"c": paint(holds[0].live), "t": f"device {device}: {who}"}
    return shown if share == 1.0 else {**shown, "p": round(100 * share)}
