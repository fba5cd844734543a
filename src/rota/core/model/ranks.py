"""From a placement to tasks: which node and which devices each gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.model.cluster import Node
from rota.core.model.placement import Placement, device_indexes


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRank:
    """The slot of one task: its rank in the job and in its role, its node and devices."""

    rank: int
    role: int
    role_rank: int
    node: Node
    devices: tuple[int, ...]
    local_rank: int


def task_ranks(placement: Placement, nodes: Sequence[Node]) -> list[TaskRank]:
    """Return the tasks of a placement: role by role, each role's in the order of the placement."""
    found: list[TaskRank] = []
    rank_by_role: dict[int, int] = {}
    rank_by_node: dict[int, int] = {}
    for slot in sorted(placement, key=lambda slot: slot.role):
        devices = device_indexes(slot.devices)
        per_task = len(devices) // slot.tasks
        for number in range(slot.tasks):
            mine = devices[number * per_task : (number + 1) * per_task] if per_task else devices
            found.append(
                TaskRank(
                    rank=len(found),
                    role=slot.role,
                    role_rank=rank_by_role.setdefault(slot.role, 0),
                    node=nodes[slot.node],
                    devices=tuple(mine),
                    local_rank=rank_by_node.setdefault(slot.node, 0),
                )
            )
            rank_by_role[slot.role] += 1
            rank_by_node[slot.node] += 1
    return found
