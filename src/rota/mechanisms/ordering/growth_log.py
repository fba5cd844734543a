"""On which nodes more became available, and in which order, so that only these are looked at again."""

from __future__ import annotations


class GrowthLog:
    """The nodes on which more became available, the latest last, with the moment of each: a count of entries."""

    __slots__ = ("_answer", "_asked", "_at", "_found", "count")

    def __init__(self) -> None:
        self.count = 0
        """Entries so far."""
        self._at: dict[int, int] = {}
        self._found: dict[int, int] = {}
        """What was answered since the latest entry: many lanes ask for the same moments."""
        self._asked = -1
        """What was asked last; -1 for nothing since the latest entry."""
        self._answer = 0

    def note(self, nodes: int) -> None:
        """Enter nodes, given as a bit set."""
        if not nodes:
            return
        self.count += 1
        self._found = {}
        self._asked = -1
        at = self._at
        while nodes:
            low = nodes & -nodes
            nodes ^= low
            node = low.bit_length() - 1
            at.pop(node, None)
            at[node] = self.count

    def since(self, count: int) -> int:
        """The nodes entered after there were so many entries, as a bit set."""
        if count >= self.count:
            return 0
        if count == self._asked:
            return self._answer
        self._asked = count
        known = self._found.get(count)
        if known is not None:
            self._answer = known
            return known
        found = 0
        for node in reversed(self._at):
            if self._at[node] <= count:
                break
            found |= 1 << node
        self._found[count] = self._answer = found
        return found
