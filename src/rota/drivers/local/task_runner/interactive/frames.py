"""The frames of a session, between client, manager and session host: a kind, a length and a payload.

Over a WebSocket each message is one frame without its length.
"""

from __future__ import annotations

OPEN = b"O"
"""From the client, first: what to open, as JSON. To the client: that it is open, as JSON."""
INPUT, END_OF_INPUT, RECEIVED = b"i", b"e", b"k"
"""`RECEIVED` tells the client how many bytes of its input have arrived, in all. By it the client of a forwarded port
tells how many bytes of output it has passed on."""
SIZE, SIGNAL = b"w", b"s"
"""`SIZE` is rows and columns, as JSON."""
HANG_UP, DETACH = b"h", b"d"
"""To end what was opened; to leave it running."""
OUTPUT, ERROR_OUTPUT = b"o", b"r"
END_OF_OUTPUT = b"z"
"""The program that listens on a forwarded port sends no more, but may still receive."""
NOTE, FAILURE, EXIT = b"n", b"f", b"x"
"""To the client: text for the user, why it could not be opened, and how it ended (JSON)."""
MOST_PAYLOAD = 128 << 10
HEAD = 5


class FrameFault(Exception):
    """Bytes that are no frame."""


def pack(kind: bytes, payload: bytes = b"") -> bytes:
    """Return a frame as it is sent over a stream."""
    return kind + len(payload).to_bytes(4, "big") + payload


class FrameReader:
    """Cuts a stream into frames."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, received: bytes) -> list[tuple[bytes, bytes]]:
        """Return the frames that are complete with these bytes; raise `FrameFault` for one that is too long."""
        self._held += received
        found = []
        while len(self._held) >= HEAD:
            size = int.from_bytes(self._held[1:HEAD], "big")
            if size > MOST_PAYLOAD:
                raise FrameFault(f"a frame of {size} bytes; the maximum is {MOST_PAYLOAD}")
            if len(self._held) < HEAD + size:
                break
            found.append((bytes(self._held[:1]), bytes(self._held[HEAD : HEAD + size])))
            del self._held[: HEAD + size]
        return found
