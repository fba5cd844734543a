"""The latest output of a session, by offset, so that clients can come back to where they were."""

from __future__ import annotations

from collections import deque

KEPT_BYTES = 1 << 20


class OutputRing:
    """Pieces of output, each with its offset and kind; the oldest are forgotten."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._pieces: deque[tuple[int, bytes, bytes]] = deque()
        self.end = 0

    @property
    def start(self) -> int:
        """The offset of the oldest byte that is kept."""
        return self._pieces[0][0] if self._pieces else self.end

    def add(self, kind: bytes, output: bytes) -> None:
        """Append output."""
        self._pieces.append((self.end, kind, output))
        self.end += len(output)

    def trim(self, needed_from: int) -> None:
        """Forget what is more than is kept, except from an offset on that a client still needs."""
        while self._pieces:
            offset, _, output = self._pieces[0]
            after = offset + len(output)
            if self.end - after < self._kept_bytes or after > needed_from:
                return
            self._pieces.popleft()

    def read(self, offset: int) -> tuple[int, bytes, bytes] | None:
        """Return the piece at an offset, from there on, with its offset and kind; None at the end."""
        if offset >= self.end or not self._pieces:
            return None
        low, high = 0, len(self._pieces) - 1
        if self.end - offset <= len(self._pieces[-1][2]):
            low = high
        while low < high:
            middle = (low + high + 1) // 2
            if self._pieces[middle][0] <= offset:
                low = middle
            else:
                high = middle - 1
        at, kind, output = self._pieces[low]
        begin = max(offset, at)
        return begin, kind, output[begin - at :]
