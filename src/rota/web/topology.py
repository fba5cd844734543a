"""The cluster as a picture: domains, racks, nodes, devices, and who holds each."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.api.wire import state_of
from rota.core.model.job import WHOLE
from rota.core.model.placement import device_indexes
from rota.core.state.job_record import LiveJob
from rota.core.state.node_accounts import NodeAccount
from rota.core.state.state import State

Json = dict[str, Any]
COLOURS = 8
FREE, BAD, OTHER = "free", "bad", "other"
MOST_NAMED = 4
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
        for slot in (*live.held, *(() if leaving is None else leaving[1])):
            devices = holders.setdefault(slot.node, {})
            for device in device_indexes(slot.devices):
                devices.setdefault(device, []).append(Hold(live, slot.milli))
    return holders


def colours_for(devices: Mapping[str, int]) -> dict[str, str]:
    """A colour of its own for each of the names that hold most; there are none for the others."""
    most = sorted(devices, key=lambda name: (-devices[name], name))[:COLOURS]
    return {name: f"c{number}" for number, name in enumerate(sorted(most), 1)}


def tree(
    state: State, indexes: Sequence[int], holders: Holders, paint: Paint, allowed: Container[str] | None
) -> list[Json]:
    """Domains with their racks with their nodes, for the map to draw; jobs of tenants not allowed are not named."""
    domains: dict[str, dict[str, list[Json]]] = {}
    for index in indexes:
        books = state.inventory.nodes[index]
        racks = domains.setdefault(books.node.domain, {})
        racks.setdefault(books.node.rack, []).append(_node(books, holders.get(index, {}), paint, allowed))
    return [
        {"name": domain, "racks": [{"name": rack, "nodes": nodes} for rack, nodes in racks.items()]}
        for domain, racks in domains.items()
    ]


def _node(books: NodeAccount, holders: Mapping[int, list[Hold]], paint: Paint, allowed: Container[str] | None) -> Json:
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
            _held(device, holders[device], paint, allowed) if device in holders else _empty(device, state, scattered)
            for device in range(node.devices)
        ],
    }


def _empty(device: int, state: str, scattered: bool) -> Json:
    colour = BAD if state != "up" else FREE
    words = "free, in a fragment" if scattered else "free" if colour == FREE else state
    return {"c": colour, "f": scattered, "t": f"device {device}: {words}"}


def _held(device: int, holds: Sequence[Hold], paint: Paint, allowed: Container[str] | None) -> Json:
    colour = next((found for hold in holds if (found := paint(hold.live)) != OTHER), OTHER)
    share = min(sum(hold.milli for hold in holds) / WHOLE, 1.0)
    shown: Json = {"c": colour, "t": f"device {device}: {_who(holds, allowed)}"}
    return shown if share == 1.0 else {**shown, "p": round(100 * share)}


def _who(holds: Sequence[Hold], allowed: Container[str] | None) -> str:
    """Whose jobs are on a device, by name as far as that is for the one who looks."""
    seen = [hold.live.job for hold in holds if allowed is None or hold.live.job.tenant in allowed]
    words = [f"job {job.id} {job.name} ({job.tenant})" for job in seen[:MOST_NAMED]]
    return "; ".join(words if len(seen) == len(holds) else [*words, "in use by others"])
