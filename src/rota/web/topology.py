"""The cluster as data for the map: domains, racks, nodes, devices, and the jobs on each device."""

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
MAX_NAMED = 4
Paint = Callable[[LiveJob], str]
"""Maps a job to the CSS class of its colour."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A job on a device, and the thousandths of the device that it holds."""

    live: LiveJob
    milli: int


Holders = dict[int, dict[int, list[Hold]]]


def holders_of(state: State) -> Holders:
    """Return the jobs on each device of each node, including jobs that are vacating it."""
    holders: Holders = {}
    for live in state.jobs.values():
        leaving = state.vacating.get(live.job.id)
        for slot in (*live.held, *(() if leaving is None else leaving[1])):
            devices = holders.setdefault(slot.node, {})
            for device in device_indexes(slot.devices):
                devices.setdefault(device, []).append(Hold(live, slot.milli))
    return holders


def colours_for(devices: Mapping[str, int]) -> dict[str, str]:
    """Assign a distinct colour to each of the names with the most devices; the others get none."""
    most = sorted(devices, key=lambda name: (-devices[name], name))[:COLOURS]
    return {name: f"c{number}" for number, name in enumerate(sorted(most), 1)}


def tree(
    state: State, indexes: Sequence[int], holders: Holders, paint: Paint, allowed: Container[str] | None
) -> list[Json]:
    """Return domains, racks and nodes for the map; jobs of tenants outside `allowed` stay unnamed."""
    domains: dict[str, dict[str, list[Json]]] = {}
    for index in indexes:
        account = state.inventory.nodes[index]
        racks = domains.setdefault(account.node.domain, {})
        racks.setdefault(account.node.rack, []).append(_node(account, holders.get(index, {}), paint, allowed))
    return [
        {"name": domain, "racks": [{"name": rack, "nodes": nodes} for rack, nodes in racks.items()]}
        for domain, racks in domains.items()
    ]


def _node(
    account: NodeAccount, holders: Mapping[int, list[Hold]], paint: Paint, allowed: Container[str] | None
) -> Json:
    node = account.node
    state = state_of(account)
    busy = sum(1 for device in range(node.devices) if device in holders)
    free = node.devices - busy
    scattered = bool(busy and free and state == "up")
    return {
        "id": str(node.id),
        "type": str(node.device_type),
        "state": state,
        "sockets": list(node.sockets),
        "label": f"{node.id}: {busy} of {node.devices} {node.device_type} busy, {state}"
        + (", free devices are fragmented" if scattered else ""),
        "devices": [
            _held(device, holders[device], paint, allowed) if device in holders else _empty(device, state, scattered)
            for device in range(node.devices)
        ],
    }


def _empty(device: int, state: str, scattered: bool) -> Json:
    colour = BAD if state != "up" else FREE
    description = "free (fragmented)" if scattered else "free" if colour == FREE else state
    return {"c": colour, "f": scattered, "t": f"device {device}: {description}"}


def _held(device: int, holds: Sequence[Hold], paint: Paint, allowed: Container[str] | None) -> Json:
    colour = next((found for hold in holds if (found := paint(hold.live)) != OTHER), OTHER)
    share = min(sum(hold.milli for hold in holds) / WHOLE, 1.0)
    shown: Json = {"c": colour, "t": f"device {device}: {_jobs_on(holds, allowed)}"}
    return shown if share == 1.0 else {**shown, "p": round(100 * share)}


def _jobs_on(holds: Sequence[Hold], allowed: Container[str] | None) -> str:
    """Describe the jobs on a device; those of tenants outside `allowed` stay unnamed."""
    seen = [hold.live.job for hold in holds if allowed is None or hold.live.job.tenant in allowed]
    named = [f"job {job.id} {job.name} ({job.tenant})" for job in seen[:MAX_NAMED]]
    return "; ".join(named if len(seen) == len(holds) else [*named, "in use by other tenants"])
