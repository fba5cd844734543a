"""What happens to nodes, and to what is promised of them: what each such event does to the state."""

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
    NodeRemoved,
    NodeUndrained,
    PromisesChanged,
)
from rota.core.model.job import OPPORTUNISTIC, JobState
from rota.core.state.state import State


def _node_lost(state: State, changes: Changes, event: NodeLost) -> None:
    index = state.node(event.node_id)
    state.inventory.set_up(index, False)
    _node_turned(state, index)
    _drop_reservations(state, changes, index)
    changes.shrunk = True


def _node_back(state: State, changes: Changes, event: NodeBack) -> None:
    index = state.node(event.node_id)
    state.inventory.set_up(index, True)
    _node_turned(state, index)
    changes.freed = True


def _node_drained(state: State, changes: Changes, event: NodeDrained) -> None:
    index = state.node(event.node_id)
    state.inventory.set_drained(index, True)
    _node_turned(state, index)
    _drop_reservations(state, changes, index)
    changes.shrunk = True


def _node_undrained(state: State, changes: Changes, event: NodeUndrained) -> None:
    index = state.node(event.node_id)
    state.inventory.set_drained(index, False)
    _node_turned(state, index)
    changes.freed = True


def _node_added(state: State, changes: Changes, event: NodeAdded) -> None:
    state.add_node(event.node)
    _node_turned(state, state.node(event.node.id))
    changes.freed = True


def _node_removed(state: State, changes: Changes, event: NodeRemoved) -> None:
    index = state.node(event.node_id)
    if state.inventory.nodes[index].removed:
        raise RotaError(f"node {event.node_id!r} was removed already")
    state.inventory.remove(index)
    _node_turned(state, index)
    _drop_reservations(state, changes, index)
    changes.shrunk = True


def _node_occupied(state: State, changes: Changes, event: NodeOccupied) -> None:
    index = state.node(event.node_id)
    state.inventory.occupy(index, event.devices, event.cpu_milli, event.memory_bytes)
    changes.freed = True


def _promises_changed(state: State, changes: Changes, event: PromisesChanged) -> None:
    """The books are opened anew. Whom the new promises can never hold contends without a guarantee from now on."""
    ledger = state.ledger
    if ledger is None:
        return
    ledger.promise(event.cells, event.tenants, state.inventory)
    for live in state.jobs.values():
        if live.state.is_final or live.job.priority == OPPORTUNISTIC:
            continue
        is_demoted = not ledger.could_hold(live)
        if is_demoted is not live.demoted:
            live.demoted = is_demoted
            if live.state is JobState.WAITING and not live.unmet and live.placement is None:
                changes.left.append(live)
                changes.arrived.append(live)
    ledger.adopt(state)
    changes.freed = True


def _node_turned(state: State, index: int) -> None:
    if state.ledger is not None:
        state.ledger.node_turned(index, state.inventory)


def _drop_reservations(state: State, changes: Changes, index: int) -> None:
    for live in list(state.reserved.values()):
        if live.state is not JobState.SUSPENDED and any(slot.node == index for slot in live.placement or ()):
            state.give_up_claim(live)
            changes.left.append(live)
            if live.stopping is None:
                changes.arrived.append(live)
            changes.freed = True


HANDLERS: dict[type, Callable[[State, Changes, Any], None]] = {
    NodeLost: _node_lost,
    NodeBack: _node_back,
    NodeDrained: _node_drained,
    NodeUndrained: _node_undrained,
    NodeAdded: _node_added,
    NodeRemoved: _node_removed,
    NodeOccupied: _node_occupied,
    PromisesChanged: _promises_changed,
}
"""What takes in each kind of event: it changes the state and gathers what the policy has to know."""
