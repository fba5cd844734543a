"""On which nodes more became available, and in which order, so that only these are looked at again."""

from __future__ import annotations


class GrowthLog:
    """The nodes on which more became available, the latest last, with the moment of each: a count of entries."""

    __slots__ = ("_at", "count")

    def __init__(self) -> None:
        self.count = 0
        """Entries so far."""
        self._at: dict[int, int] = {}

    def note(self, nodes: int) -> None:
        """Enter nodes, given as a bit set."""
        if not nodes:
            return
        self.count += 1
        at = self._at
        while nodes:
            low = nodes & -nodes
            nodes ^= low
            node = low.bit_length() - 1
            at.pop(node, None)
            at[node] = self.count

    def since(self, count: int) -> int:
        """The nodes entered after there were so many entries, as a bit set."""
        found = 0
        if count < self.count:
            for node in reversed(self._at):
                if self._at[node] <= count:
                    break
                found |= 1 << node
        return found
