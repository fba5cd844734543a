"""How a gang is laid over nodes, given how many of its tasks each node could take.

Rooms are counted as `by_room[n]`: the set of nodes (a bit set) with room for exactly n tasks. All
patterns work on that, whether the room comes from free devices alone or from CPUs and memory too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

Piece = tuple[int, int]
"""A node and how many tasks it takes."""
Layout = Callable[[Sequence[int], int], list[Piece] | None]
"""From the room of nodes and a number of tasks to the nodes that take them; None if there is too little room."""


class Pattern(Enum):
    """The ways to lay a gang over nodes."""

    FIRST = "first"
    FEWEST_NODES = "fewest-nodes"
    SPREAD = "spread"
    FULLEST = "fullest"
    EVEN = "even"
    CONSECUTIVE = "consecutive"


def total_room(by_room: Sequence[int]) -> int:
    """Tasks for which there is room."""
    return sum(room * nodes.bit_count() for room, nodes in enumerate(by_room))


def fewest_nodes(by_room: Sequence[int], tasks: int) -> list[Piece] | None:
    """The tightest single node; if there is none, the roomiest nodes, and the tightest for what is left."""
    pieces: list[Piece] = []
    left = tasks
    used = 0
    for room in range(len(by_room) - 1, 0, -1):
        nodes = by_room[room]
        while nodes and left > room:
            low = nodes & -nodes
            nodes ^= low
            used |= low
            pieces.append((low.bit_length() - 1, room))
            left -= room
        if left <= room and by_room[room] & ~used:
            node = _tightest(by_room, left, used)
            if node is not None:
                pieces.append((node, left))
                return pieces
    return None


def _tightest(by_room: Sequence[int], tasks: int, used: int) -> int | None:
    for room in range(tasks, len(by_room)):
        nodes = by_room[room] & ~used
        if nodes:
            return (nodes & -nodes).bit_length() - 1
    return None


def first(by_room: Sequence[int], tasks: int) -> list[Piece] | None:
    """Nodes in their order, each filled before the next."""
    anywhere = 0
    for nodes in by_room[1:]:
        anywhere |= nodes
    pieces: list[Piece] = []
    left = tasks
    while anywhere:
        low = anywhere & -anywhere
        anywhere ^= low
        room = next(n for n in range(1, len(by_room)) if by_room[n] & low)
        taken = min(room, left)
        pieces.append((low.bit_length() - 1, taken))
        left -= taken
        if not left:
            return pieces
    return None


def fullest(by_room: Sequence[int], tasks: int) -> list[Piece] | None:
    """The tightest single node; if there is none, nodes with the least room first."""
    node = _tightest(by_room, tasks, 0)
    if node is not None:
        return [(node, tasks)]
    pieces: list[Piece] = []
    left = tasks
    for room in range(1, len(by_room)):
        nodes = by_room[room]
        while nodes:
            low = nodes & -nodes
            nodes ^= low
            taken = min(room, left)
            pieces.append((low.bit_length() - 1, taken))
            left -= taken
            if not left:
                return pieces
    return None


def spread(by_room: Sequence[int], tasks: int) -> list[Piece] | None:
    """One task per node, roomiest first; repeated over nodes with room while tasks are left."""
    room_by_node: dict[int, int] = {}
    for room in range(len(by_room) - 1, 0, -1):
        nodes = by_room[room]
        while nodes and len(room_by_node) < tasks:
            low = nodes & -nodes
            nodes ^= low
            room_by_node[low.bit_length() - 1] = room
    if sum(room_by_node.values()) < tasks:
        return None
    taken = dict.fromkeys(room_by_node, 0)
    left = tasks
    while left:
        for node, room in room_by_node.items():
            if left and taken[node] < room:
                taken[node] += 1
                left -= 1
    return list(taken.items())


def even(by_room: Sequence[int], tasks: int) -> list[Piece] | None:
    """On as few nodes as can be with equally many tasks on each, give or take one; the roomiest nodes first."""
    roomiest: list[Piece] = []
    for room in range(len(by_room) - 1, 0, -1):
        nodes = by_room[room]
        while nodes and len(roomiest) < tasks:
            low = nodes & -nodes
            nodes ^= low
            roomiest.append((low.bit_length() - 1, room))
    for count in range(1, len(roomiest) + 1):
        each, rest = divmod(tasks, count)
        shares = [each + 1] * rest + [each] * (count - rest)
        if all(share <= roomiest[at][1] for at, share in enumerate(shares)):
            return [(roomiest[at][0], share) for at, share in enumerate(shares)]
    return first(by_room, tasks)


def consecutive(by_room: Sequence[int], tasks: int, idle: Callable[[int], int] | None = None) -> list[Piece] | None:
    """The run of consecutive nodes with least idle that suffices; in it the node with least idle, or nodes in order.

    Where no run suffices, all of the one with most idle, and so on. That is how Slurm's select/cons_tres chooses nodes.
    What is idle of a node is its room for tasks; Slurm counts by CPUs alone.
    """
    pieces: list[Piece] = []
    runs = _runs(by_room)
    left = tasks
    while runs:
        at = _best_run(runs, left, idle)
        run = runs.pop(at)
        fitting = [piece for piece in run if piece[1] >= left]
        if fitting:
            run = [fitting[_least(fitting, idle)]]
        for node, room in run:
            pieces.append((node, min(room, left)))
            left -= room
            if left <= 0:
                return pieces
    return None


def _runs(by_room: Sequence[int]) -> list[list[Piece]]:
    """The runs of consecutive nodes with room, each node with its room."""
    rooms: dict[int, int] = {}
    for room in range(1, len(by_room)):
        nodes = by_room[room]
        while nodes:
            low = nodes & -nodes
            nodes ^= low
            rooms[low.bit_length() - 1] = room
    runs: list[list[Piece]] = []
    for node in sorted(rooms):
        if node - 1 in rooms:
            runs[-1].append((node, rooms[node]))
        else:
            runs.append([(node, rooms[node])])
    return runs


def _best_run(runs: list[list[Piece]], tasks: int, idle: Callable[[int], int] | None) -> int:
    """Which run to take: of those that suffice the one with least idle, or else the one with most."""
    best, best_idle, suffices = -1, 0, False
    for at, run in enumerate(runs):
        room = total = 0
        for piece in run:
            room += piece[1]
            total += piece[1] if idle is None else idle(piece[0])
        fits = room >= tasks
        if best < 0 or fits > suffices or (fits == suffices and (total < best_idle if fits else total > best_idle)):
            best, best_idle, suffices = at, total, fits
    return best


def _least(pieces: list[Piece], idle: Callable[[int], int] | None) -> int:
    """The first of the nodes with least idle."""
    best, least = 0, 0
    for at, (node, room) in enumerate(pieces):
        amount = room if idle is None else idle(node)
        if not at or amount < least:
            best, least = at, amount
    return best


LAY: dict[Pattern, Layout] = {
    Pattern.CONSECUTIVE: consecutive,
    Pattern.FIRST: first,
    Pattern.FEWEST_NODES: fewest_nodes,
    Pattern.SPREAD: spread,
    Pattern.FULLEST: fullest,
    Pattern.EVEN: even,
}
