"""What each event of a node, and each change of the tenants' guarantees, does to the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rota.core.engine.protocols import Changes
from rota.core.errors import RotaError
from rota.core.messages.events import (
    NodeAdded,
    NodeBack,
    NodeDrained,
    NodeLost,
    NodeOccupied,
    NodeRated,
    NodeRemoved,
    NodeReserved,
    NodeUndrained,
    PromisesChanged,
)
from rota.core.model.cluster import NodeTrust
from rota.core.model.job import OPPORTUNISTIC
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import Phase
from rota.core.state.state import State


def _node_lost(state: State, changes: Changes, event: NodeLost) -> list[LiveJob]:
    index = state.node(event.node_id)
    state.inventory.set_up(index, False)
    return _node_closed(state, changes, index)


def _node_back(state: State, changes: Changes, event: NodeBack) -> list[LiveJob]:
    index = state.node(event.node_id)
    state.inventory.set_up(index, True)
    return _node_opened(state, changes, index)


def _node_drained(state: State, changes: Changes, event: NodeDrained) -> list[LiveJob]:
    index = state.node(event.node_id)
    state.inventory.set_drained(index, True)
    return _node_closed(state, changes, index)


def _node_undrained(state: State, changes: Changes, event: NodeUndrained) -> list[LiveJob]:
    index = state.node(event.node_id)
    state.inventory.set_drained(index, False)
    return _node_opened(state, changes, index)


def _node_rated(state: State, changes: Changes, event: NodeRated) -> list[LiveJob]:
    index = state.node(event.node_id)
    before = state.inventory.nodes[index].trust
    state.inventory.rate(index, event.trust)
    if event.trust is NodeTrust.SUSPECT:
        return _node_closed(state, changes, index)
    return _node_opened(state, changes, index) if before is NodeTrust.SUSPECT else []


def _node_reserved(state: State, changes: Changes, event: NodeReserved) -> list[LiveJob]:
    index = state.node(event.node_id)
    inventory = state.inventory
    before = inventory.nodes[index].reserved
    inventory.nodes[index].reserved = event.taints
    inventory.fitting = {}
    inventory.grown |= 1 << index
    found = _node_closed(state, changes, index) if set(event.taints) - set(before) else []
    if set(before) - set(event.taints):
        _node_opened(state, changes, index)
    return found


def _node_added(state: State, changes: Changes, event: NodeAdded) -> list[LiveJob]:
    state.add_node(event.node)
    return _node_opened(state, changes, state.node(event.node.id))


def _node_removed(state: State, changes: Changes, event: NodeRemoved) -> list[LiveJob]:
    index = state.node(event.node_id)
    if state.inventory.nodes[index].removed:
        raise RotaError(f"node {event.node_id!r} was removed already")
    state.inventory.remove(index)
    return _node_closed(state, changes, index)


def _node_occupied(state: State, changes: Changes, event: NodeOccupied) -> list[LiveJob]:
    index = state.node(event.node_id)
    state.inventory.occupy(index, event.devices, event.cpu_milli, event.memory_bytes)
    changes.freed = True
    return []


def _promises_changed(state: State, changes: Changes, event: PromisesChanged) -> list[LiveJob]:
    """Rebuild the allocator's accounts. A job that the new guarantees can never hold contends without one."""
    ledger = state.ledger
    if ledger is None:
        return []
    ledger.promise(event.cells, event.tenants, state.inventory)
    for live in state.jobs.values():
        if live.state.is_final or live.job.priority == OPPORTUNISTIC:
            continue
        is_demoted = not ledger.could_hold(live)
        if is_demoted is not live.demoted:
            state.demote(live, is_demoted)
            if live.phase is Phase.WAITING:
                changes.left.append(live)
                changes.arrived.append(live)
    ledger.adopt(state)
    changes.freed = True
    return []


def _node_opened(state: State, changes: Changes, index: int) -> list[LiveJob]:
    """Report that a node can be used, as far as nothing else keeps it from that."""
    if state.ledger is not None:
        state.ledger.node_turned(index, state.inventory)
    changes.freed = True
    return []


def _node_closed(state: State, changes: Changes, index: int) -> list[LiveJob]:
    """Report that a node can't be used. Return the jobs with a reservation there."""
    if state.ledger is not None:
        state.ledger.node_turned(index, state.inventory)
    changes.shrunk = True
    return [live for live in state.reserved.values() if any(slot.node == index for slot in live.placement or ())]


HANDLERS: dict[type, Callable[[State, Changes, Any], list[LiveJob]]] = {
    NodeLost: _node_lost,
    NodeBack: _node_back,
    NodeDrained: _node_drained,
    NodeUndrained: _node_undrained,
    NodeRated: _node_rated,
    NodeReserved: _node_reserved,
    NodeAdded: _node_added,
    NodeRemoved: _node_removed,
    NodeOccupied: _node_occupied,
    PromisesChanged: _promises_changed,
}
"""The function for each kind of event. It changes the state, collects what the policy has to know, and returns the
jobs whose reservation is on a node that became unusable."""
